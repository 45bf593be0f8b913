// SPDX-License-Identifier: Apache-2.0
/// What is known of a table and a model before training: roles, lengths, windows, findings, size.
#pragma once

#include "reprise/dataset.h"

#include "settings.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

/// Distance of two samples for people: "1 h", "15 min", "3 months", "1 step".
std::string frequency_text(const Schema& schema);

/// The tier, then the layers that differ from it: "minimal, lstm_decoder=off".
std::string checkpointing_text(const TftOptions& model);

/// How many windows each split has.
struct WindowCounts {
  std::int64_t train = 0;
  std::int64_t valid = 0;
  std::int64_t test = 0;
};

struct Overview {
  std::string file;
  std::int64_t rows = 0;
  std::int64_t series = 0;
  Schema schema;  ///< with options resolved
  std::vector<std::string> static_names;
  std::vector<std::string> historical_names;
  std::vector<std::string> future_names;
  WindowCounts windows;  ///< training and validation at every sample, test every horizon
  std::vector<AuditFinding> findings;
  TftOptions model;                      ///< resolved
  std::int64_t parameters = 0;           ///< 0: not counted
  std::int64_t memory_budget_bytes = 0;  ///< 0: none
};

Overview describe(const std::string& file, const Dataset& dataset, const TftOptions& model);

std::string overview_text(const Overview& overview);
nlohmann::ordered_json overview_json(const Overview& overview);

/// One line per finding, and what is done about it.
std::string findings_text(const std::vector<AuditFinding>& findings);
nlohmann::ordered_json findings_json(const std::vector<AuditFinding>& findings);

}  // namespace reprise
