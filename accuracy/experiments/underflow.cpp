// The underflow harness: which share of log-normal numbers rounds to zero, to a subnormal or to infinity in the policy's
// low format, for each median and loss scale; and whether scaling and unscaling are exact.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr std::array kMedianExponents = {-18, -20, -22, -24, -26, -27, -28, -30, -32, -34};
constexpr int kLargestScale = 24;     // loss scales 2^0 .. 2^24: apex's cap
constexpr int kMedianOfPolicy = -27;  // where the policy's own loss scale is judged
constexpr double kLostShare = 1e-3;   // a loss scale is good if it loses fewer than this

const std::vector<MetricRow>& underflow_table() {
  static const std::vector<MetricRow> rows = {
      {"underflow.elements", "1", Better::neither, Kind::information, "numbers drawn for each median"},
      {"underflow.zero", "1", Better::lower, Kind::bounded,
       "share that is 0 after the cast to the low dtype: over log2 of the loss scale at each median, at the points "
       "median/scale, and at \"policy\" with the policy's initial loss scale and the median 2^-27"},
      {"underflow.subnormal", "1", Better::lower, Kind::bounded, "likewise: subnormal after the cast, not 0"},
      {"underflow.infinite", "1", Better::lower, Kind::bounded, "likewise: infinite after the cast"},
      {"underflow.expected_zero", "1", Better::neither, Kind::information,
       "P(|x| scale <= half the least subnormal) = Phi((log2(that / scale) - log2 median) / sigma)"},
      {"underflow.deviation", "1", Better::lower, Kind::bounded,
       "largest |zero - expected_zero| over all points, in standard errors sqrt(p (1 - p) / elements) with p at least "
       "1 / elements"},
      {"underflow.good_scales", "1", Better::higher, Kind::bounded,
       "at each median: how many of the loss scales 2^0 .. 2^24 give fewer than 0.1 % zeros and infinities together"},
      {"underflow.best_scale", "1", Better::neither, Kind::information,
       "at each median: log2 of the least loss scale with the fewest zeros and infinities"},
      {"scaling.changed", "1", Better::lower, Kind::bounded,
       "share of numbers x for which the cast of x scale, divided by the scale in fp32, differs from the cast of x; x "
       "and "
       "x scale are normal in the low format. At \"power_of_two\": all of 2^1 .. 2^24; at \"other\": 3, 1000, "
       "12345.678"},
      {"scaling.ulps", "1", Better::lower, Kind::bounded,
       "likewise: largest |cast(x scale) / scale - x|, in ulps of the low format at x"},
      {"scaling.compared", "1", Better::neither, Kind::information, "numbers compared for the two above"},
  };
  return rows;
}

double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

