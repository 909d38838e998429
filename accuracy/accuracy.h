// The table of accuracy harnesses. A harness measures one property of a trial and returns named numbers. The metrics it
// may write are listed with it, so that no second list is needed.
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

// The numbers that an axis takes beside its listed values.
struct AxisNumbers {
  double least = 0, most = 0;
  bool is_whole = false;
};

struct Axis {
  std::string_view name;
  std::vector<std::string_view> values;  // the first is the default
  std::optional<AxisNumbers> numbers{};  // none: the listed values alone
  std::string_view about{};              // one line for `halfmark list`
};

// The value as an id writes it: a listed one unchanged, a number in its shortest form, so that 0.020 is 0.02. Nothing: the
// axis does not take it.
std::optional<std::string> settled_value(const Axis& axis, std::string_view text);
std::string numbers_text(const AxisNumbers& numbers);  // "a whole number from 1 to 1000000"
// "own, 0.001, 0.01, or a number from 0 to 1e+06", for messages.
std::string values_text(const Axis& axis);

// A row of the metrics table: everything that reports and gates need to know about a number.
struct MetricRow {
  std::string_view metric, unit;
  Better better;
  Kind kind;
  std::string_view formula;
};

// The expected effect of a negative control. If it is not observed, the measurement itself cannot be trusted.
struct Expect {
  std::string_view metric, at, relation;  // relation: < <= == != >= >
  double limit = 0;
};

// The axis of `error` and `throughput` for Settings::fused. Case::trial sets it.
inline constexpr std::string_view kFusedAxis = "fused";
Axis fused_axis();
// Throws Unsupported for a trial that fuses, but of whose operations in the log none is fused.
void expect_fused(const TrialSpec& spec, const KernelLog& log);

struct Harness {
  std::string_view name;
  std::string_view about;  // one line for `halfmark list`
  std::vector<Axis> axes;
  std::vector<MetricRow> metrics;
  // The reason for a refusal; nullopt = the trial is accepted, as without this function.
  std::optional<std::string> (*refuses)(const TrialSpec&) = nullptr;
  Findings (*measure)(const TrialSpec&) = nullptr;
  std::optional<Expect> (*expects)(const TrialSpec&) = nullptr;
};

std::optional<std::string> refusal_of(const Harness& harness, const TrialSpec& spec);

// The harnesses of this folder, in the order in which they run.
const std::vector<Harness>& accuracy_harnesses();

Harness error_harness();            // error.cpp
Harness range_harness();            // range.cpp
Harness batchnorm_drift_harness();  // batchnorm_drift.cpp
Harness training_harness();         // training.cpp
Harness convergence_harness();      // convergence.cpp
Harness accumulation_harness();     // accumulation.cpp
Harness quantization_harness();     // quantization.cpp
Harness sanity_harness();           // sanity.cpp
Harness lint_harness();             // lint.cpp
// Experiments: experiments/
Harness dtypes_harness();                // dtypes.cpp
Harness same_bits_harness();             // same_bits.cpp
Harness conversion_harness();            // conversion.cpp
Harness capacity_harness();              // capacity.cpp
Harness traffic_harness();               // traffic.cpp
Harness summation_harness();             // summation.cpp
Harness loss_scale_harness();            // loss_scale.cpp
Harness underflow_harness();             // underflow.cpp
Harness reduction_harness();             // reduction.cpp
Harness row_statistics_harness();        // row_statistics.cpp
Harness mask_harness();                  // mask.cpp
Harness batchnorm_statistics_harness();  // batchnorm_statistics.cpp
Harness mantissa_harness();              // mantissa.cpp
Harness all_reduce_harness();            // all_reduce.cpp
Harness cast_cache_harness();            // cast_cache.cpp
Harness cast_lists_harness();            // cast_lists.cpp

// Experiments on whole models, in experiments/.
Harness evaluation_harness();        // evaluation.cpp
Harness batch_invariance_harness();  // batch_invariance.cpp
Harness checkpointing_harness();     // checkpointing.cpp
Harness what_if_harness();           // what_if.cpp
Harness updates_harness();           // updates.cpp
Harness overflow_harness();          // overflow.cpp
Harness sensitivity_harness();       // sensitivity.cpp

// Throws Error for a number or curve that the harness does not list, or that it writes twice for one place, and for what a
// report cannot hold: an interval with a NaN, a curve with more x than y.
void check_findings(const Harness& harness, const Findings& findings);

// The value of an axis in this trial: the one that the case names, or the harness's default. Throws Error for a value
// that the harness does not take.
std::string axis_value(const Harness& harness, const TrialSpec& spec, std::string_view axis);

// Writes measurements with unit, direction and kind from the table. Throws Error for a metric that is not in the table.
class FindingsWriter {
 public:
  explicit FindingsWriter(const std::vector<MetricRow>& table) : table_(table) {}
  Measurement& number(std::string_view metric, std::string at, double value);
  Series& curve(std::string_view metric, std::string at, std::vector<double> x, std::vector<double> y);
  void lint(LintFinding finding) { findings_.lint.push_back(std::move(finding)); }
  Findings take() { return std::move(findings_); }

 private:
  const MetricRow& row(std::string_view metric) const;
  const std::vector<MetricRow>& table_;
  Findings findings_;
};

}  // namespace halfmark::accuracy
