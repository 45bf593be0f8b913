// SPDX-License-Identifier: Apache-2.0
#include "batch_choice.h"
#include "byte_size.h"
#include "commands.h"
#include "json_text.h"
#include "plan_check.h"
#include "plan_table.h"
#include "prepare.h"
#include "remat_table.h"
#include "text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace reprise {
namespace {

// What is left is for what is no tensor and for other programs.
constexpr std::int64_t kUsablePercent = 95;
constexpr std::int64_t kWantedBatch = 64;  // where none is wanted

// Fastest first.
constexpr std::array kTiers = {Checkpointing::kOff, Checkpointing::kMinimal,
                               Checkpointing::kAggressive};

// From the table to the plans, and on to what came of running them.
class Planner {
 public:
  Planner(const Settings& settings, Terminal& terminal)
      : terminal_(terminal), data_(prepare_data(settings)) {
    const TrainOptions& train = data_.settings.train;
    subject_ = {.file = data_.overview.file,
                .wanted_batch = train.batch_size == 0 ? kWantedBatch : pass_size(train),
                .train_windows = data_.overview.windows.train};
    options_ = train;
    options_.batch_size = subject_.wanted_batch;
  }

  void plan() {
    for (const Checkpointing tier : kTiers) {
      measure(tier);
    }
    schedule();
    here_bytes_ = tensor_memory_bytes(kUsablePercent);
    plans_ = plan_batches(tiers_, devices(), subject_.wanted_batch);
  }

  // The plans say afterwards what was found.
  void check() {
    for (DevicePlan& plan : plans_) {
      const std::vector<BatchCheck> checks = check(plan);
      correct_plan(plan, checks, subject_.wanted_batch);
      checks_.insert(checks_.end(), checks.begin(), checks.end());
    }
  }

  std::string text() const {
    return plan_text(subject_, tiers_, plans_) + "This machine: what can be had now, less " +
           std::to_string(100 - kUsablePercent) + " %\n" +
           (remat_ ? "\n" + remat_text(*remat_) : "") +
           (checks_.empty() ? "" : "\n" + checks_text(checks_));
  }

  nlohmann::ordered_json json() const {
    nlohmann::ordered_json document = plan_json(subject_, tiers_, plans_);
    if (remat_) {
      document["auto"] = remat_json(*remat_);
    }
    if (!checks_.empty()) {
      document["checks"] = checks_json(checks_);
    }
    return document;
  }

 private:
  // Layers that the user chose by name stay as they are chosen.
  void measure(Checkpointing tier) {
    terminal_.progress("measuring steps with checkpointing " + to_string(tier));
    TftOptions& model = models_.emplace_back(data_.settings.model);
    model.checkpointing = tier;
    const std::vector<std::string> layers = layer_names(model);
    tiers_.push_back(
        {.tier = to_string(tier),
         .peaks = measure_peaks(model, data_.dataset, options_),
         .recomputes = std::any_of(layers.begin(), layers.end(), [&](const std::string& layer) {
           return is_checkpointed(model, layer);
         })});
  }

  // The budget is for the plan: a step is recorded where the system has the memory for a plain one.
  void schedule() {
    TrainOptions options = options_;
    options.memory_budget_bytes = 0;
    options.batch_size = std::min(options_.batch_size, subject_.train_windows);
    const std::int64_t plain_bytes = tiers_.front().peaks.peak_bytes(options.batch_size);
    const std::int64_t here_bytes = tensor_memory_bytes(kUsablePercent);
    if (plain_bytes > here_bytes) {
      terminal_.warning(
          "what checkpointing auto makes of a budget is left out: to record a step of " +
          format_windows(options.batch_size) + " takes " + format_bytes(plain_bytes) +
          ", and tensors can have " + format_bytes(here_bytes) +
          " here; use a smaller --batch-size or --micro-batch-size");
      return;
    }
    terminal_.progress("recording steps with checkpointing auto");
    std::optional<RematStep> step =
        record_training_step(data_.settings.model, data_.dataset, options);
    if (step) {
      remat_ =
          choose_remat(options.batch_size, std::move(step->graph), options_.memory_budget_bytes);
    } else {
      terminal_.warning("what checkpointing auto makes of a budget is left out: no plan was made");
    }
  }

  std::vector<DeviceMemory> devices() const {
    std::vector<DeviceMemory> devices = common_devices();
    for (const std::int64_t bytes : data_.settings.device_memory) {
      devices.push_back({byte_size_text(bytes), bytes});
    }
    if (data_.settings.train.memory_budget_bytes > 0) {
      devices.push_back({"the budget", data_.settings.train.memory_budget_bytes});
    }
    devices.push_back({"this machine", here_bytes_});
    return devices;
  }

  std::vector<BatchCheck> check(const DevicePlan& plan) const {
    std::vector<BatchCheck> checks;
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      const BatchChoice& choice = plan.choices[i];
      BatchCheck& check = checks.emplace_back(BatchCheck{
          .device = plan.device.name, .tier = choice.tier, .foretold_batch = choice.largest_batch});
      if (plan.device.usable_bytes > here_bytes_) {
        check.not_run = "tensors can have " + format_bytes(here_bytes_) + " here";
        continue;
      }
      terminal_.progress("running batches for " + check.device + " with checkpointing " +
                         check.tier);
      check.found = find_largest_batch(tiers_[i].peaks, models_[i], data_.dataset, options_,
                                       plan.device.usable_bytes);
    }
    return checks;
  }

  Terminal& terminal_;
  PreparedData data_;
  PlanSubject subject_;
  TrainOptions options_;
  std::vector<TftOptions> models_;
  std::vector<TierPeaks> tiers_;
  std::optional<RematChoices> remat_;
  std::int64_t here_bytes_ = 0;
  std::vector<DevicePlan> plans_;
  std::vector<BatchCheck> checks_;
};

int run_plan(Settings& settings, Terminal& terminal) {
  settle(settings);
  require_cpu(settings, "plan");
  Planner planner(settings, terminal);
  planner.plan();
  if (settings.checks_batches) {
    planner.check();
  }
  terminal.result(planner.text());
  terminal.json(json_text(planner.json()));
  return kExitDone;
}

std::vector<Field> plan_fields(Settings& settings) {
  std::vector<Field> fields = training_fields(settings);
  fields.push_back({"device_memory",
                    "SIZE,..",
                    "bytes that tensors can have on further devices (8GB,80GB)",
                    &settings.device_memory,
                    {},
                    {},
                    false,
                    NumberForm::kBytes});
  fields.push_back({"check",
                    "",
                    "find the largest batches by running them, where this machine can",
                    &settings.checks_batches,
                    {},
                    {},
                    false});
  return fields;
}

}  // namespace

Command plan_command(Settings& settings) {
  return {.name = "plan",
          .summary =
              "Tell the largest batch that fits each device and tier, and what checkpointing auto "
              "makes of a budget, from measured steps",
          .example =
              "reprise plan --parquet-file sales.parquet --target sales --device-memory 8GB "
              "--check",
          .fields = plan_fields(settings),
          .positionals = {},
          .required = {"parquet_file"},
          .run = run_plan};
}

}  // namespace reprise
