// SPDX-License-Identifier: Apache-2.0
/// The model beside the baselines, as a table, as a warning and as JSON.
#pragma once

#include "reprise/trainer.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace reprise {

/// One row per forecaster: q-risk and coverage at every quantile.
std::string score_table(const std::vector<Score>& scores);

/// What to say when the model (the first score) has a higher q-risk than seasonal naive at some
/// quantile; else "".
std::string baseline_warning(const std::vector<Score>& scores);

/// A list of objects with name, quantiles, q_risk and coverage; null where a figure does not exist.
nlohmann::ordered_json scores_json(const std::vector<Score>& scores);

}  // namespace reprise
