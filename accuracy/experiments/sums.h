// Sums as implementations make them: added and stored in the policy's low format, stored in it only, or in fp32. And what
// an experiment does where a device has no row for an operation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {

struct SumKind {
  std::string_view name;
  bool adds_low = false;    // the sum is rounded to the low format after each addition; otherwise to fp32
  bool stores_low = false;  // the result is rounded to the low format
  friend bool operator==(const SumKind& a, const SumKind& b) { return a.name == b.name; }
};

inline constexpr SumKind kLowSum{"low_sum", true, true};
inline constexpr SumKind kLowResult{"low_result", false, true};  // what frameworks do with half operands
inline constexpr SumKind kWideSum{"fp32", false, false};
inline constexpr SumKind kSumKinds[] = {kLowSum, kLowResult, kWideSum};

// A low format of 64 bits is not low: fp64 is what the others are compared with.
std::optional<std::string> refusal_of_fp64(const TrialSpec& spec);

// Whether the policy computes this operation in fp32: by its cast rules, or because everything is fp32.
bool is_in_fp32(const Policy& policy, std::string_view operation);

// sum over k of a[k] b[k] on the device, as a matrix product. a and b are stored in `stored`; `low` is that of the kind.
double sum_of_products(Device& device, DType stored, DType low, const SumKind& kind, std::span<const double> a,
                       std::span<const double> b);

// The values as a tensor of this dtype holds them.
std::vector<double> stored_as(Device& device, DType dtype, std::span<const double> values);
double stored_as(Device& device, DType dtype, double value);

// |value - exact| / |exact|; infinite if the value is not finite.
double relative_error(double value, double exact);

// Runs `measure`. Where the device has no row for one of its operations, writes the metric `unsupported` = 1 at `at`
// instead, so that the other numbers of the record remain.
template <class Measure>
void where_supported(FindingsWriter& out, std::string_view unsupported, const std::string& at, Measure&& measure) {
  try {
    std::forward<Measure>(measure)();
  } catch (const Unsupported&) {
    out.number(unsupported, at, 1);
  }
}

// Least squares: the slope of y over x.
double slope_of(std::span<const double> x, std::span<const double> y);

}  // namespace halfmark::accuracy
