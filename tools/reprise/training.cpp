// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include "autograd/out_of_memory.h"
#include "command.h"
#include "config.h"
#include "interrupt.h"
#include "json_text.h"
#include "memory/process_memory.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "retries.h"
#include "scores.h"
#include "store/atomic_file.h"
#include "text.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace reprise {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What `reprise train --config` needs to do the same again; the run folder itself is not part of
// it.
std::string resolved_config(Settings settings) {
  settings.parquet_file =
      std::filesystem::absolute(settings.parquet_file).lexically_normal().string();
  settings.threads = at::get_num_threads();
  return "# The settings of this run, nothing left to infer: reprise train --config config.toml "
         "does it again.\n" +
         config_text(with_common(run_fields(settings), settings));
}

// Hears the trainer after every step: metrics, retries, progress, interrupt.
class StepListener {
 public:
  StepListener(const Settings& settings, MetricsFile& metrics, Terminal& terminal)
      : options_(settings.train),
        device_(options_.device),
        metrics_(metrics),
        terminal_(terminal),
        progress_(terminal) {
    result_.checkpointing = settings.model.checkpointing;
    result_.micro_batch_size = pass_size(options_);
  }

  bool operator()(const StepReport& report) {
    result_.steps = report.step;
    result_.peak_bytes = memory_stats(device_).peak_bytes;
    hear_retries(report.retries);
    hear_overshoot();
    metrics_.write(report);
    const bool is_evaluation = !std::isnan(report.valid_loss);
    if (is_evaluation) {
      valid_loss_ = report.valid_loss;
      is_best_ = report.is_best;
      has_best_ = has_best_ || (report.is_best && std::isfinite(report.valid_loss));
    }
    progress_.update({.step = report.step,
                      .total_steps = report.total_steps,
                      .train_loss = report.train_loss,
                      .valid_loss = valid_loss_,
                      .is_best = is_best_,
                      .windows_per_s = report.windows_per_s,
                      .elapsed_s = report.elapsed_s,
                      .peak_bytes = result_.peak_bytes},
                     is_evaluation);
    return !interrupt_.requested();
  }

  /// What is known of a training that fails.
  TrainResult result() const {
    TrainResult result = result_;
    result.reason = StopReason::kInterrupted;
    // A device that failed before the first step may have nothing to say.
    if (device_.is_cpu() || result.steps > 0) {
      result.out_of_memory_events = memory_stats(device_).out_of_memory_events;
    }
    return result;
  }
  /// Whether there are weights worth keeping when training fails.
  bool has_best() const { return has_best_; }
  bool is_interrupted() const { return interrupt_.requested(); }

 private:
  void hear_retries(const std::vector<MemoryRetry>& retries) {
    for (const MemoryRetry& retry : retries) {
      const bool is_last = &retry == &retries.back();
      terminal_.warning(retry_text(retry, options_) +
                        (is_last ? ", as are all steps after it" : ""));
      result_.retries.push_back(retry);
      result_.checkpointing = retry.checkpointing;
      result_.micro_batch_size = retry.micro_batch_size;
    }
  }

  // Once: the peak never falls.
  void hear_overshoot() {
    if (has_overshot_) return;
    const std::string text = overshoot_text(result_.steps, result_.peak_bytes, options_);
    has_overshot_ = !text.empty();
    if (has_overshot_) terminal_.warning(text);
  }

  const TrainOptions& options_;
  c10::Device device_;
  MetricsFile& metrics_;
  Terminal& terminal_;
  Progress progress_;
  InterruptScope interrupt_;
  TrainResult result_;
  double valid_loss_ = std::numeric_limits<double>::quiet_NaN();
  bool is_best_ = false;
  bool has_best_ = false;
  bool has_overshot_ = false;
};

// What checkpointing auto did, beside what was foretold.
std::string rematerializer_text(const TrainResult& result) {
  const RematerializerStats& stats = result.rematerializer;
  if (stats.steps == 0) {
    return "";
  }
  const double per_step = 1.0 / static_cast<double>(stats.steps);
  std::string text = "Recomputed " +
                     format_fixed(static_cast<double>(stats.replayed_operations) * per_step, 1) +
                     " operators a step, " + format_fixed(stats.replay_ms * per_step, 2) + " ms";
  if (stats.is_planned) {
    text += "; last planned step: foretold peak " + format_count(stats.predicted_peak_bytes) +
            " bytes, measured " + format_count(stats.measured_peak_bytes) + "; foretold " +
            format_fixed(stats.predicted_replay_ms, 2) + " ms recomputed; planned in " +
            format_fixed(stats.planning_ms, 1) + " ms";
  }
  return text + "\n";
}

std::string result_text(const RunSummary& summary) {
  const TrainResult& result = summary.result;
  const auto steps = static_cast<double>(result.steps);
  const double per_s = result.train_s > 0 ? 1.0 / result.train_s : 0.0;
  const std::int64_t budget = summary.options.memory_budget_bytes;
  return "Trained " + format_count(result.steps) + " steps in " + format_duration(result.train_s) +
         " (" + summary.stop_reason + "; best at step " + format_count(result.best_step) +
         ", valid loss " + format_fixed(result.best_valid_loss, 4) +
         "): " + format_fixed(steps * per_s, 2) + " steps/s, " +
         format_fixed(static_cast<double>(result.windows) * per_s, 0) + " samples/s, loader " +
         format_fixed(result.loader_wait_s * per_s * 100.0, 1) + " % of the time, peak " +
         format_bytes(result.peak_bytes) + " of tensors" +
         (budget > 0 ? " (budget " + format_bytes(budget) + ")" : "") + "\n" +
         rematerializer_text(result);
}

