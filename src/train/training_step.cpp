// SPDX-License-Identifier: Apache-2.0
#include "autograd/forward_context.h"
#include "autograd/out_of_memory.h"
#include "memory/ledger.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/quantile_loss.h"
#include "train/batch_internal.h"
#include "train/training_step_internal.h"

#include <c10/util/ScopeExit.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace reprise::detail {

TrainingStep::TrainingStep(TemporalFusionTransformer& model, const TrainOptions& options)
    : model_(model),
      options_(options),
      adam_(model->parameters(), options.weight_decay),
      micro_batch_size_(options.micro_batch_size > 0
                            ? std::min(options.micro_batch_size, options.batch_size)
                            : options.batch_size) {
  label_parameters(model->parameters());
}

double TrainingStep::run(const Batch& batch, double lr) {
  const RandomState random_state;
  double loss = 0.0;
  ++step_;
  for (auto shortage = attempt(batch, loss); shortage; shortage = attempt(batch, loss)) {
    adam_.clear_gradients();
    random_state.restore();
    if (!may_retry || !use_less_memory(batch.target.size(0))) {
      --step_;
      throw BudgetError(shortage->needed_bytes, shortage->allowed_bytes, shortage->what);
    }
    retries_.push_back({.step = step_,
                        .checkpointing = model_->options().checkpointing,
                        .micro_batch_size = micro_batch_size_,
                        .needed_bytes = shortage->needed_bytes,
                        .allowed_bytes = shortage->allowed_bytes});
  }
  if (std::isfinite(loss)) {
    begin_phase("optimizer");
    adam_.step(lr);
  } else {
    --step_;
  }
  adam_.clear_gradients();
  return loss;
}

void TrainingStep::try_backward(const Batch& batch) {
  const auto end = c10::make_scope_exit([this] { adam_.clear_gradients(); });
  // Later ones are like these: gradients are there from the second on, and plans have settled.
  constexpr std::int64_t kTriedPasses = 4;
  const auto count = std::min(batch.target.size(0), kTriedPasses * micro_batch_size_);
  run_passes(part_of(batch, 0, count));
}

std::vector<MemoryRetry> TrainingStep::take_retries() {
  return std::exchange(retries_, {});
}

std::optional<TrainingStep::Shortage> TrainingStep::attempt(const Batch& batch, double& loss) {
  std::string what;
  try {
    loss = run_passes(batch);
    return std::nullopt;
  } catch (const BudgetError& error) {
    // Where it was the system that refused, what the ledger keeps is missed elsewhere.
    if (error.allowed_bytes() != memory_stats().budget_bytes)
      Ledger::instance().stop_keeping_pages();
    return Shortage{error.needed_bytes(), error.allowed_bytes(), error.what()};
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    Ledger::instance().stop_keeping_pages();
    what = std::string("memory: the system has no more (") + error.what() +
           "); use a smaller batch or model, or recompute more activations";
  }
  const std::int64_t in_use = memory_stats(torch::Device(options_.device)).current_bytes;
  return Shortage{in_use, in_use, what};
}

double TrainingStep::run_passes(const Batch& batch) {
  model_->train();
  const std::int64_t count = batch.target.size(0);
  double loss = 0.0;
  for (std::int64_t first = 0; first < count && std::isfinite(loss); first += micro_batch_size_) {
    const std::int64_t size = std::min(micro_batch_size_, count - first);
    if (size == count) {
      loss = run_pass(batch, 1.0);
    } else {
      loss += run_pass(part_of(batch, first, size),
                       static_cast<double>(size) / static_cast<double>(count));
    }
  }
  if (options_.clip_norm > 0 && std::isfinite(loss)) adam_.clip_gradients(options_.clip_norm);
  return loss;
}

/// Adds `share` of the gradients of a batch; that share of its loss.
double TrainingStep::run_pass(const Batch& batch, double share) {
  begin_phase("forward");
  const auto& options = model_->options();
  const auto forward = [&] {
    const auto loss = quantile_loss(model_->forward(batch.input), batch.target, options.quantiles);
    return share < 1.0 ? loss * share : loss;
  };
  const auto loss = loss_of(forward);
  const auto value = loss.item<double>();
  if (!std::isfinite(value)) return value;
  begin_phase("backward");
  loss.backward();
  return value;
}

bool TrainingStep::use_less_memory(std::int64_t batch_size) {
  if (const auto tier = next_tier()) {
    model_->set_checkpointing(*tier);
  } else if (const std::int64_t now = std::min(micro_batch_size_, batch_size); now > 1) {
    micro_batch_size_ = (now + 1) / 2;
  } else if (model_->options().checkpointing == Checkpointing::kAuto) {
    model_->set_checkpointing(Checkpointing::kAggressive);
  } else {
    return false;
  }
  return true;
}

/// None where the next way to take less is a smaller micro-batch.
std::optional<Checkpointing> TrainingStep::next_tier() const {
  const auto tier = model_->options().checkpointing;
  const bool has_auto = torch::Device(options_.device).is_cpu() && memory_stats().budget_bytes > 0;
  if (has_auto) return has_tried_auto_ ? std::nullopt : std::optional(Checkpointing::kAuto);
  if (tier == Checkpointing::kOff) return Checkpointing::kMinimal;
  if (tier == Checkpointing::kMinimal) return Checkpointing::kAggressive;
  return std::nullopt;
}

/// With auto within the budget that holds now.
torch::Tensor TrainingStep::loss_of(const std::function<torch::Tensor()>& forward) {
  if (model_->options().checkpointing != Checkpointing::kAuto) {
    forget_rematerializer();
    return forward();
  }
  if (!rematerializer_)
    rematerializer_.emplace(RematerializerOptions{.budget_bytes = memory_stats().budget_bytes});
  has_tried_auto_ = true;
  return rematerializer_->forward(forward);
}

void TrainingStep::begin_phase(const char* name) const {
  if (on_phase) on_phase(name);
}

}  // namespace reprise::detail