std::vector<double> draw_standard(const TrialSpec& spec) {
  const RandomKey key = RandomKey(spec.seed).child("underflow");
  std::vector<double> all(static_cast<size_t>(spec.subject->input.elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = key.normal(i);
  return all;
}

// The numbers as an fp32 gradient, and cast to the low dtype by the device.
std::vector<double> cast_by_device(Device& device, DType low, const std::vector<double>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  const Tensor wide = Tensor::from(device, shape, DType::f32, values);
  Tensor narrow(device, shape, low);
  run(Cast{.x = wide, .out = narrow});
  return narrow.values();
}

struct Shares {
  double zero = 0, subnormal = 0, infinite = 0;
};

Shares shares_of(const std::vector<double>& cast, const Format& format) {
  Shares found;
  const double least_normal = power_of_two(format.min_exponent()), one = 1 / static_cast<double>(cast.size());
  for (const double x : cast) {
    if (x == 0)
      found.zero += one;
    else if (std::isinf(x))
      found.infinite += one;
    else if (std::fabs(x) < least_normal)
      found.subnormal += one;
  }
  return found;
}

double ulp_of(const Format& format, double x) {
  return power_of_two(std::max(std::ilogb(x), format.min_exponent()) - format.fraction_bits);
}

struct Exactness {
  double changed = 0, ulps = 0, compared = 0;
};

// One loss scale: x scaled, cast, unscaled by the operation of a step. As in a step, 1 / scale is an fp32 number.
void compare_scaled(Device& device, DType low, const std::vector<double>& x, double scale, Exactness& found) {
  const Format& format = format_of(low);
  std::vector<double> scaled = x;
  for (double& value : scaled) value *= scale;
  const std::vector<double> plain = cast_by_device(device, low, x), narrow = cast_by_device(device, low, scaled);
  const Shape shape{static_cast<int64_t>(x.size())};
  Tensor gradient = Tensor::from(device, shape, DType::f32, narrow), found_inf = Tensor::zeros(device, {1}, DType::f32);
  run(Unscale{
      .gradients = std::span(&gradient, 1), .found_inf = found_inf, .inverse_scale = static_cast<float>(1 / scale)});
  const std::vector<double> unscaled = gradient.values();
  const double least = power_of_two(format.min_exponent());
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_normal = std::fabs(plain[i]) >= least && std::fabs(narrow[i]) >= least && std::isfinite(narrow[i]);
    if (!is_normal) continue;
    found.compared += 1, found.changed += unscaled[i] != plain[i];
    found.ulps = std::max(found.ulps, std::fabs(unscaled[i] - x[i]) / ulp_of(format, x[i]));
  }
}

double policy_scale(const TrialSpec& spec) {
  const ScalerSpec scaler = spec.settings.scaler.value_or(spec.policy->scaler);
  return scaler.kind == ScalerSpec::Kind::none ? 1 : scaler.initial;
}

std::string median_text(int exponent) { return "median=2^" + std::to_string(exponent); }

void write_shares(FindingsWriter& out, const std::string& at, const Shares& found, double elements) {
  const auto share = [&](std::string_view metric, double value) {
    out.number(metric, at, value).standard_error = std::sqrt(value * (1 - value) / elements);
  };
  share("underflow.zero", found.zero), share("underflow.subnormal", found.subnormal);
  share("underflow.infinite", found.infinite);
}

Findings measure_underflow(const TrialSpec& spec) {
  Device& device = *spec.device;
  const DType low = spec.policy->low;
  const Format& format = format_of(low);
  const double sigma = std::stod(axis_value(underflow_harness(), spec, "sigma"));
  const std::vector<double> standard = draw_standard(spec);
  const auto elements = static_cast<double>(standard.size());
  const auto drawn = [&](int median, double scale) {
    std::vector<double> x(standard.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::exp2(median + sigma * standard[i]) * scale;
    return x;
  };

  FindingsWriter out(underflow_table());
  out.number("underflow.elements", "", elements);
  write_shares(out, "policy",
               shares_of(cast_by_device(device, low, drawn(kMedianOfPolicy, policy_scale(spec))), format), elements);
  double deviation = 0;
  for (const int median : kMedianExponents) {
    const std::vector<double> x = drawn(median, 1);
    std::vector<double> scales, zero, subnormal, infinite, expected;
    double good = 0, best = 0, fewest = HUGE_VAL;
    for (int k = 0; k <= kLargestScale; ++k) {
      std::vector<double> scaled = x;
      for (double& value : scaled) value *= power_of_two(k);
      const Shares found = shares_of(cast_by_device(device, low, scaled), format);
      const double theory = normal_below((format.min_subnormal_exponent() - 1 - k - median) / sigma);
      const double p = std::clamp(theory, 1 / elements, 1 - 1 / elements);
      deviation = std::max(deviation, std::fabs(found.zero - theory) / std::sqrt(p * (1 - p) / elements));
      scales.push_back(k), zero.push_back(found.zero), subnormal.push_back(found.subnormal);
      infinite.push_back(found.infinite), expected.push_back(theory);
      const double lost = found.zero + found.infinite;
      good += lost < kLostShare;
      if (lost < fewest) fewest = lost, best = k;
      if (k == 0 || k == 7) write_shares(out, median_text(median) + "/scale=2^" + std::to_string(k), found, elements);
    }
    out.curve("underflow.zero", median_text(median), scales, zero);
    out.curve("underflow.subnormal", median_text(median), scales, subnormal);
    out.curve("underflow.infinite", median_text(median), scales, infinite);
    out.curve("underflow.expected_zero", median_text(median), scales, expected);
    out.number("underflow.good_scales", median_text(median), good);
    out.number("underflow.best_scale", median_text(median), best);
  }
  out.number("underflow.deviation", "", deviation);

  // Around 2^-8, so that for fp16 the smaller scales leave the numbers normal.
  const std::vector<double> x = stored_as(device, DType::f32, drawn(-8, 1));
  Exactness powers, others;
  for (int k = 1; k <= kLargestScale; ++k) compare_scaled(device, low, x, power_of_two(k), powers);
  for (const double scale : {3.0, 1000.0, 12345.678}) compare_scaled(device, low, x, scale, others);
  for (const auto& [at, found] : {std::pair{"power_of_two", powers}, std::pair{"other", others}}) {
    out.number("scaling.changed", at, found.changed / std::max(found.compared, 1.0));
    out.number("scaling.ulps", at, found.ulps);
    out.number("scaling.compared", at, found.compared);
  }
  return out.take();
}

std::optional<std::string> refuses_underflow(const TrialSpec& spec) {
  if (spec.subject->has_labels() || spec.subject->data != DataKind::normal)
    return "draws gradients of the shape of a single layer's input, which " + spec.subject->id() + " is not";
  return refusal_of_fp64(spec);
}

// With a standard deviation of 2 octaves, 84 % of numbers of median 2^-27 are at most 2^-25, which fp16 rounds to 0. With
// the loss scale 2^16 all are above it. fp32 and bf16 reach 2^-134 and below.
std::optional<Expect> expected_underflow(const TrialSpec& spec) {
  if (axis_value(underflow_harness(), spec, "sigma") != "2") return {};
  if (spec.policy->low == DType::f16 && policy_scale(spec) == 1) return Expect{"underflow.zero", "policy", ">", 0.8};
  if (spec.policy->low == DType::f16 && policy_scale(spec) < 0x1p10) return {};  // some are lost, and not most
  return Expect{"underflow.zero", "policy", "<", 1e-3};
}

}  // namespace

Harness underflow_harness() {
  return {.name = "underflow",
          .about =
              "share of log-normal numbers that a cast makes 0, subnormal or infinite, by median and loss scale; "
              "exactness of scaling",
          .axes = {{"sigma", {"2"}, AxisNumbers{0.1, 16, false}, "standard deviation of log2 |x|"}},
          .metrics = underflow_table(),
          .refuses = refuses_underflow,
          .measure = measure_underflow,
          .expects = expected_underflow};
}

}  // namespace halfmark::accuracy
