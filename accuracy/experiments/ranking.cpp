#include "accuracy/experiments/ranking.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::accuracy {

double kendall_tau(std::span<const double> a, std::span<const double> b) {
  HM_CHECK(a.size() == b.size(), "a rank correlation of " + std::to_string(a.size()) + " and " +
                                     std::to_string(b.size()) + " values: the lists differ in length");
  double agreement = 0, differ_a = 0, differ_b = 0;
  const auto order = [](double x, double y) { return x < y ? -1 : x > y ? 1 : 0; };
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::quiet_NaN();
    for (size_t j = 0; j < i; ++j) {
      const int of_a = order(a[i], a[j]), of_b = order(b[i], b[j]);
      agreement += of_a * of_b, differ_a += of_a != 0, differ_b += of_b != 0;
    }
  }
  return agreement / std::sqrt(differ_a * differ_b);  // 0 / 0 is NaN
}

TauOfPairs kendall_tau_of_pairs(std::span<const std::vector<double>> rankings) {
  HM_CHECK(rankings.size() >= 2, "a pair of rankings needs two");
  const auto taus_without = [&](size_t left_out) {
    std::vector<double> taus;
    for (size_t a = 0; a < rankings.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (a != left_out && b != left_out) taus.push_back(kendall_tau(rankings[a], rankings[b]));
    return taus;
  };
  TauOfPairs found;
  const std::vector<double> all = taus_without(rankings.size());
  found.mean = sample_mean(all).mean;
  found.least = std::isnan(found.mean) ? found.mean : *std::ranges::min_element(all);
  if (rankings.size() < 3) return found;
  std::vector<double> means;
  for (size_t left_out = 0; left_out < rankings.size(); ++left_out)
    means.push_back(sample_mean(taus_without(left_out)).mean);
  const auto count = static_cast<double>(means.size());
  const double error = sample_mean(means).deviation * (count - 1) / std::sqrt(count);
  if (std::isfinite(error)) found.error = error;
  return found;
}

size_t place_of_least(std::span<const double> values) {
  HM_CHECK(!values.empty(), "there is no least of no values");
  size_t place = 0;
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] < values[place] || (std::isnan(values[place]) && !std::isnan(values[i]))) place = i;
  return place;
}

SampleMean sample_mean(std::span<const double> values) {
  HM_CHECK(!values.empty(), "there is no mean of no values");
  const auto count = static_cast<double>(values.size());
  SampleMean found;
  for (const double value : values) found.mean += value / count;
  if (values.size() == 1) return found;
  double squares = 0;
  for (const double value : values) squares += (value - found.mean) * (value - found.mean);
  found.deviation = std::sqrt(squares / (count - 1));
  found.error = found.deviation / std::sqrt(count);
  return found;
}

double share_error(double right, double count) {
  const double q = (right + 1) / (count + 2);
  return std::sqrt(q * (1 - q) / count);
}

}  // namespace halfmark::accuracy
