// SPDX-License-Identifier: Apache-2.0
#include "run_files.h"

#include "fields.h"
#include "reprise/errors.h"
#include "reprise/version.h"
#include "retries.h"
#include "scores.h"
#include "store/atomic_file.h"

#include <torch/headeronly/version.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <system_error>

namespace reprise {
namespace {

double ratio(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

std::string local_date_time() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  localtime_r(&now, &parts);
  char buffer[32];
  const std::size_t size = std::strftime(buffer, sizeof buffer, "%Y%m%d-%H%M%S", &parts);
  return std::string(buffer, size);
}

nlohmann::ordered_json rematerializer_json(const RematerializerStats& stats) {
  nlohmann::ordered_json document = {{"steps", stats.steps},
                                     {"evictions", stats.evictions},
                                     {"replayed_operations", stats.replayed_operations},
                                     {"replay_ms", stats.replay_ms},
                                     {"planning_ms", stats.planning_ms}};
  if (stats.is_planned) {
    document["predicted_peak_bytes"] = stats.predicted_peak_bytes;
    document["measured_peak_bytes"] = stats.measured_peak_bytes;
    document["predicted_replay_ms"] = stats.predicted_replay_ms;
    document["least_replay_ms"] = stats.least_replay_ms;
  }
  return document;
}

nlohmann::ordered_json memory_json(const RunSummary& summary) {
  const TrainResult& result = summary.result;
  nlohmann::ordered_json document = {{"batch_size", summary.options.batch_size},
                                     {"micro_batch_size", result.micro_batch_size}};
  if (summary.options.memory_budget_bytes > 0) {
    document["memory_budget_bytes"] = summary.options.memory_budget_bytes;
  }
  document["peak_bytes"] = result.peak_bytes;
  document["peak_resident_bytes"] = summary.peak_resident_bytes;
  document["out_of_memory_events"] = result.out_of_memory_events;
  document["retries"] = retries_json(result.retries);
  if (result.rematerializer.steps > 0) {
    document["rematerializer"] = rematerializer_json(result.rematerializer);
  }
  if (const auto& step = result.planned_step) {
    document["plan_hash"] = hexadecimal(
        plan_hash(step->solution.plan, step->graph, summary.options.memory_budget_bytes));
  }
  return document;
}

}  // namespace

std::filesystem::path choose_run_folder(const std::string& out, const std::string& file) {
  if (!out.empty()) {
    return out;
  }
  const std::string name = std::filesystem::path(file).stem().string() + "-" + local_date_time();
  std::filesystem::path run = std::filesystem::path("runs") / name;
  // Two runs within one second.
  std::error_code ignored;
  for (int number = 2; std::filesystem::exists(run, ignored); ++number) {
    run = std::filesystem::path("runs") / (name + "-" + std::to_string(number));
  }
  return run;
}

void check_run_folder(const std::filesystem::path& run) {
  std::error_code ignored;
  if (!std::filesystem::exists(run, ignored)) {
    return;
  }
  if (!std::filesystem::is_directory(run, ignored)) {
    throw OptionError("out", "--out: " + run.string() + " is a file; name a folder for the run");
  }
  if (!std::filesystem::is_empty(run, ignored)) {
    throw OptionError(
        "out", "--out: " + run.string() +
                   " is not empty; name another folder, or leave --out away to get a new one");
  }
}

void make_run_folder(const std::filesystem::path& run) {
  std::error_code error;
  std::filesystem::create_directories(run, error);
  if (error) {
    throw OptionError("out", "--out: " + run.string() + " cannot be made: " + error.message());
  }
}

MetricsFile::MetricsFile(const std::filesystem::path& run) : path_(run / "metrics.jsonl") {
  // Of several programs that found the folder empty, one alone makes this file.
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno == EEXIST) {
    throw OptionError("out",
                      "--out: another run writes to " + run.string() + "; name another folder");
  }
  if (descriptor >= 0) {
    ::close(descriptor);
    stream_.open(path_, std::ios::app);
  }
  if (descriptor < 0 || !stream_) {
    throw DataError(path_.string() + ": cannot be written");
  }
}

void MetricsFile::write(const StepReport& report) {
  for (const MemoryRetry& retry : report.retries) {
    const nlohmann::ordered_json line = {{"step", retry.step}, {"retry", retry_json(retry)}};
    stream_ << line.dump() << '\n';
  }
  const nlohmann::ordered_json step = {{"step", report.step},
                                       {"epoch", report.epoch},
                                       {"train_loss", report.train_loss},
                                       {"windows_per_s", report.windows_per_s}};
  stream_ << step.dump() << '\n';
  if (!std::isnan(report.valid_loss)) {
    const nlohmann::ordered_json evaluation = {{"step", report.step},
                                               {"epoch", report.epoch},
                                               {"valid_loss", report.valid_loss},
                                               {"best", report.is_best}};
    stream_ << evaluation.dump() << '\n';
  }
  if (!stream_.flush()) {
    throw DataError(path_.string() + ": cannot be written; is the disk full?");
  }
}

std::string to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kFinished:
      return "finished";
    case StopReason::kEarlyStop:
      return "early_stop";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "interrupted";
}

nlohmann::ordered_json summary_json(const RunSummary& summary) {
  const Overview& overview = summary.overview;
  const TrainResult& result = summary.result;
  nlohmann::ordered_json document = {
      {"status", summary.status},
      {"stop_reason", summary.stop_reason},
      {"reprise_version", REPRISE_VERSION},
      {"libtorch_version", TORCH_VERSION},
      {"seed", summary.options.seed},
      {"device", summary.options.device},
      {"threads", summary.threads},
      {"precision", summary.precision},
      {"tier", to_string(result.checkpointing)},
      {"data",
       {{"file", overview.file},
        {"rows", overview.rows},
        {"series", overview.series},
        {"train_windows", overview.windows.train},
        {"valid_windows", overview.windows.valid},
        {"test_windows", overview.windows.test}}},
      {"parameters", overview.parameters},
      {"steps", result.steps},
      {"best_step", result.best_step},
      {"best_valid_loss", result.best_valid_loss},
      {"train_s", result.train_s},
      {"total_s", summary.total_s},
      {"steps_per_s", ratio(static_cast<double>(result.steps), result.train_s)},
      {"samples_per_s", ratio(static_cast<double>(result.windows), result.train_s)},
      {"loader_share", ratio(result.loader_wait_s, result.train_s)}};
  document.update(memory_json(summary));
  document["scores"] = scores_json(summary.scores);
  return document;
}

void write_summary(const std::filesystem::path& run, const RunSummary& summary) {
  if (const auto& step = summary.result.planned_step) {
    write_file_atomically(run / "plan.json", to_json(step->solution.plan, step->graph,
                                                     summary.options.memory_budget_bytes));
  }
  write_file_atomically(run / "summary.json", summary_json(summary).dump(2) + "\n");
}

}  // namespace reprise
