// The row_statistics harness: the sum of squares of a row, which layer norm, RMS norm and weight norm need, in the policy's low
// format or in fp32, by the width of the row and the size of its values. The subject says which norm.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr std::array kWidths = {64, 256, 1024, 4096, 16384, 65536};
constexpr std::array kMagnitudes = {1e-4, 3e-4, 1e-3, 3e-3,  0.01,  0.03, 0.1, 0.3, 1.0,
                                    3.0,  10.0, 30.0, 100.0, 300.0, 1e3,  3e3, 1e4};
constexpr double kCentre = 1;  // the magnitude from which the safe region is sought, up and down
constexpr double kSafe =
    0x1p-9;  // the limit of the relative error of a length that S2-5 sets: 4 units of fp16's roundoff

const std::vector<MetricRow>& row_table() {
  static const std::vector<MetricRow> rows = {
      {"row_statistics.error", "1", Better::lower, Kind::bounded,
       "over the standard deviation of the values, at WAY/width=N: |length - exact| / exact, infinite if it is "
       "infinite or 0. "
       "length: root of the mean of squares (layer norm: of x - mean; weight norm: of the sum). exact: fp64 of the "
       "values as "
       "stored. WAY is low_sum: added and stored in the low format; low_result: added in fp32, stored in the low "
       "format; fp32; "
       "policy: fp32 if the policy computes the norm in fp32, otherwise low_sum"},
      {"row_statistics.nonfinite", "1", Better::lower, Kind::bounded,
       "at WAY: share of the pairs of width and standard deviation whose sum of squares is infinite or NaN"},
      {"row_statistics.vanished", "1", Better::lower, Kind::bounded, "at WAY: likewise, whose length is stored as 0"},
      {"row_statistics.safe_from", "1", Better::lower, Kind::bounded,
       "over the width at WAY: least standard deviation from which on up to 1 every error is at most 2^-9; infinite: "
       "none"},
      {"row_statistics.safe_to", "1", Better::higher, Kind::bounded,
       "over the width at WAY: largest standard deviation up to which from 1 on every error is at most 2^-9; 0: none"},
      {"row_statistics.safe_widths", "1", Better::higher, Kind::bounded,
       "at WAY: share of the widths that have a safe region"},
      {"row_statistics.pairs", "1", Better::neither, Kind::information, "pairs of width and standard deviation"},
      {"row_statistics.epsilon", "1", Better::neither, Kind::information,
       "at WAY: epsilon as the format of the sum stores it"},
      {"row_statistics.zero_row_nan", "1", Better::lower, Kind::bounded,
       "at WAY: 1 if a row of zeros becomes NaN: 0 / sqrt(0 + epsilon) with an epsilon that is stored as 0"},
      {"row_statistics.output_error", "1", Better::lower, Kind::bounded,
       "over the standard deviation at width=N: root of the nmse of the device's norm of a row in the low dtype"},
      {"row_statistics.output_nonfinite", "1", Better::lower, Kind::bounded,
       "share of the pairs for which the device's norm has an infinite or NaN value"},
      {"row_statistics.unsupported", "1", Better::lower, Kind::information,
       "1: the device has no row for the operation"},
  };
  return rows;
}

// What a norm divides by.
struct RowStatistic {
  std::string_view operation;  // in the cast rules
  bool centred = false, summed = false;
};

std::optional<RowStatistic> statistic_of(const Subject& subject) {
  if (subject.name == "layernorm") return RowStatistic{"layer_norm", true, false};
  if (subject.name == "rmsnorm") return RowStatistic{"rms_norm", false, false};
  if (subject.name == "linear" && subject.sizes.ends_with("_w1")) return RowStatistic{"norm", false, true};
  return {};
}

// Standard normal numbers for each width.
using StandardRows = std::map<int, std::vector<double>>;
StandardRows draw_rows(const TrialSpec& spec) {
  StandardRows rows;
  for (const int width : kWidths) {
    const RandomKey key = RandomKey(spec.seed).child("row_statistics").child(static_cast<uint64_t>(width));
    for (int i = 0; i < width; ++i) rows[width].push_back(key.normal(static_cast<uint64_t>(i)));
  }
  return rows;
}

