// The accumulation harness: growth of the error of a sum of products with its length K, for each way of summing, next
// to the theoretical bounds. The reference uses the rounded operands, so that only the summation is measured.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/reference.h"
#include "kernels/number/error.h"
#include "models/policy.h"

namespace halfmark::accuracy {

namespace {

constexpr int kLeastPower = 8, kMostPower = 17;  // K = 2^8 .. 2^17
constexpr int64_t kRows = 8, kColumns = 8;       // sums for each K; GPU libraries want multiples of 8

// Theory predicts slopes of 0 (only the result is rounded), 1/2 (random errors) and 1 (biased errors). The limit for
// "growing" is half way between the first two.
constexpr double kGrows = 0.25;
// The geometric mean of one rounding of the result (1) and two roundings of equal size (sqrt 2).
constexpr double kFactor = 1.189207115;  // 2^(1/4)
enum Class { kFlat = 0, kConstantFactor = 1, kGrowing = 2 };

const std::vector<MetricRow>& accumulation_table() {
  static const std::vector<MetricRow> rows = with_reference_rows({
      {"accumulation.error", "1", Better::lower, Kind::bounded,
       "over K: sqrt(sum (value - exact)^2 / sum exact^2), exact: the same rounded operands summed in 64 bits"},
      {"accumulation.backward_error", "1", Better::lower, Kind::bounded,
       "over K, and at the largest K: max |value - exact| / sum |a b|"},
      {"accumulation.bound", "1", Better::neither, Kind::information,
       "over K: gamma = K u / (1 - K u) and the rounding of the result (Higham 2002, section 3.1); u is twice the unit "
       "roundoff of the accumulator because a device may truncate"},
      {"accumulation.probabilistic_bound", "1", Better::neither, Kind::information,
       "over K: exp(lambda sqrt(K) u + K u^2 / (1 - u)) - 1 and the rounding of the result (Higham and Mary 2019, "
       "theorem 2.4), lambda such that it holds for all sums at once with probability 0.99 if errors have mean zero"},
      {"accumulation.ratio", "1", Better::lower, Kind::bounded,
       "median over K: rms error over the rms error of the correctly rounded results, or over u if those are exact"},
      {"accumulation.growth", "1", Better::lower, Kind::bounded, "slope of log error over log K, least squares"},
      {"accumulation.class", "1", Better::lower, Kind::bounded,
       "0 flat: growth < 1/4 and ratio < 2^(1/4); 1 constant factor: growth < 1/4; 2 growing"},
      {"accumulation.nonfinite", "1", Better::lower, Kind::bounded, "share of sums that are infinite or NaN"},
  });
  return rows;
}

const Harness& self() {
  static const Harness harness = accumulation_harness();
  return harness;
}

Math math_of(const TrialSpec& spec) {
  Math math = spec.policy->math;
  const std::string sum = axis_value(self(), spec, "sum");
  if (sum == "fp16") math.multiply = kFp16, math.accumulate = kFp16, math.partial = kFp16;
  if (sum == "split_k") math.split_k = 8, math.partial = format_of(spec.policy->low);
  return math;
}

// The operands of kRows x kColumns sums of K products. same_sign: uniform in (0, 1). cancelling: the second half
// cancels the first, which has grown large, to a few per cent. random: normal.
struct Operands {
  std::vector<double> a, b;  // [rows, K], [columns, K]
};

Operands draw(const TrialSpec& spec, const std::string& data, int64_t depth) {
  const RandomKey key = RandomKey(spec.seed).child("accumulation").child(data);
  const Format& low = format_of(spec.policy->low);
  const Format& multiply = math_of(spec).multiply;
  const auto rounded = [&](double x) { return round_to(multiply, round_to(low, x)); };
  const auto side = [&](std::string_view name, int64_t vectors, bool second) {
    std::vector<double> values(static_cast<size_t>(vectors * depth));
    for (int64_t v = 0; v < vectors; ++v) {
      const RandomKey mine = key.child(name).child(static_cast<uint64_t>(v));
      for (int64_t k = 0; k < depth; ++k) {
        double& x = values[static_cast<size_t>(v * depth + k)];
        const auto i = static_cast<uint64_t>(k);
        if (data == "random") {
          x = mine.normal(i);
        } else if (data == "cancelling" && k >= depth / 2) {
          x = values[static_cast<size_t>(v * depth + k - depth / 2)];
          if (second) x *= -(1 + 0.05 * mine.normal(i));
        } else {
          x = mine.uniform(i) + 0x1p-12;
        }
        x = rounded(x);
      }
    }
    return values;
  };
  return {side("a", kRows, false), side("b", kColumns, true)};
}

struct Errors {
  double relative = 0, backward = 0, ratio = 0, nonfinite = 0;
};

Errors errors_at(const TrialSpec& spec, const std::string& data, int64_t depth, const Math& math, DType stored) {
  const Operands x = draw(spec, data, depth);
  Device& device = *spec.device;
  const DType low = spec.policy->low;
  const Tensor a = Tensor::from(device, {kRows, depth}, low, x.a),
               b = Tensor::from(device, {kColumns, depth}, low, x.b);
  Tensor out(device, {kRows, kColumns}, stored);
  run(Matmul{.a = a, .b = b, .out = out, .transpose_b = true, .math = math});
  const std::vector<double> values = out.values();

  double error = 0, truth = 0, ideal = 0;
  Errors found;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c) {
      // 64 bits of significand: an error of K 2^-64 sum |a b|, far below the errors measured.
      long double exact = 0, magnitude = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const auto product = static_cast<long double>(x.a[static_cast<size_t>(r * depth + k)]) *
                             static_cast<long double>(x.b[static_cast<size_t>(c * depth + k)]);
        exact += product, magnitude += std::fabs(product);
      }
      const auto reference = static_cast<double>(exact);
      const double value = values[static_cast<size_t>(r * kColumns + c)];
      if (!std::isfinite(value)) {
        found.nonfinite += 1.0 / static_cast<double>(kRows * kColumns);
        continue;
      }
      const auto off = static_cast<double>(static_cast<long double>(value) - exact);
      const double best = round_to(format_of(stored), reference) - reference;
      error += off * off, truth += reference * reference, ideal += best * best;
      found.backward = std::max(found.backward, std::fabs(off) / static_cast<double>(magnitude));
    }
  const double unit = format_of(stored).unit_roundoff();
  found.relative = truth > 0 ? std::sqrt(error / truth) : 0;
  const double least = ideal > 0 ? std::sqrt(ideal) : unit * std::sqrt(truth);
  found.ratio = least > 0 ? std::sqrt(error) / least : 0;
  if (found.nonfinite > 0) found.relative = found.backward = found.ratio = HUGE_VAL;
  return found;
}

