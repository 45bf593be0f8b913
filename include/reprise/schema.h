// SPDX-License-Identifier: Apache-2.0
/// What the columns of a table mean, and everything learnt from its training rows: the part of a
/// model that is not weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace reprise {

/// Where the center and scale of a real variable come from.
enum class Normalization {
  kSeries,  ///< mean and standard deviation of each series' training rows
  kWindow,  ///< as kSeries, then mean and standard deviation of each window's encoder part
  kGlobal,  ///< mean and standard deviation over all series' training rows
  kNone,
};

/// Which columns to use and how to cut the table. What is left empty is inferred (and can be read
/// in the `Schema`).
struct DataOptions {
  std::string time;  ///< timestamp, date or integer step
  std::vector<std::string>
      id;  ///< columns that together name a series; empty: the whole table is one series
  std::vector<std::string>
      target;  ///< several: each becomes a series of its own, told apart by a static category
  std::vector<std::string> static_columns;  ///< constant within a series
  std::vector<std::string> known;           ///< known for the future too
  std::vector<std::string> observed;  ///< known for the past only; the target is always among them
  bool infer = true;  ///< columns not named above get a role; false: they are left out
  std::vector<std::string>
      calendar;  ///< of hour, weekday, monthday, month, or auto, none; known categoricals
  std::vector<std::int64_t>
      lags;  ///< the target this many steps earlier, as a known real; each >= horizon
  Normalization normalize = Normalization::kSeries;
  std::int64_t encoder_length = 168;  ///< in samples
  std::int64_t horizon = 24;          ///< in samples
  double valid_fraction = 0.15;       ///< of each series' rows, before the test rows
  double test_fraction = 0.15;        ///< of each series' rows, at the end
  std::string train_until;  ///< first time that is not a training row; with `valid_until` instead
                            ///< of fractions
  std::string valid_until;  ///< first time that is not a validation row
  std::string test_until;   ///< first time that is not a test row; empty: all rows are used

  /// Throws `OptionError` naming the first field out of range.
  void validate() const;
};

enum class TimeUnit { kStep, kDay, kSecond, kMillisecond, kMicrosecond, kNanosecond };

/// Center and scale: `normalised = (raw - center) / scale`.
struct Scaler {
  double center = 0.0;
  double scale = 1.0;
};

struct RealVariable {
  std::string name;
  Scaler global;  ///< of all training rows: for kGlobal, and for series not seen in training
  std::map<std::string, Scaler> series;  ///< by series key; empty unless per series
};

struct CategoricalVariable {
  std::string name;
  std::vector<std::string>
      vocabulary;  ///< code i + 1 is vocabulary[i]; code 0 is a value not seen in training

  std::int64_t cardinality() const { return static_cast<std::int64_t>(vocabulary.size()) + 1; }
};

/// Variables of one role.
struct VariableGroup {
  std::vector<RealVariable> real;
  std::vector<CategoricalVariable> categorical;
};

/// Roles, vocabularies, scalers and frequency of a data set: what `schema.json` holds.
struct Schema {
  DataOptions options;  ///< resolved: nothing left to infer
  TimeUnit time_unit = TimeUnit::kStep;
  std::string time_zone;  ///< of the time column; empty: none
  std::int64_t frequency =
      1;  ///< distance of two samples, in `time_unit`; calendar months count as negative months
  RealVariable target;  ///< scalers by series key
  VariableGroup static_variables;
  VariableGroup known;     ///< calendar and lag variables included
  VariableGroup observed;  ///< real[0] is the past target

  std::string to_json() const;
  /// Throws `DataError` naming the first key that is missing or wrong.
  static Schema from_json(const std::string& text);
};

}  // namespace reprise
