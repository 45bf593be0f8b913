// SPDX-License-Identifier: Apache-2.0
// What the program can be told about checkpointing: the tier, and layers by name.
#include "commands.h"
#include "fields.h"
#include "tests/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Pair;

Settings parse(std::vector<const char*> arguments) {
  Settings settings;
  const Program program = {.name = "reprise",
                           .summary = "test",
                           .commands = {train_command(settings), verify_command(settings)}};
  arguments.insert(arguments.begin(), "reprise");
  parse_command_line(program, settings, static_cast<int>(arguments.size()), arguments.data());
  return settings;
}

std::string parse_error(const std::vector<const char*>& arguments) {
  return error_of([&] { parse(arguments); });
}

Field layer_field(Settings& settings) {
  const std::vector<Field> fields = run_fields(settings);
  return *std::find_if(fields.begin(), fields.end(),
                       [](const Field& field) { return field.name == "checkpoint_layer"; });
}

TEST(CheckpointLayer, IsTakenAnyNumberOfTimesByTrainAndVerify) {
  for (const char* command : {"train", "verify"}) {
    const Settings settings =
        parse({command, "--parquet-file", "t", "--checkpointing", "minimal", "--checkpoint-layer",
               "lstm_decoder=off", "--checkpoint-layer=gate=on,quantile=on"});
    EXPECT_EQ(settings.checkpointing, Checkpointing::kMinimal);
    EXPECT_THAT(
        settings.model.checkpoint_layers,
        ElementsAre(Pair("gate", true), Pair("lstm_decoder", false), Pair("quantile", true)));
  }
}

TEST(CheckpointLayer, SaysWhatIsWrongAndWhatIsKnown) {
  const auto error = [](const char* choice) {
    return parse_error({"train", "--parquet-file", "t", "--checkpoint-layer", choice});
  };
  const std::string known = "static_vsn, static_encoder, historical_vsn, historical_encoder, ";
  EXPECT_THAT(error("lstm=on"),
              HasSubstr("--checkpoint-layer: layer 'lstm' is unknown; known: " + known));
  EXPECT_THAT(error("=on"), HasSubstr("layer '' is unknown; known: " + known));
  EXPECT_THAT(error("gate"), HasSubstr("--checkpoint-layer: 'gate' is not gate=on or gate=off"));
  EXPECT_THAT(error("gate=yes"),
              HasSubstr("'gate=yes' is not gate=on or gate=off; known layers: " + known));
  EXPECT_THAT(error("gate=on,gate=off"), HasSubstr("layer 'gate' is given twice"));
}

TEST(CheckpointLayer, IsWrittenAsAListOfTexts) {
  Settings settings;
  const Field field = layer_field(settings);
  EXPECT_EQ(toml_value(field), "");
  EXPECT_EQ(default_text(field), "");
  set_field(field, {"lstm_encoder=on", "gate=off"}, "c.toml: checkpoint_layer");
  EXPECT_EQ(toml_value(field), R"(["gate=off", "lstm_encoder=on"])");
  EXPECT_EQ(default_text(field), "gate=off,lstm_encoder=on");
}

TEST(CheckpointLayer, KeepsItsValueWhenANewOneIsRefused) {
  Settings settings;
  const Field field = layer_field(settings);
  set_field(field, {"gate=on"}, "--checkpoint-layer");
  EXPECT_NE(error_of([&] { set_field(field, {"gate=off", "gat=on"}, "--checkpoint-layer"); }), "");
  EXPECT_THAT(settings.model.checkpoint_layers, ElementsAre(Pair("gate", true)));
}

// Whether the model has static inputs is not known before the table is read.
TEST(Settle, LeavesTheLayersToTheModel) {
  Settings settings;
  settings.model.checkpoint_layers = {{"static_vsn", true}};
  settle(settings);
  EXPECT_THAT(settings.model.checkpoint_layers, ElementsAre(Pair("static_vsn", true)));
}

TEST(VerifyCommand, TakesTheFlagsOfTrainButNoRunFolder) {
  Settings settings;
  const auto names = [](const Command& command) {
    std::vector<std::string> list;
    for (const Field& field : command.fields) list.push_back(field.name);
    return list;
  };
  std::vector<std::string> train = names(train_command(settings));
  std::erase(train, "out");
  EXPECT_EQ(names(verify_command(settings)), train);
  EXPECT_THAT(parse_error({"verify", "--parquet-file", "t", "--out", "run"}),
              HasSubstr("unknown option '--out'"));
}

}  // namespace
}  // namespace reprise
