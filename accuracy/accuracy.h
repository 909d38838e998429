// What a precision costs in accuracy: the table of harnesses. A harness asks one question of a trial and answers with
// named numbers; the metrics it may write are listed with it, so that nobody keeps a second list.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/namespaces.h"
#include "models/trial.h"
#include "reports/record/measurement.h"

namespace halfmark::accuracy {

struct Axis {
  std::string_view name;
  std::vector<std::string_view> values;  // the first is meant when a case does not name the axis
};

// A row of the metrics table: what a number is, so that reports and gates need not guess.
struct MetricRow {
  std::string_view metric, unit;
  Better better;
  Kind kind;
  std::string_view formula;
};

// What must be seen, or the measurement itself is not to be trusted (a negative control).
struct Expect {
  std::string_view metric, at, relation;  // relation: < <= == != >= >
  double limit = 0;
};

struct Harness {
  std::string_view name;
  std::string_view about;  // one line for `halfmark list`
  std::vector<Axis> axes;
  std::vector<MetricRow> metrics;
  std::optional<std::string> (*refuses)(const TrialSpec&);  // nothing = takes it, else why not
  Findings (*measure)(const TrialSpec&);
  std::optional<Expect> (*expects)(const TrialSpec&) = nullptr;
};

// The harnesses of this folder, in the order they are run.
const std::vector<Harness>& accuracy_harnesses();

Harness error_harness();            // error.cpp
Harness range_harness();            // range.cpp
Harness batchnorm_drift_harness();  // batchnorm_drift.cpp
Harness training_harness();         // training.cpp
Harness accumulation_harness();     // accumulation.cpp

// The value of an axis in this trial: what the case names, or the first of the harness. Throws Error for a value not
// listed.
std::string axis_value(const Harness& harness, const TrialSpec& spec, std::string_view axis);

// Writes measurements with unit, direction and kind as the table says; a metric that is not in the table is an Error.
class FindingsWriter {
 public:
  explicit FindingsWriter(const std::vector<MetricRow>& table) : table_(table) {}
  Measurement& number(std::string_view metric, std::string at, double value);
  Series& curve(std::string_view metric, std::string at, std::vector<double> x, std::vector<double> y);
  Findings take() { return std::move(findings_); }

 private:
  const MetricRow& row(std::string_view metric) const;
  const std::vector<MetricRow>& table_;
  Findings findings_;
};

}  // namespace halfmark::accuracy
