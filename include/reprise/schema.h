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
///
/// Inferred: `time`, the only date or timestamp, or a column of a usual name (time, date, ds, t,
/// ...); `id`, a column of a usual name (id, series, unique_id, ...) or of text that makes the
/// times unique; `target`, a column named target, y or value, or the only number left; then by the
/// prefixes static_, known_ and observed_, else static if constant within every series, known if it
/// has values in rows after the last known target, observed otherwise. A column that is the same in
/// all rows is left out. An id column is a static category too where `static_columns` names it, or
/// where nothing static was named or found.
struct DataOptions {
  std::string time;  ///< timestamp, date or integer step
  /// Columns that together name a series; empty: the whole table is one series.
  std::vector<std::string> id;
  /// Several: each becomes a series of its own, told apart by a static category.
  std::vector<std::string> target;
  std::vector<std::string> static_columns;  ///< constant within a series
  std::vector<std::string> known;           ///< known for the future too
  std::vector<std::string> observed;  ///< known for the past only; the target is always among them
  /// Columns of numbers that are categories; text and booleans always are.
  std::vector<std::string> categorical;
  bool infer = true;  ///< columns not named above get a role; false: they are left out
  /// Of hour, weekday, monthday, month, or auto (as if empty: those that suit the frequency), none;
  /// known categoricals.
  std::vector<std::string> calendar;
  /// The target this many steps earlier, as a known real; each >= horizon.
  std::vector<std::int64_t> lags;
  Normalization normalize = Normalization::kSeries;
  std::int64_t encoder_length = 168;  ///< in samples
  std::int64_t horizon = 24;          ///< in samples
  double valid_fraction = 0.15;       ///< of each series' rows, before the test rows
  double test_fraction = 0.15;        ///< of each series' rows, at the end
  /// First time that is not a training row; with `valid_until` instead of fractions. An integer
  /// step, or an ISO 8601 date or time (without offset: in the column's zone).
  std::string train_until;
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

  friend bool operator==(const Scaler&, const Scaler&) = default;
};

struct RealVariable {
  std::string name;
  Scaler global;  ///< of all training rows: for kGlobal, and for series not seen in training
  std::map<std::string, Scaler>
      series;  ///< by `join_key` of the id values; empty unless per series

  friend bool operator==(const RealVariable&, const RealVariable&) = default;
};

struct CategoricalVariable {
  std::string name;
  std::vector<std::string>
      vocabulary;  ///< code i + 1 is vocabulary[i]; code 0 is a value not seen in training

  std::int64_t cardinality() const { return static_cast<std::int64_t>(vocabulary.size()) + 1; }

  friend bool operator==(const CategoricalVariable&, const CategoricalVariable&) = default;
};

/// Variables of one role.
struct VariableGroup {
  std::vector<RealVariable> real;
  std::vector<CategoricalVariable> categorical;

  friend bool operator==(const VariableGroup&, const VariableGroup&) = default;
};

/// Roles, vocabularies, scalers and frequency of a data set: what `schema.json` holds.
struct Schema {
  DataOptions options;  ///< resolved: nothing left to infer
  TimeUnit time_unit = TimeUnit::kStep;
  std::string time_zone;  ///< of the time column; empty: none
  std::int64_t frequency =
      1;  ///< distance of two samples, in `time_unit`; calendar months count as negative months
  bool wall_clock = false;  ///< samples are counted on the wall clock of `time_zone`, so a day may
                            ///< have 23 or 25 h
  bool month_end = false;   ///< samples lie on the last day of a month
  /// Scalers by `join_key` of the series key. With several targets each target column's own
  /// statistics over all series stand under its name alone: for kGlobal, and for series not seen in
  /// training.
  RealVariable target;
  VariableGroup
      static_variables;  ///< `options.static_columns` (static reals are always scaled over all
                         ///< series), then, with several targets, the categorical "target"
  VariableGroup known;   ///< `options.known`, then the lags (reals) and the calendar (categoricals)
  VariableGroup observed;  ///< real[0] is the past target

  std::string to_json() const;
  /// Throws `DataError` naming the first key that is missing or wrong.
  static Schema from_json(const std::string& text);
};

/// One string for a series key: its parts joined by '/', with '/' and '\\' in a part escaped by
/// '\\'.
std::string join_key(const std::vector<std::string>& parts);

}  // namespace reprise
