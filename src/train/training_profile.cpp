// SPDX-License-Identifier: Apache-2.0
#include "reprise/training_profile.h"

#include "autograd/out_of_memory.h"
#include "reprise/errors.h"
#include "reprise/memory_budget.h"
#include "train/training_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace reprise {
namespace {

constexpr const char* kBetweenLayers = "between layers";
constexpr int kStepsBeforePlan = 3;  // of steps whose plan foretells them to the byte

/// How a measured step is run.
struct Variant {
  Checkpointing checkpointing;
  std::map<std::string, bool> layers;
};

/// One step, recorded.
struct RecordedStep {
  std::shared_ptr<MemoryTimeline> timeline;
  MemoryBreakdown after_forward;
  double step_ms = std::numeric_limits<double>::infinity();
  std::map<std::string, double> forward_ms;
  std::map<std::string, double> recompute_ms;
};

double milliseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

/// The first stretch of a phase.
const TimelineSpan& phase(const MemoryTimeline& timeline, const std::string& name) {
  const auto& spans = timeline.spans();
  return *std::find_if(spans.begin(), spans.end(), [&](const TimelineSpan& span) {
    return !span.is_layer && span.name == name;
  });
}

/// From the beginning of the first forward to the end of the optimiser: without the loader.
double step_ms_of(const MemoryTimeline& timeline) {
  return milliseconds(phase(timeline, "optimizer").end_ns - phase(timeline, "forward").begin_ns);
}

/// Keeps the least of both for each name.
void keep_least(std::map<std::string, double>& least, const std::map<std::string, double>& times) {
  for (const auto& [name, time] : times) {
    const auto [entry, is_new] = least.try_emplace(name, time);
    if (!is_new) entry->second = std::min(entry->second, time);
  }
}

/// Steps of one training, each run in the way that is asked for.
class StepRecorder {
 public:
  StepRecorder(const TftOptions& model, const Dataset& dataset, const TrainOptions& options)
      : options_(options),
        auto_budget_bytes_(take_auto_budget(model, options_)),
        model_(model),
        training_(model_, dataset, options_) {
    training_.set_on_phase([this](const std::string& name) {
      if (timeline_) timeline_->mark(name);
    });
    training_.set_may_retry(false);
    training_.run_steps(1);  // what the first step does once
  }

  RecordedStep record(const Variant& variant) {
    model_->set_checkpointing(variant.checkpointing);
    model_->set_checkpoint_layers(variant.layers);
    if (variant.checkpointing != Checkpointing::kAuto || auto_budget_bytes_ == 0)
      return record_step();
    const MemoryBudget budget(auto_budget_bytes_);
    for (int i = 0; i < kStepsBeforePlan; ++i) training_.run_steps(1);
    auto step = record_step();
    training_.forget_rematerializer();
    return step;
  }

 private:
  /// With auto a budget is for its steps alone: those that it is compared with take more, up to
  /// what the system has.
  static std::int64_t take_auto_budget(const TftOptions& model, TrainOptions& options) {
    if (model.checkpointing != Checkpointing::kAuto || options.memory_budget_bytes == 0) return 0;
    return std::exchange(options.memory_budget_bytes, detail::usable_memory_bytes());
  }

  RecordedStep record_step() {
    timeline_ = std::make_shared<MemoryTimeline>();
    training_.run_steps(1);
    timeline_->stop();
    RecordedStep step;
    step.timeline = std::exchange(timeline_, nullptr);
    step.after_forward = step.timeline->at(phase(*step.timeline, "backward").begin_ns);
    step.step_ms = step_ms_of(*step.timeline);
    for (const auto& span : step.timeline->spans()) {
      if (!span.is_layer) continue;
      auto& times = span.is_recomputed ? step.recompute_ms : step.forward_ms;
      times[span.name] += milliseconds(span.end_ns - span.begin_ns);
    }
    return step;
  }