std::vector<double> row_of_size(const TrialSpec& spec, const StandardRows& rows, int width, double magnitude) {
  std::vector<double> row = rows.at(width);
  for (double& value : row) value *= magnitude;
  return stored_as(*spec.device, spec.policy->low, row);
}

// A way to add, and the dtype in which it stores what it computes.
struct RowWay {
  std::string name;
  SumKind sum;
  DType dtype;  // of the values that are added
  DType result() const { return sum.stores_low ? dtype : DType::f32; }
};

struct Squares {
  double sum = 0, length = 0;
};

// As an implementation would: mean, differences, squares, each rounded to the way's dtype.
Squares squares_by(const TrialSpec& spec, const RowWay& way, const RowStatistic& norm, std::vector<double> x) {
  Device& device = *spec.device;
  const auto width = static_cast<double>(x.size());
  if (norm.centred) {
    const std::vector<double> ones(x.size(), 1);
    const double mean =
        stored_as(device, way.result(), sum_of_products(device, way.dtype, way.dtype, way.sum, x, ones) / width);
    for (double& value : x) value -= mean;
  }
  x = stored_as(device, way.dtype, x);
  const double sum = sum_of_products(device, way.dtype, way.dtype, way.sum, x, x);
  const double divided = norm.summed ? sum : stored_as(device, way.result(), sum / width);
  return {sum, std::sqrt(divided)};
}

double exact_length(const RowStatistic& norm, const std::vector<double>& x) {
  const auto width = static_cast<double>(x.size());
  const double mean = norm.centred ? std::accumulate(x.begin(), x.end(), 0.0) / width : 0;
  double sum = 0;
  for (const double value : x) sum += (value - mean) * (value - mean);
  return std::sqrt(norm.summed ? sum : sum / width);
}

// The largest (direction 1) or least (-1) magnitude that is reached from the centre through errors within the limit.
double safe_end(const std::vector<double>& errors, int direction, double none) {
  const auto* centre = std::find(kMagnitudes.begin(), kMagnitudes.end(), kCentre);
  auto i = centre - kMagnitudes.begin();
  double reached = none;
  for (; i >= 0 && i < static_cast<ptrdiff_t>(kMagnitudes.size()) && errors[static_cast<size_t>(i)] <= kSafe;
       i += direction)
    reached = kMagnitudes[static_cast<size_t>(i)];
  return reached;
}

void measure_row_way(const TrialSpec& spec, const StandardRows& rows, const RowWay& way, const RowStatistic& norm,
                     double epsilon, FindingsWriter& out) {
  std::vector<double> widths, from, to;
  double nonfinite = 0, vanished = 0, safe = 0;
  for (const int width : kWidths) {
    std::vector<double> magnitudes, errors;
    for (const double magnitude : kMagnitudes) {
      const std::vector<double> x = row_of_size(spec, rows, width, magnitude);
      const Squares found = squares_by(spec, way, norm, x);
      nonfinite += !std::isfinite(found.sum), vanished += found.length == 0;
      magnitudes.push_back(magnitude);
      errors.push_back(found.length == 0 ? HUGE_VAL : relative_error(found.length, exact_length(norm, x)));
    }
    widths.push_back(width);
    from.push_back(safe_end(errors, -1, HUGE_VAL)), to.push_back(safe_end(errors, 1, 0));
    safe += to.back() > 0;
    out.curve("row_statistics.error", way.name + "/width=" + std::to_string(width), magnitudes, errors);
  }
  constexpr auto kPairs = static_cast<double>(kWidths.size() * kMagnitudes.size());
  out.curve("row_statistics.safe_from", way.name, widths, from),
      out.curve("row_statistics.safe_to", way.name, widths, to);
  out.number("row_statistics.safe_widths", way.name, safe / static_cast<double>(kWidths.size()));
  out.number("row_statistics.nonfinite", way.name, nonfinite / kPairs),
      out.number("row_statistics.vanished", way.name, vanished / kPairs);
  const double stored = stored_as(*spec.device, way.result(), epsilon);
  out.number("row_statistics.epsilon", way.name, stored);
  out.number("row_statistics.zero_row_nan", way.name, std::isnan(0 / std::sqrt(0 + stored)));
}

