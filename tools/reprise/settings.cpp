// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include "reprise/errors.h"

#include <torch/cuda.h>

#include <limits>

namespace reprise {

namespace {

// Which layers there are depends on the data: the model checks their names once it knows them.
void validate_without_layers(TftOptions model) {
  model.checkpoint_layers.clear();
  model.validate();
}

// A batch size that is still to be chosen is checked when it is.
void validate_train(TrainOptions train) {
  const bool is_auto = train.batch_size == 0;
  if (is_auto && train.micro_batch_size > 0) {
    throw OptionError("micro_batch_size",
                      "--micro-batch-size: has no meaning with --batch-size auto, which takes as "
                      "many windows as fit in one pass; give one of them");
  }
  train.batch_size = is_auto ? 1 : train.batch_size;
  train.validate();
}

Checkpointing chosen_checkpointing(const Settings& settings) {
  if (settings.use_gradient_checkpointing) {
    return Checkpointing::kAggressive;
  }
  // A batch that is chosen so that it fits has nothing to recompute.
  const bool is_limited = settings.train.memory_budget_bytes > 0 &&
                          settings.train.batch_size != 0 && settings.train.device == "cpu";
  return settings.checkpointing.value_or(is_limited ? Checkpointing::kAuto : Checkpointing::kOff);
}

}  // namespace

void settle(Settings& settings) {
  settings.model.encoder_length = settings.data.encoder_length;
  settings.model.horizon = settings.data.horizon;
  settings.checkpointing = chosen_checkpointing(settings);
  settings.model.checkpointing = *settings.checkpointing;
  // TOML, which a run is repeated from, has no larger whole numbers.
  if (settings.train.seed > std::numeric_limits<std::int64_t>::max()) {
    throw OptionError("seed",
                      "--seed: must be below 2^63, got " + std::to_string(settings.train.seed));
  }
  settings.data.validate();
  validate_without_layers(settings.model);
  validate_train(settings.train);
  if (settings.train.batch_size == 0) {
    require_cpu(settings, "--batch-size auto");
  }
}

void require_cpu(const Settings& settings, const std::string& who) {
  if (settings.train.device != "cpu") {
    throw OptionError("device", "--device: " + who + " measures tensors on the CPU, not on " +
                                    settings.train.device + "; use --device cpu");
  }
}

void check_device(const std::string& device) {
  if (device == "cpu") {
    return;
  }
  const std::string number = device.rfind("cuda:", 0) == 0 ? device.substr(5) : "0";
  const bool is_index = !number.empty() && number.size() <= 3 &&
                        number.find_first_not_of("0123456789") == std::string::npos;
  if ((device != "cuda" && device.rfind("cuda:", 0) != 0) || !is_index) {
    throw OptionError("device", "--device: '" + device + "' is unknown; known: cpu, cuda, cuda:N");
  }
  const auto count = static_cast<std::int64_t>(torch::cuda::device_count());
  if (std::stoll(number) >= count) {
    throw OptionError("device", "--device: " + device + " is not here: LibTorch sees " +
                                    std::to_string(count) + " CUDA devices; use --device cpu");
  }
}

}  // namespace reprise
