// Histograms of binary exponents.
#include "accuracy/exponents.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace halfmark::accuracy {

namespace {
constexpr int kLeastSubnormal = 1074, kMaxExponent = 1023;  // of fp64: -log2 of the least number, log2 of the largest
}

void Exponents::add(std::span<const double> values) {
  total += static_cast<double>(values.size());
  // ilogb of a double: from -1074 (the least subnormal) to 1023.
  std::array<double, kLeastSubnormal + kMaxExponent + 1> found{};
  for (const double x : values) {
    if (x == 0) {
      ++zero;
    } else if (!std::isfinite(x)) {
      ++nonfinite;
    } else {
      const int place = std::ilogb(x) + kLeastSubnormal;
      ++found[static_cast<size_t>(place)];
      largest = std::max(largest, std::fabs(x));
    }
  }
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i] > 0) counts[static_cast<int>(i) - kLeastSubnormal] += found[i];
}

void Exponents::add(const Exponents& other) {
  for (const auto& [exponent, count] : other.counts) counts[exponent] += count;
  total += other.total, zero += other.zero, nonfinite += other.nonfinite;
  largest = std::max(largest, other.largest);
}

double Exponents::share_below(int exponent) const {
  if (empty()) return 0;
  double below = 0;
  for (const auto& [e, count] : counts)
    if (e < exponent && e >= highest_exponent() - 52) below += count;
  return below / total;
}

double headroom(const Format& format, double largest) {
  if (largest == 0) return std::numeric_limits<double>::infinity();
  return std::log2(format.max_finite()) - std::log2(largest);
}

}  // namespace halfmark::accuracy
