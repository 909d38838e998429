// Computes the error statistics.
#include "accuracy/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::accuracy {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kLargestUlpPower = 64;  // errors of more ulps share the last finite bin

// Bin 0: exact, 1: <= 0.5, 2: <= 1, 3: <= 2, ...; the bin after the last power holds non-finite errors.
size_t ulp_bin(double ulps) {
  if (ulps == 0) return 0;
  if (!std::isfinite(ulps)) return kLargestUlpPower + 3;
  if (ulps <= 0.5) return 1;
  int exponent = 0;
  const double fraction = std::frexp(ulps, &exponent);  // ulps = fraction 2^exponent, fraction in [0.5, 1)
  const int power = fraction == 0.5 ? exponent - 1 : exponent;
  return static_cast<size_t>(std::clamp(power, 0, kLargestUlpPower)) + 2;
}

double bin_edge(size_t bin) {
  if (bin == 0) return 0;
  if (bin == kLargestUlpPower + 3) return kInfinity;
  return std::ldexp(1.0, static_cast<int>(bin) - 2);
}

}  // namespace

double ulp_at(const Format& format, double x) {
  int exponent = format.min_exponent();
  if (x != 0 && std::isfinite(x)) exponent = std::clamp(std::ilogb(x), format.min_exponent(), format.max_exponent());
  if (std::isinf(x)) exponent = format.max_exponent();
  return std::ldexp(1.0, exponent - format.fraction_bits);
}

ErrorStats error_stats(std::span<const double> values, std::span<const double> reference, const Format& format,
                       double scale) {
  HM_CHECK(values.size() == reference.size(), "error_stats: " + std::to_string(values.size()) + " values, " +
                                                  std::to_string(reference.size()) + " references");
  ErrorStats stats;
  if (values.empty()) return stats;
  const double least_subnormal = std::ldexp(1.0, format.min_subnormal_exponent());
  const double least_normal = std::ldexp(1.0, format.min_exponent());
  double largest = 0;
  for (const double ref : reference) largest = std::max(largest, std::fabs(ref * scale));
  const double oracle_noise = std::ldexp(largest, -52);

  double error_square = 0, reference_square = 0, value_square = 0, product = 0, signed_error = 0;
  double zeroed = 0, subnormal = 0, infinite = 0, nan = 0;
  std::vector<double> bins(kLargestUlpPower + 4, 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] * scale, ref = reference[i] * scale;
    const double error = value - ref;
    error_square += error * error;
    reference_square += ref * ref;
    value_square += value * value;
    product += value * ref;
    signed_error += error;
    if (std::fabs(ref) >= least_subnormal) {
      const double relative = std::fabs(error / ref);
      // A NaN stays: std::max would drop it.
      if (std::isnan(relative) || relative > stats.max_relative) stats.max_relative = relative;
    }
    zeroed += value == 0 && std::fabs(ref) > oracle_noise;
    subnormal += value != 0 && std::fabs(value) < least_normal;
    infinite += std::isinf(value);
    nan += std::isnan(value);
    ++bins[ulp_bin(std::fabs(error) / ulp_at(format, ref))];
  }
  const double count = static_cast<double>(values.size());
  stats.nmse = error_square == 0 ? 0 : error_square / reference_square;
  if (value_square == 0 && reference_square == 0) {
    stats.cosine = 1;
  } else if (value_square == 0 || reference_square == 0) {
    stats.cosine = 0;
  } else {
    stats.cosine = product / (std::sqrt(value_square) * std::sqrt(reference_square));
  }
  stats.bias = signed_error == 0 ? 0 : signed_error / count / std::sqrt(reference_square / count);
  stats.zeroed = zeroed / count;
  stats.subnormal = subnormal / count;
  stats.infinite = infinite / count;
  stats.nan = nan / count;
  stats.nonfinite = (infinite + nan) / count;

  const size_t infinite_bin = bins.size() - 1;
  size_t last = infinite_bin;
  while (last > 2 && bins[last - 1] == 0) --last;
  for (size_t bin = 0; bin < last; ++bin)
    stats.ulp_edges.push_back(bin_edge(bin)), stats.ulp_counts.push_back(bins[bin]);
  if (bins[infinite_bin] > 0) stats.ulp_edges.push_back(kInfinity), stats.ulp_counts.push_back(bins[infinite_bin]);
  return stats;
}

}  // namespace halfmark::accuracy
