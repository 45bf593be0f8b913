// SPDX-License-Identifier: Apache-2.0
#include "scores.h"

#include "table.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace reprise {
namespace {

constexpr int kRiskDecimals = 4;
constexpr int kCoverageDecimals = 1;

}  // namespace

std::string score_table(const std::vector<Score>& scores) {
  if (scores.empty()) {
    return "";
  }
  std::vector<std::string> header = {"forecaster"};
  for (const double quantile : scores.front().quantiles) {
    header.push_back("q-risk " + format_quantile(quantile));
  }
  for (const double quantile : scores.front().quantiles) {
    header.push_back("coverage " + format_quantile(quantile) + " [%]");
  }
  Table table(std::move(header));
  for (const Score& score : scores) {
    std::vector<std::string> row = {score.name};
    for (const double risk : score.q_risk) {
      row.push_back(format_fixed(risk, kRiskDecimals));
    }
    for (const double coverage : score.coverage) {
      row.push_back(format_fixed(coverage * 100.0, kCoverageDecimals));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string baseline_warning(const std::vector<Score>& scores) {
  const auto naive = std::find_if(scores.begin(), scores.end(), [](const Score& score) {
    return score.name.rfind("seasonal naive", 0) == 0;
  });
  if (scores.empty() || naive == scores.end()) {
    return "";
  }
  const Score& model = scores.front();
  std::vector<std::string> worse;
  for (std::size_t i = 0; i < std::min(model.q_risk.size(), naive->q_risk.size()); ++i) {
    if (model.q_risk[i] > naive->q_risk[i]) {
      worse.push_back(format_quantile(model.quantiles[i]) + " (" +
                      format_fixed(model.q_risk[i], kRiskDecimals) + " against " +
                      format_fixed(naive->q_risk[i], kRiskDecimals) + ")");
    }
  }
  return worse.empty() ? ""
                       : "the model is worse than " + naive->name + " in q-risk at " + join(worse) +
                             "; it needs more training, or more data than there is";
}

nlohmann::ordered_json scores_json(const std::vector<Score>& scores) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Score& score : scores) {
    list.push_back({{"name", score.name},
                    {"quantiles", score.quantiles},
                    {"q_risk", score.q_risk},
                    {"coverage", score.coverage}});
  }
  return list;
}

}  // namespace reprise
