// The list of harnesses, and the writer of their findings.
#include "accuracy/accuracy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::accuracy {

const std::vector<Harness>& accuracy_harnesses() {
  static const std::vector<Harness> list = {error_harness(),
                                            range_harness(),
                                            batchnorm_drift_harness(),
                                            training_harness(),
                                            convergence_harness(),
                                            accumulation_harness(),
                                            quantization_harness(),
                                            sanity_harness(),
                                            dtypes_harness(),
                                            same_bits_harness(),
                                            conversion_harness(),
                                            capacity_harness(),
                                            traffic_harness(),
                                            summation_harness(),
                                            loss_scale_harness(),
                                            underflow_harness(),
                                            reduction_harness(),
                                            row_statistics_harness(),
                                            mask_harness(),
                                            batchnorm_statistics_harness(),
                                            mantissa_harness(),
                                            all_reduce_harness(),
                                            cast_cache_harness(),
                                            cast_lists_harness(),
                                            evaluation_harness(),
                                            batch_invariance_harness(),
                                            checkpointing_harness(),
                                            what_if_harness(),
                                            updates_harness(),
                                            overflow_harness(),
                                            sensitivity_harness(),
                                            lint_harness()};
  return list;
}

Axis fused_axis() {
  return {.name = kFusedAxis,
          .values = {"off", "on"},
          .about = "neighbouring operations in one kernel, where the device has one"};
}

void expect_fused(const TrialSpec& spec, const KernelLog& log) {
  if (!spec.settings.fused) return;
  constexpr std::string_view kFused[] = {FusedMatmul::name,      FusedMatmulBackward::name,     FusedConv2d::name,
                                         FusedBatchNorm::name,   FusedBatchNormBackward::name,  CastTensors::name,
                                         AddNormalizeRows::name, NormalizeRowsBackwardAdd::name};
  for (const LoggedKernel& one : log.entries())
    if (std::ranges::find(kFused, one.operation) != std::end(kFused)) return;
  throw Unsupported("fused=on: " + spec.subject->id() + " has no operations that can be fused under " +
                    std::string(spec.policy->name));
}

std::optional<std::string> settled_value(const Axis& axis, std::string_view text) {
  if (std::find(axis.values.begin(), axis.values.end(), text) != axis.values.end()) return std::string(text);
  if (!axis.numbers) return {};
  const auto& [least, most, is_whole] = *axis.numbers;
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return {};
  if (!(least <= number && number <= most) || (is_whole && number != std::floor(number))) return {};
  return is_whole ? fmt::format("{}", static_cast<int64_t>(number)) : fmt::format("{}", number + 0.0);  // -0 is 0
}

std::string numbers_text(const AxisNumbers& numbers) {
  return numbers.is_whole ? fmt::format("a whole number from {:.0f} to {:.0f}", numbers.least, numbers.most)
                          : fmt::format("a number from {:g} to {:g}", numbers.least, numbers.most);
}

std::string values_text(const Axis& axis) {
  return fmt::format("{}{}", fmt::join(axis.values, ", "), axis.numbers ? ", or " + numbers_text(*axis.numbers) : "");
}

std::optional<std::string> refusal_of(const Harness& harness, const TrialSpec& spec) {
  return harness.refuses ? harness.refuses(spec) : std::nullopt;
}

namespace {

template <class Row>
void check_rows(const Harness& harness, const std::vector<Row>& rows) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Row& row : rows) {
    const std::string what =
        "harness " + std::string(harness.name) + ": " + row.metric + (row.at.empty() ? "" : " at " + row.at);
    HM_CHECK(std::any_of(harness.metrics.begin(), harness.metrics.end(),
                         [&](const MetricRow& known) { return known.metric == row.metric; }),
             what + " is not in its table of metrics");
    HM_CHECK(seen.insert({row.metric, row.at}).second, what + " is given twice");
  }
}

}  // namespace

void check_findings(const Harness& harness, const Findings& findings) {
  check_rows(harness, findings.measurements);
  check_rows(harness, findings.series);
  for (const Measurement& one : findings.measurements)
    HM_CHECK(!one.interval || one.interval->lower <= one.interval->upper,
             std::string(harness.name) + ": " + one.metric + ": the interval is not in order, or is NaN");
  for (const Series& series : findings.series)
    HM_CHECK(series.x.size() == series.y.size(),
             std::string(harness.name) + ": " + series.metric + ": x and y differ in length");
}

std::string axis_value(const Harness& harness, const TrialSpec& spec, std::string_view axis) {
  for (const Axis& row : harness.axes) {
    if (row.name != axis) continue;
    const auto named = spec.axes.find(std::string(axis));
    if (named == spec.axes.end()) return std::string(row.values.front());
    const std::optional<std::string> value = settled_value(row, named->second);
    HM_CHECK(value, std::string(harness.name) + ": axis " + std::string(axis) + " has no value '" + named->second +
                        "' (it has " + values_text(row) + ")");
    return *value;
  }
  throw Error(std::string(harness.name) + " has no axis '" + std::string(axis) + "'");
}

const MetricRow& FindingsWriter::row(std::string_view metric) const {
  for (const MetricRow& candidate : table_)
    if (candidate.metric == metric) return candidate;
  throw Error("metric " + std::string(metric) + " is not in the table of its harness");
}

Measurement& FindingsWriter::number(std::string_view metric, std::string at, double value) {
  const MetricRow& what = row(metric);
  Measurement measurement{.metric = std::string(metric), .at = std::move(at), .value = value};
  measurement.unit = what.unit;
  measurement.better = what.better;
  measurement.kind = what.kind;
  findings_.measurements.push_back(std::move(measurement));
  return findings_.measurements.back();
}

Series& FindingsWriter::curve(std::string_view metric, std::string at, std::vector<double> x, std::vector<double> y) {
  const MetricRow& what = row(metric);
  HM_CHECK(x.size() == y.size(), std::string(metric) + ": x and y differ in length");
  Series series{.metric = std::string(metric), .at = std::move(at), .x = std::move(x), .y = std::move(y)};
  series.y_unit = what.unit;
  findings_.series.push_back(std::move(series));
  return findings_.series.back();
}

}  // namespace halfmark::accuracy