// The device's norm of a row, with an fp64 reference of the row as stored.
void measure_norm(const TrialSpec& spec, const StandardRows& rows, const RowStatistic& norm, double epsilon,
                  FindingsWriter& out) {
  Device& device = *spec.device;
  const DType low = spec.policy->low;
  double nonfinite = 0;
  for (const int width : kWidths) {
    std::vector<double> magnitudes, errors;
    for (const double magnitude : kMagnitudes) {
      const std::vector<double> x = row_of_size(spec, rows, width, magnitude);
      const Tensor row = Tensor::from(device, {1, width}, low, x), none;
      Tensor y(device, {1, width}, low), inverse(device, {1}, DType::f32);
      Tensor mean = norm.centred ? Tensor(device, {1}, DType::f32) : Tensor();
      run(NormalizeRows{.x = row,
                        .scale = none,
                        .shift = none,
                        .out = y,
                        .mean = mean,
                        .inverse = inverse,
                        .width = width,
                        .centred = norm.centred,
                        .summed = norm.summed,
                        .epsilon = epsilon});
      const double centre = norm.centred ? std::accumulate(x.begin(), x.end(), 0.0) / width : 0;
      const double length = exact_length(norm, x), divisor = std::sqrt(length * length + epsilon);
      double off = 0, size = 0;
      bool finite = true;
      const std::vector<double> values = y.values();
      for (size_t i = 0; i < values.size(); ++i) {
        const double exact = (x[i] - centre) / divisor;
        finite = finite && std::isfinite(values[i]);
        off += (values[i] - exact) * (values[i] - exact), size += exact * exact;
      }
      nonfinite += !finite;
      magnitudes.push_back(magnitude), errors.push_back(finite ? std::sqrt(off / size) : HUGE_VAL);
    }
    out.curve("row_statistics.output_error", "width=" + std::to_string(width), magnitudes, errors);
  }
  out.number("row_statistics.output_nonfinite", "",
             nonfinite / static_cast<double>(kWidths.size() * kMagnitudes.size()));
}

Findings measure_row_statistics(const TrialSpec& spec) {
  const RowStatistic norm = *statistic_of(*spec.subject);
  const double epsilon = std::stod(axis_value(row_statistics_harness(), spec, "epsilon"));
  FindingsWriter out(row_table());
  out.number("row_statistics.pairs", "", static_cast<double>(kWidths.size() * kMagnitudes.size()));
  const DType low = spec.policy->low;
  const StandardRows rows = draw_rows(spec);
  std::vector<RowWay> ways;
  for (const SumKind& kind : kSumKinds) ways.push_back({std::string(kind.name), kind, low});
  ways.push_back(is_in_fp32(*spec.policy, norm.operation) ? RowWay{"policy", kWideSum, DType::f32}
                                                          : RowWay{"policy", kLowSum, low});
  for (const RowWay& way : ways)
    where_supported(out, "row_statistics.unsupported", way.name,
                    [&] { measure_row_way(spec, rows, way, norm, epsilon, out); });
  where_supported(out, "row_statistics.unsupported", "operation",
                  [&] { measure_norm(spec, rows, norm, epsilon, out); });
  return out.take();
}

std::optional<std::string> refuses_row_statistics(const TrialSpec& spec) {
  if (statistic_of(*spec.subject)) return refusal_of_fp64(spec);
  return "takes a norm of rows: layernorm, rmsnorm, or linear with weight norm (w1), not " + spec.subject->id();
}

// 64 squares of values of 100 are 640,000 in sum, which fp16 does not hold; fp32 and bf16 do.
std::optional<Expect> expected_row_statistics(const TrialSpec& spec) {
  const RowStatistic norm = *statistic_of(*spec.subject);
  const bool overflows = spec.policy->low == DType::f16 && !is_in_fp32(*spec.policy, norm.operation);
  return Expect{"row_statistics.nonfinite", "policy", overflows ? ">" : "==", 0};
}

}  // namespace

Harness row_statistics_harness() {
  return {
      .name = "row_statistics",
      .about =
          "sum of squares of a row for layer norm, RMS norm and weight norm: error and safe region by width, size of "
          "the values and format of the sum",
      .axes = {{"epsilon", {"1e-05", "1e-06", "1e-08", "1e-12"}, AxisNumbers{0, 1, false}, "of the norm"}},
      .metrics = row_table(),
      .refuses = refuses_row_statistics,
      .measure = measure_row_statistics,
      .expects = expected_row_statistics};
}

}  // namespace halfmark::accuracy