  TrainOptions options_;
  std::int64_t auto_budget_bytes_;
  TemporalFusionTransformer model_;
  detail::Training training_;
  std::shared_ptr<MemoryTimeline> timeline_;
};

/// The same step again: its least times are kept.
void add_times(RecordedStep& step, RecordedStep again) {
  keep_least(step.forward_ms, again.forward_ms);
  keep_least(step.recompute_ms, again.recompute_ms);
  if (again.step_ms < step.step_ms) {
    step.step_ms = again.step_ms;
    step.timeline = std::move(again.timeline);
  }
}

std::string reason_of(const TftOptions& options, const std::string& layer) {
  if (options.checkpoint_layers.contains(layer)) return "chosen by name";
  if (options.checkpointing == Checkpointing::kAuto) return "decided operator by operator";
  auto most = options;
  most.checkpoint_layers.clear();
  const bool is_chosen = is_checkpointed(most, layer);
  most.checkpointing = Checkpointing::kAggressive;
  if (!is_checkpointed(most, layer)) return "in no tier";
  most.checkpointing = Checkpointing::kMinimal;
  const std::string lowest = is_checkpointed(most, layer) ? "minimal" : "aggressive";
  return (is_chosen ? "in tier " : "only from tier ") + lowest;
}

constexpr std::int64_t kSteps = 2;

TrainOptions at_size(TrainOptions options, std::int64_t batch_size) {
  options.batch_size = batch_size;
  options.micro_batch_size = 0;
  options.memory_budget_bytes = 0;
  options.validate();
  return options;
}

/// Two steps of a new model, which goes with them. What auto takes depends on the limit: aggressive
/// stands for it.
void train_steps(TftOptions options, const Dataset& dataset, const TrainOptions& train) {
  if (options.checkpointing == Checkpointing::kAuto)
    options.checkpointing = Checkpointing::kAggressive;
  torch::manual_seed(train.seed);
  TemporalFusionTransformer model(std::move(options));
  detail::Training training(model, dataset, train);
  training.set_may_retry(false);
  training.run_steps(kSteps);
}

/// Records steps of `unit`, 2 and 4 times as many windows.
PeakModel measure_peaks_within(std::int64_t limit_bytes, std::int64_t unit, const TftOptions& model,
                               const Dataset& dataset, const TrainOptions& options) {
  const MemoryBudget budget(limit_bytes, torch::Device(options.device));
  std::vector<MemoryTrace> traces;
  for (const std::int64_t size : {unit, 2 * unit, 4 * unit}) {
    MemoryTimeline timeline;
    train_steps(model, dataset, at_size(options, size));
    timeline.stop();
    traces.push_back(timeline.trace(size));
  }
  return PeakModel::fit(std::move(traces));
}

/// Their peak; none where it is above the limit.
std::optional<std::int64_t> peak_within(const TftOptions& model, const Dataset& dataset,
                                        const TrainOptions& options, std::int64_t limit_bytes) {
  try {
    const MemoryBudget budget(limit_bytes, torch::Device(options.device));
    train_steps(model, dataset, options);
    return memory_stats(torch::Device(options.device)).peak_bytes;
  } catch (const std::exception& error) {
    if (!detail::is_out_of_memory(error)) throw;
    return std::nullopt;
  }
}

template <typename Value>
Value value_of(const std::map<std::string, Value>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? Value{} : found->second;
}

/// What the three steps say about a layer.
LayerCost cost_of(const std::string& layer, const TftOptions& options, const RecordedStep& plain,
                  const RecordedStep& recomputed) {
  LayerCost cost;
  cost.name = layer;
  cost.plain_bytes = value_of(plain.after_forward.saved_by_layer, layer);
  cost.kept_bytes = value_of(recomputed.after_forward.saved_by_layer, layer);
  cost.forward_ms = value_of(plain.forward_ms, layer);
  cost.recompute_ms = value_of(recomputed.recompute_ms, layer);
  cost.is_checkpointed = is_checkpointed(options, layer);
  cost.reason = reason_of(options, layer);
  return cost;
}

void describe_peak(TrainingProfile& profile) {
  const auto& timeline = *profile.timeline;
  profile.start_bytes = timeline.at_start().total();
  profile.peak_bytes = timeline.peak_bytes();
  profile.at_peak = timeline.at_peak();
  profile.average_bytes = timeline.average_bytes();
  profile.out_of_memory_events = timeline.out_of_memory_events();
  profile.outside_ledger_bytes = memory_outside_ledger_bytes();
  const auto peak = timeline.peak_event();
  const std::int64_t time_ns = peak ? timeline.events()[*peak].time_ns : 0;
  profile.peak_ms = milliseconds(time_ns);
  for (const auto& span : timeline.spans()) {
    if (!span.is_layer && span.begin_ns <= time_ns && time_ns <= span.end_ns)
      profile.peak_phase = span.name;
  }
}

}  // namespace

double LayerCost::megabytes_per_percent(double step_ms) const {
  return static_cast<double>(saved_bytes()) / 1e6 / (recompute_ms / step_ms * 100.0);
}

