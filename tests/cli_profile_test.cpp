// SPDX-License-Identifier: Apache-2.0
// What `profile` prints of figures that are given.
#include "profile_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProfileSubject subject() {
  ProfileSubject subject = {.file = "sales.parquet", .windows_per_pass = 50, .threads = 2};
  subject.model.checkpointing = Checkpointing::kMinimal;
  subject.model.checkpoint_layers = {{"gate", true}};
  return subject;
}

TrainingProfile profile() {
  TrainingProfile profile;
  profile.batch_size = 50;
  profile.checkpointing = Checkpointing::kMinimal;
  profile.layers = {{.name = "lstm_encoder",
                     .plain_bytes = 8'000'000,
                     .kept_bytes = 500'000,
                     .forward_ms = 4.0,
                     .recompute_ms = 2.5,
                     .is_checkpointed = true,
                     .reason = "tier minimal"},
                    {.name = "between layers",
                     .plain_bytes = 2'000'000,
                     .kept_bytes = 2'000'000,
                     .forward_ms = 1.0,
                     .reason = "no layer"}};
  profile.plain_step_ms = 50.0;
  profile.step_ms = 55.0;
  profile.start_bytes = 3'000'000;
  profile.peak_bytes = 20'000'000;
  profile.average_bytes = 12'500'000.0;
  profile.out_of_memory_events = 1'234;
  profile.at_peak.bytes = {4'000'000, 2'000'000, 6'000'000, 1'000'000, 5'000'000, 0, 2'000'000};
  profile.at_peak.saved_by_layer = {{"", 1'000'000}, {"lstm_encoder", 4'000'000}};
  profile.peak_phase = "backward";
  profile.peak_ms = 31.25;
  profile.outside_ledger_bytes = 210'000'000;
  return profile;
}

// 7.5 MB in 2.5 of 50 ms, 5 %: 1.5 MB for each percent. 8 MB of 50 windows: 160 kB each.
TEST(ProfileText, HasARowPerLayerAndTheirSum) {
  EXPECT_THAT(
      profile_text(subject(), profile()),
      HasSubstr(
          "layer           saved [MB]  per window [kB]  kept if recomputed [MB]  forward [ms]  "
          "recompute [ms]  MB per 1 % of the step  recomputed  why\n"
          "lstm_encoder           8.0            160.0                      0.5          4.00  "
          "          2.50                     1.5  yes         tier minimal\n"
          "between layers         2.0             40.0                      2.0          1.00  "
          "          0.00                       -  no          no layer\n"
          "all                   10.0            200.0                      2.5\n"));
}

TEST(ProfileText, AddsTheCategoriesUpToThePeak) {
  EXPECT_THAT(profile_text(subject(), profile()), HasSubstr("memory at the peak    MB      %\n"
                                                            "parameters           4.0   20.0\n"
                                                            "gradients            2.0   10.0\n"
                                                            "optimizer state      6.0   30.0\n"
                                                            "batch data           1.0    5.0\n"
                                                            "saved activations    5.0   25.0\n"
                                                            "recompute buffers    0.0    0.0\n"
                                                            "temporaries          2.0   10.0\n"
                                                            "all                 20.0  100.0\n"
                                                            "\n"
                                                            "saved activations at the peak   MB  "
                                                            "   %\n"
                                                            "outside every layer            1.0  "
                                                            "20.0\n"
                                                            "lstm_encoder                   4.0  "
                                                            "80.0\n"));
}

TEST(ProfileText, SaysWhatWasMeasured) {
  const std::string text = profile_text(subject(), profile());
  EXPECT_THAT(text, StartsWith("Profile of sales.parquet: encoder 168, horizon 24, hidden 64, "
                               "batch 50 windows, checkpointing minimal, gate=on, 2 "
                               "threads\n\n"));
  EXPECT_THAT(text, EndsWith("Peak     20.0 MB, in backward, 31.2 ms after the step began\n"
                             "Average  12.5 MB over the step; 3.0 MB before it\n"
                             "Outside  210.0 MB of resident memory that is no tensor's: code, the "
                             "table, scratch memory of libraries\n"
                             "Refused  1,234 allocations\n"
                             "Step     50.0 ms without recomputation, 55.0 ms as asked for (+10.0 "
                             "%)\n"));
}

TEST(ProfileText, CountsBytesPerWindowOfAPass) {
  ProfileSubject passes = subject();
  passes.windows_per_pass = 25;
  const std::string text = profile_text(passes, profile());
  EXPECT_THAT(text, HasSubstr("batch 50 windows in passes of 25, "));
  EXPECT_THAT(text, HasSubstr("  320.0  "));  // 8 MB / 25
}

TEST(ProfileJson, HoldsBytesAsTheyAre) {
  const json document = json::parse(profile_json(subject(), profile()).dump());
  EXPECT_EQ(document["layers"][0]["bytes_per_window"], 160'000.0);
  EXPECT_EQ(document["layers"][0]["saved_bytes"], 7'500'000);
  EXPECT_EQ(document["layers"][0]["recomputed"], true);
  EXPECT_EQ(document["layers"][1]["megabytes_per_percent"], nullptr);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : document["at_peak"].items()) {
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(sum, 20'000'000);
  EXPECT_EQ(document["at_peak"]["saved_activations"], 5'000'000);
  EXPECT_EQ(document["saved_by_layer"]["lstm_encoder"], 4'000'000);
  EXPECT_EQ(document["peak_phase"], "backward");
  EXPECT_EQ(document["checkpoint_layer"], json({"gate=on"}));
}

}  // namespace
}  // namespace reprise