double slope(const std::vector<double>& x, const std::vector<double>& y) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(y[i] > 0) || !std::isfinite(y[i])) continue;
    const double u = std::log(x[i]), v = std::log(y[i]);
    n += 1, sx += u, sy += v, sxx += u * u, sxy += u * v;
  }
  return n < 2 ? 0 : (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

// Adds the rounding of the result to a bound on the sum.
double with_rounding(double bound, const Format& stored) {
  return std::isfinite(bound) ? bound + stored.unit_roundoff() * (1 + bound) : bound;
}

Findings measure_accumulation(const TrialSpec& spec) {
  const Math math = math_of(spec);
  const std::string data = axis_value(self(), spec, "data");
  const DType stored = spec.policy->low;  // as a layer stores it
  // A tensor core truncates: its error is up to one unit in the last place, twice that of rounding to nearest. With
  // fast accumulation, some keep 13 fraction bits only for fp8 operands.
  const double u = math.fast_accumulate ? 0x1p-13 : 2 * math.accumulate.unit_roundoff();
  const double sums = static_cast<double>(kRows * kColumns);

  std::vector<double> depths, relative, backward, bounds, likely, ratios;
  double nonfinite = 0;
  for (int power = kLeastPower; power <= kMostPower; ++power) {
    const int64_t depth = int64_t{1} << power;
    const Errors found = errors_at(spec, data, depth, math, stored);
    const auto k = static_cast<double>(depth);
    // With split_k 1 a library may split a sum as it likes: without bound if its partial sums may be narrow.
    const bool may_split = math.split_k == 1 && math.partial.fraction_bits < math.accumulate.fraction_bits;
    const double partial = may_split          ? HUGE_VAL
                           : math.split_k > 1 ? (math.split_k + 1) * math.partial.unit_roundoff()
                                              : 0;
    const double gamma = k * u < 1 ? k * u / (1 - k * u) + partial : HUGE_VAL;
    // 1 - P = sums 2 K exp(-lambda^2 (1 - u)^2 / 2) = 0.01
    const double lambda = std::sqrt(2 * std::log(200 * sums * k)) / (1 - u);
    depths.push_back(k);
    relative.push_back(found.relative), backward.push_back(found.backward), ratios.push_back(found.ratio);
    bounds.push_back(with_rounding(gamma, format_of(stored)));
    likely.push_back(
        with_rounding(std::expm1(lambda * std::sqrt(k) * u + k * u * u / (1 - u)) + partial, format_of(stored)));
    nonfinite = std::max(nonfinite, found.nonfinite);
  }

  FindingsWriter out(accumulation_table());
  const auto over_k = [&](std::string_view metric, const std::vector<double>& y) { out.curve(metric, "", depths, y); };
  over_k("accumulation.error", relative);
  over_k("accumulation.backward_error", backward);
  over_k("accumulation.bound", bounds);
  over_k("accumulation.probabilistic_bound", likely);
  Measurement& worst = out.number("accumulation.backward_error", "", backward.back());
  if (std::isfinite(bounds.back()) && nonfinite == 0) worst.bound = bounds.back();
  std::vector<double> sorted = ratios;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2), sorted.end());
  const double ratio = sorted[sorted.size() / 2], growth = slope(depths, relative);
  const bool grows = growth >= kGrows || nonfinite > 0;
  out.number("accumulation.ratio", "", ratio);
  out.number("accumulation.growth", "", growth);
  out.number("accumulation.class", "", grows ? kGrowing : ratio >= kFactor ? kConstantFactor : kFlat);
  out.number("accumulation.nonfinite", "", nonfinite);
  const Operands shortest = draw(spec, data, int64_t{1} << kLeastPower);
  ReferenceNumbers numbers;
  numbers.add("input", "a", shortest.a), numbers.add("input", "b", shortest.b);
  numbers.add_to(out);
  return out.take();
}

std::optional<std::string> refuses_accumulation(const TrialSpec& spec) {
  if (spec.subject->name != "linear") return "measures one sum of products and needs a linear layer";
  if (models::quantizes_products(*spec.policy))
    return "measures products of numbers as they are stored, and " + std::string(spec.policy->name) + " quantises them";
  if (axis_value(self(), spec, "sum") == "fp16" && spec.policy->low != DType::f16)
    return "sums in fp16 need f16 operands, not " + std::string(name_of(spec.policy->low));
  return {};
}

}  // namespace

Harness accumulation_harness() {
  return {.name = "accumulation",
          .about = "error of a sum of products against its length K = 2^8 .. 2^17, next to the theoretical bounds",
          .axes = {{"data", {"random", "same_sign", "cancelling"}, {}, "the operands"},
                   {"sum",
                    {"policy", "fp16", "split_k"},
                    {},
                    "how products are added; policy: as the matmul of the policy does"}},
          .metrics = accumulation_table(),
          .refuses = refuses_accumulation,
          .measure = measure_accumulation};
}

}  // namespace halfmark::accuracy