TrainingProfile profile_training(const TftOptions& model, const Dataset& dataset,
                                 const TrainOptions& options, int repetitions) {
  options.validate();
  std::map<std::string, bool> all;
  for (const auto& layer : layer_names(model)) all[layer] = true;
  torch::manual_seed(options.seed);
  StepRecorder recorder(model, dataset, options);
  RecordedStep plain;
  RecordedStep recomputed;
  RecordedStep asked_for;
  for (int i = 0; i < std::max(1, repetitions); ++i) {
    const auto add = [&](RecordedStep& step, const Variant& variant) {
      auto recorded = recorder.record(variant);
      if (!step.timeline)
        step = std::move(recorded);
      else
        add_times(step, std::move(recorded));
    };
    add(plain, {Checkpointing::kOff, {}});
    add(recomputed, {Checkpointing::kOff, all});
    add(asked_for, {model.checkpointing, model.checkpoint_layers});
  }

  TrainingProfile profile;
  profile.batch_size = options.batch_size;
  profile.checkpointing = model.checkpointing;
  for (const auto& layer : layer_names(model))
    profile.layers.push_back(cost_of(layer, model, plain, recomputed));
  LayerCost rest;
  rest.name = kBetweenLayers;
  rest.plain_bytes = value_of(plain.after_forward.saved_by_layer, "");
  rest.kept_bytes = rest.plain_bytes;
  rest.reason = "no layer";
  profile.layers.push_back(rest);
  profile.plain_step_ms = plain.step_ms;
  profile.step_ms = asked_for.step_ms;
  profile.timeline = asked_for.timeline;
  describe_peak(profile);
  return profile;
}

PeakModel measure_peaks(const TftOptions& model, const Dataset& dataset,
                        const TrainOptions& options) {
  constexpr std::int64_t kLargestUnit = 8;
  const auto windows = std::ssize(dataset.windows(Split::kTrain));
  // Where there are windows for it, whole batches in all steps of the largest size, and in the
  // loader's ring.
  const std::int64_t batches = kSteps + 2 * options.loader_threads + 1;
  const std::int64_t unit = std::clamp<std::int64_t>(windows / (4 * batches), 1, kLargestUnit);
  for (std::int64_t smaller = unit; options.memory_budget_bytes > 0 && smaller > 0; smaller /= 2) {
    try {
      return measure_peaks_within(options.memory_budget_bytes, smaller, model, dataset, options);
    } catch (const BudgetError&) {  // fewer windows, then
    }
  }
  return measure_peaks_within(detail::usable_memory_bytes(),
                              options.memory_budget_bytes > 0 ? 1 : unit, model, dataset, options);
}

LargestBatch find_largest_batch(const PeakModel& peaks, const TftOptions& model,
                                const Dataset& dataset, const TrainOptions& options,
                                std::int64_t limit_bytes, std::int64_t most) {
  const auto windows = std::ssize(dataset.windows(Split::kTrain));
  most = std::min(most, static_cast<std::int64_t>(windows));
  LargestBatch best;
  best.foretold_size = peaks.largest_batch(limit_bytes, most);
  std::int64_t too_large = most + 1;
  std::int64_t guess = std::max<std::int64_t>(1, best.foretold_size);
  for (std::int64_t stride = 1; best.batch_size + 1 < too_large;) {
    const auto peak = peak_within(model, dataset, at_size(options, guess), limit_bytes);
    if (peak) {
      best.batch_size = guess;
      best.peak_bytes = *peak;
      // What the model is wrong by here, it will be wrong by nearby.
      guess = peaks.largest_batch(limit_bytes - *peak + peaks.peak_bytes(guess), most);
    } else {
      too_large = guess;
      guess -= std::exchange(stride, 2 * stride);
    }
    guess = std::clamp(guess, best.batch_size + 1, std::max(best.batch_size + 1, too_large - 1));
  }
  best.is_limited_by_most = best.batch_size == most && most > 0;
  return best;
}

std::optional<RematStep> record_training_step(const TftOptions& model, const Dataset& dataset,
                                              TrainOptions options) {
  options.validate();
  if (options.memory_budget_bytes == 0) options.memory_budget_bytes = detail::usable_memory_bytes();
  TftOptions with_auto = model;
  with_auto.checkpointing = Checkpointing::kAuto;
  torch::manual_seed(options.seed);
  TemporalFusionTransformer recorded(with_auto);
  detail::Training training(recorded, dataset, options);
  training.set_may_retry(false);
  for (int i = 0; i <= kStepsBeforePlan; ++i) training.run_steps(1);
  return training.planned_step();
}

}  // namespace reprise
