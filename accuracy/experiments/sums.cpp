#include "accuracy/experiments/sums.h"

#include <array>
#include <cmath>

namespace halfmark::accuracy {

std::optional<std::string> refusal_of_fp64(const TrialSpec& spec) {
  if (spec.policy->low != DType::f64) return {};
  return "compares narrower formats with fp64; under fp64 itself there is nothing to compare";
}

bool is_in_fp32(const Policy& policy, std::string_view operation) {
  if (policy.low == DType::f32) return true;
  if (!policy.rules) return false;
  const CastRule rule = policy.rules->of(operation);
  return rule == CastRule::fp32 || rule == CastRule::fp32_out;
}

double sum_of_products(Device& device, DType stored, DType low, const SumKind& kind, std::span<const double> a,
                       std::span<const double> b) {
  HM_CHECK(a.size() == b.size(), "a sum of products of vectors that differ in length");
  const auto length = static_cast<int64_t>(a.size());
  const Tensor left = Tensor::from(device, {1, length}, stored, a),
               right = Tensor::from(device, {1, length}, stored, b);
  Math math;
  if (kind.adds_low) {
    math.multiply = format_of(stored);
    math.accumulate = math.partial = format_of(low);
  }
  Tensor out(device, {1, 1}, kind.stores_low ? low : DType::f32);
  run(Matmul{.a = left, .b = right, .out = out, .transpose_b = true, .math = math});
  return out.values()[0];
}

std::vector<double> stored_as(Device& device, DType dtype, std::span<const double> values) {
  return Tensor::from(device, {static_cast<int64_t>(values.size())}, dtype, values).values();
}

double stored_as(Device& device, DType dtype, double value) {
  const std::array one = {value};
  return stored_as(device, dtype, one)[0];
}

double relative_error(double value, double exact) {
  if (!std::isfinite(value)) return HUGE_VAL;
  if (exact == 0) return value == 0 ? 0 : HUGE_VAL;
  return std::fabs(value - exact) / std::fabs(exact);
}

double slope_of(std::span<const double> x, std::span<const double> y) {
  HM_CHECK(x.size() == y.size() && x.size() > 1, "a slope needs two points");
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

}  // namespace halfmark::accuracy
