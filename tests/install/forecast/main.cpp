// SPDX-License-Identifier: Apache-2.0
/// Reads a table and forecasts one batch with an untrained model of the installed library; prints
/// "forecast: [2, 3, 3]".
#include <reprise/dataset.h>
#include <reprise/tft.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <span>

int main() {
  {
    std::ofstream table("series.csv");
    table << "step,value\n";
    for (int step = 0; step < 100; ++step) table << step << ',' << std::sin(0.3 * step) << '\n';
  }
  const auto dataset = reprise::Dataset::fit(
      "series.csv", {.time = "step", .target = {"value"}, .encoder_length = 8, .horizon = 3});
  reprise::TftOptions options{
      .encoder_length = 8, .horizon = 3, .hidden_size = 8, .attention_heads = 2};
  dataset.describe(options);
  reprise::TemporalFusionTransformer model(options);
  const auto windows = dataset.windows(reprise::Split::kTrain);
  const auto batch = dataset.gather(std::span(windows).first(2));
  std::cout << "forecast: " << model->forward(batch.input).sizes() << '\n';  // [B, H, Q]
}
