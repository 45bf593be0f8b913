// SPDX-License-Identifier: Apache-2.0
#include "batch_choice.h"
#include "commands.h"
#include "json_text.h"
#include "prepare.h"
#include "profile_table.h"
#include "report/chrome_trace.h"
#include "reprise/errors.h"
#include "reprise/training_profile.h"
#include "store/atomic_file.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <system_error>

namespace reprise {
namespace {

// Before anything is measured: a slip of the name must cost neither the table nor the time.
void check_trace_file(const Settings& settings) {
  if (settings.trace.empty()) {
    return;
  }
  const auto refuse = [&](const std::string& why) {
    throw OptionError("trace", "--trace: " + settings.trace + " " + why + "; name another file");
  };
  const std::filesystem::path trace = settings.trace;
  std::error_code error;
  for (const std::string& input : {settings.parquet_file, settings.config}) {
    if (!input.empty() && std::filesystem::equivalent(trace, input, error)) {
      refuse("is an input");
    }
  }
  const std::filesystem::file_status status = std::filesystem::status(trace, error);
  if (std::filesystem::is_directory(status)) {
    refuse("is a folder");
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    refuse("is no regular file");
  }
  const std::filesystem::path folder = trace.has_parent_path() ? trace.parent_path() : ".";
  if (!trace.has_filename() || !std::filesystem::is_directory(folder, error)) {
    refuse("lies in no folder that is there");
  }
}

int run_profile(Settings& settings, Terminal& terminal) {
  settle(settings);
  require_cpu(settings, "profile");
  check_table_file(settings.parquet_file);
  check_trace_file(settings);
  PreparedData data = prepare_data(settings);
  const std::string batch_size_text = resolve_batch_size(data);
  const TrainingProfile profile =
      profile_training(data.settings.model, data.dataset, data.settings.train);
  const ProfileSubject subject = {.file = data.overview.file,
                                  .model = data.settings.model,
                                  .windows_per_pass = pass_size(data.settings.train),
                                  .threads = at::get_num_threads()};
  nlohmann::ordered_json document = profile_json(subject, profile);
  terminal.result(batch_size_text + profile_text(subject, profile));
  if (!settings.trace.empty()) {
    write_file_atomically(settings.trace, detail::chrome_trace(*profile.timeline));
    terminal.result("Trace    " + settings.trace + ": open it in https://ui.perfetto.dev\n");
    document["trace"] = settings.trace;
  }
  terminal.json(json_text(document));
  return kExitDone;
}

}  // namespace

Command profile_command(Settings& settings) {
  std::vector<Field> fields = training_fields(settings);
  fields.push_back({"trace",
                    "FILE",
                    "write what happened to memory in the step, for Perfetto or chrome://tracing",
                    &settings.trace,
                    {},
                    {},
                    false});
  return {.name = "profile",
          .summary = "Measure what a training step does with memory and time, layer by layer",
          .example =
              "reprise profile --parquet-file sales.parquet --target sales --checkpointing "
              "aggressive --trace step.json",
          .fields = std::move(fields),
          .positionals = {},
          .required = {"parquet_file"},
          .run = run_profile};
}

}  // namespace reprise
