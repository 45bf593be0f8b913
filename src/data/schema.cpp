// SPDX-License-Identifier: Apache-2.0
#include "reprise/schema.h"

#include "data/schema_text_internal.h"
#include "data/text_internal.h"
#include "data/time_axis_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace reprise {
namespace {

[[noreturn]] void fail(const std::string& field, const std::string& message) {
  throw OptionError(field, field + ": " + message);
}

void check_distinct(const std::string& field, const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (name.empty()) fail(field, "an empty column name");
    if (!seen.insert(name).second) fail(field, "'" + name + "' is named twice");
  }
}

/// One column, one role; but an id may be static, and the target is always observed.
void check_roles(const DataOptions& options) {
  std::set<std::string> taken = {options.time};
  const auto take = [&](const std::string& field, const std::vector<std::string>& names) {
    check_distinct(field, names);
    for (const auto& name : names) {
      if (!taken.insert(name).second) fail(field, "column '" + name + "' already has another role");
    }
  };
  const auto without = [](std::vector<std::string> names, const std::vector<std::string>& others) {
    std::erase_if(names, [&](const auto& name) {
      return std::find(others.begin(), others.end(), name) != others.end();
    });
    return names;
  };
  take("id", options.id);
  take("target", options.target);
  check_distinct("static_columns", options.static_columns);
  check_distinct("observed", options.observed);
  check_distinct("categorical", options.categorical);
  take("static_columns", without(options.static_columns, options.id));
  take("known", options.known);
  take("observed", without(options.observed, options.target));
}

void check_splits(const DataOptions& options) {
  const auto check_fraction = [](const std::string& field, double value) {
    if (!(value >= 0.0 && value < 1.0)) {
      fail(field, "is " + std::to_string(value) + ", must be at least 0 and below 1");
    }
  };
  check_fraction("valid_fraction", options.valid_fraction);
  check_fraction("test_fraction", options.test_fraction);
  if (options.valid_fraction + options.test_fraction >= 1.0) {
    fail("valid_fraction", "with test_fraction it leaves no training rows");
  }
  if (options.train_until.empty() != options.valid_until.empty()) {
    fail(options.train_until.empty() ? "train_until" : "valid_until",
         "is missing: train_until and valid_until go together");
  }
  if (!options.test_until.empty() && options.train_until.empty()) {
    fail("test_until", "needs train_until and valid_until");
  }
}

void check_calendar(const std::vector<std::string>& calendar) {
  const auto& known = detail::calendar_names();
  for (const auto& name : calendar) {
    const bool is_word = name == "auto" || name == "none";
    if (is_word && calendar.size() > 1) fail("calendar", "'" + name + "' stands alone");
    if (!is_word && std::find(known.begin(), known.end(), name) == known.end()) {
      fail("calendar",
           "'" + name + "' is none of " + detail::list_of(known) + ", 'auto' and 'none'");
    }
  }
  check_distinct("calendar", calendar);
}

}  // namespace

void DataOptions::validate() const {
  check_roles(*this);
  if (!infer && time.empty()) fail("time", "must be named when nothing is inferred");
  if (!infer && target.empty()) fail("target", "must be named when nothing is inferred");
  check_calendar(calendar);
  // Rows and windows are counted in 32 bits.
  constexpr std::int64_t kMost = 1 << 24;
  if (encoder_length < 1 || encoder_length > kMost) {
    fail("encoder_length", "is " + std::to_string(encoder_length) + ", must be 1 to 16777216");
  }
  if (horizon < 1 || horizon > kMost) {
    fail("horizon", "is " + std::to_string(horizon) + ", must be 1 to 16777216");
  }
  std::set<std::int64_t> seen;
  for (const std::int64_t lag : lags) {
    if (lag < horizon || lag > kMost) {
      fail("lags", "lag " + std::to_string(lag) + " must be at least the horizon, " +
                       std::to_string(horizon) +
                       ", for a nearer target is not known at the forecast's end");
    }
    if (!seen.insert(lag).second) fail("lags", std::to_string(lag) + " is named twice");
  }
  check_splits(*this);
}

std::string join_key(const std::vector<std::string>& parts) {
  std::string key;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) key += '/';
    for (const char c : parts[i]) {
      if (c == '/' || c == '\\') key += '\\';
      key += c;
    }
  }
  return key;
}

namespace detail {

const std::vector<std::string>& normalization_names() {
  static const std::vector<std::string> kNames = {"series", "window", "global", "none"};
  return kNames;
}

const std::vector<std::string>& time_unit_names() {
  static const std::vector<std::string> kNames = {"step",        "day",         "second",
                                                  "millisecond", "microsecond", "nanosecond"};
  return kNames;
}

}  // namespace detail
}  // namespace reprise