// The steps of `run_training`, and what they hand on.
class TrainingJob {
 public:
  TrainingJob(Settings settings, const std::filesystem::path& run, Terminal& terminal)
      : terminal_(terminal), prepared_(prepare_training(std::move(settings))) {
    outcome_.run = run;
    RunSummary& summary = outcome_.summary;
    summary.overview = prepared_.overview;
    summary.options = prepared_.settings.train;
    summary.precision = prepared_.settings.precision;
    summary.threads = at::get_num_threads();
    terminal_.result(overview_text(summary.overview) + prepared_.batch_size_text + "\n");
    if (summary.overview.windows.valid == 0) {
      terminal_.warning("no validation window: the last weights are kept, not the best");
    }
  }

  void train_and_save() {
    make_run_folder(outcome_.run);
    MetricsFile metrics(outcome_.run);
    write_file_atomically(outcome_.run / "config.toml", resolved_config(prepared_.settings));
    StepListener listener(prepared_.settings, metrics, terminal_);
    try {
      outcome_.summary.result = train(prepared_.trained.model, prepared_.dataset,
                                      prepared_.settings.train, std::ref(listener));
      save_trained_model(outcome_.run, prepared_.trained);
    } catch (const std::exception& error) {
      outcome_.summary.result = listener.result();
      save_best(listener);
      finish("interrupted", error.what());
      throw;
    }
    if (listener.is_interrupted()) {
      outcome_.summary.result.reason = StopReason::kInterrupted;
    }
  }

  void score_and_finish() {
    RunSummary& summary = outcome_.summary;
    if (outcome_.is_interrupted()) {
      finish("interrupted", "interrupted");
      return;
    }
    const std::vector<Window> windows =
        prepared_.dataset.windows(Split::kTest, prepared_.settings.data.horizon);
    if (windows.empty()) {
      terminal_.warning("no test window: nothing is scored");
    } else {
      finish("interrupted", "in the test, after the training");  // should it end there
      score(windows);
    }
    finish("finished", to_string(summary.result.reason));
  }

  const TrainingOutcome& outcome() const { return outcome_; }

 private:
  // In the batches that training could do, and within its budget.
  void score(const std::vector<Window>& windows) {
    RunSummary& summary = outcome_.summary;
    const TrainOptions& options = prepared_.settings.train;
    try {
      const std::unique_ptr<MemoryBudget> budget = memory_budget(options);
      summary.scores = evaluate(prepared_.trained.model, prepared_.dataset, windows,
                                summary.result.micro_batch_size, options.device);
    } catch (const std::exception& error) {
      if (!detail::is_out_of_memory(error)) {
        finish("interrupted", error.what());
        throw;
      }
      const bool has_reason = dynamic_cast<const BudgetError*>(&error) != nullptr;
      terminal_.warning(std::string("nothing is scored, the test does not fit into memory") +
                        (has_reason ? std::string(": ") + error.what() : ""));
    }
  }

  // Without a finite evaluation there are no best weights, and the last ones may be what failed.
  void save_best(const StepListener& listener) {
    if (!listener.has_best()) {
      terminal_.note("no weights are saved: no evaluation had a finite loss yet");
      return;
    }
    try {
      save_trained_model(outcome_.run, prepared_.trained);
      terminal_.note("the best weights so far are saved in " + outcome_.run.string());
    } catch (const std::exception& error) {
      terminal_.warning(std::string("the best weights so far could not be saved: ") + error.what());
    }
  }

  void finish(const std::string& status, const std::string& reason) {
    RunSummary& summary = outcome_.summary;
    summary.status = status;
    summary.stop_reason = reason;
    summary.total_s = seconds_since(start_);
    summary.peak_resident_bytes = detail::peak_resident_bytes();
    write_summary(outcome_.run, summary);
  }

  const Clock::time_point start_ = Clock::now();
  Terminal& terminal_;
  PreparedTraining prepared_;
  TrainingOutcome outcome_;
};

}  // namespace

TrainingOutcome run_training(Settings settings, const std::filesystem::path& run,
                             Terminal& terminal) {
  TrainingJob job(std::move(settings), run, terminal);
  job.train_and_save();
  job.score_and_finish();
  return job.outcome();
}

int print_training(const TrainingOutcome& outcome, Terminal& terminal) {
  const RunSummary& summary = outcome.summary;
  std::string text = result_text(summary);
  if (!summary.scores.empty()) {
    const std::int64_t horizon = summary.overview.model.horizon;
    text += "\nTest: " + format_count(summary.overview.windows.test) + " windows, every " +
            std::to_string(horizon) + " samples\n" + score_table(summary.scores);
  }
  terminal.result(text);
  if (const std::string warning = baseline_warning(summary.scores); !warning.empty()) {
    terminal.warning(warning);
  }
  if (outcome.is_interrupted()) {
    terminal.note("interrupted after step " + std::to_string(summary.result.steps) +
                  ": the weights are saved, the test was left out");
  }
  terminal.result("Run folder: " + outcome.run.string() + "\n");
  return outcome.is_interrupted() ? kExitInterrupted : kExitDone;
}

nlohmann::ordered_json training_json(const TrainingOutcome& outcome) {
  nlohmann::ordered_json document = {{"run", outcome.run.string()}};
  document.update(summary_json(outcome.summary));
  return document;
}

int run_train(Settings& settings, Terminal& terminal) {
  settle(settings);
  const std::filesystem::path run = choose_run_folder(settings.out, settings.parquet_file);
  check_run_folder(run);
  const TrainingOutcome outcome = run_training(settings, run, terminal);
  const int exit_code = print_training(outcome, terminal);
  terminal.json(json_text(training_json(outcome)));
  return exit_code;
}

}  // namespace reprise
