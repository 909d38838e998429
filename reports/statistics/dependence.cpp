#include "reports/statistics/dependence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

namespace {

constexpr size_t kFewestForLagOne = 8;
constexpr double kLargestLagOne = 0.99;

double mean_of(std::span<const double> series) {
  double sum = 0;
  for (const double x : series) sum += x;
  return sum / static_cast<double>(series.size());
}

double squares_of(std::span<const double> series) {
  const double mean = mean_of(series);
  double sum = 0;
  for (const double x : series) sum += (x - mean) * (x - mean);
  return sum;
}

}  // namespace

std::vector<double> without_outliers(std::span<const double> series) {
  std::vector<double> values(series.begin(), series.end());
  if (values.empty()) return values;
  // Standard deviations in units of these distances between quantiles, for a normal distribution.
  const double quarters = (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349;
  const double tenths = (quantile(values, 0.9) - quantile(values, 0.1)) / 2.563;
  const double middle = median(values), reach = 3 * std::max(quarters, tenths);
  if (reach > 0)
    for (double& x : values) x = std::clamp(x, middle - reach, middle + reach);
  return values;
}

double Dependence::upper(double chance) const {
  return std::min(kLargestLagOne, lag_one + normal_quantile_above(chance) * error);
}

bool Dependence::is_evident(double chance) const { return lag_one > normal_quantile_above(chance) * error; }

Dependence dependence_of(std::span<const std::vector<double>> series) {
  double weighted = 0, runs = 0, variance = 0;
  for (const std::vector<double>& one : series) {
    if (one.size() < kFewestForLagOne) continue;
    const std::vector<double> values = without_outliers(one);
    const double mean = mean_of(values), squares = squares_of(values), n = static_cast<double>(values.size());
    double products = 0;
    for (size_t i = 0; i + 1 < values.size(); ++i) products += (values[i] - mean) * (values[i + 1] - mean);
    const double raw = squares > 0 ? products / squares : 0;
    weighted += n * (raw * n + 1) / (n - 4);  // solves raw = rho - (1 + 4 rho) / n
    const double scale = n / (n - 4);
    variance += n * scale * scale;  // n^2 * (1 / n) * scale^2
    runs += n;
  }
  if (runs == 0) return {};
  return {std::clamp(weighted / runs, -1.0, kLargestLagOne), std::sqrt(variance) / runs};
}

Dependence common_dependence(std::span<const Dependence> cases) {
  std::vector<double> estimates, errors;
  for (const Dependence& one : cases) estimates.push_back(one.lag_one), errors.push_back(one.error);
  if (estimates.empty()) return {};
  // A median has 1.2533 = sqrt(pi / 2) times the standard error of a mean.
  const double error = 1.2533 * median(errors) / std::sqrt(static_cast<double>(cases.size()));
  return {median(estimates), error};
}

double effective_runs(size_t runs, double lag_one) {
  const auto n = static_cast<double>(runs);
  double sum = 1, power = 1;
  for (size_t k = 1; k < runs; ++k) power *= lag_one, sum += 2 * (1 - static_cast<double>(k) / n) * power;
  return std::clamp(n / std::max(sum, 1e-6), 1.0, n);
}

DependentMean dependent_mean(std::span<const double> series, double lag_one) {
  const auto n = static_cast<double>(series.size());
  const double worth = series.empty() ? 1 : effective_runs(series.size(), lag_one);
  if (worth < 1.5) return {std::numeric_limits<double>::infinity(), 0};
  // The squares around the mean of dependent runs sum to less: n variance (1 - 1 / worth).
  const double variance = squares_of(without_outliers(series)) / (n * (1 - 1 / worth));
  return {std::sqrt(variance / worth), worth - 1};
}

DependentShift dependent_shift(std::span<const double> a, std::span<const double> b, double lag_one) {
  const DependentMean left = dependent_mean(a, lag_one), right = dependent_mean(b, lag_one);
  const double worth = std::min(effective_runs(a.size(), lag_one), effective_runs(b.size(), lag_one));
  const double error = std::hypot(left.error, right.error);
  if (!std::isfinite(error)) return {error, 0, worth};
  // Welch (1938) and Satterthwaite (1946).
  const double shares = std::pow(left.error, 4) / left.freedom + std::pow(right.error, 4) / right.freedom;
  const double freedom = shares > 0 ? std::pow(error, 4) / shares : left.freedom + right.freedom;
  return {error, freedom, worth};
}

namespace {

// Degrees of freedom of the sum of an estimated and a known variance: the known one has no error of its own.
double freedom_of_sum(double freedom, double error, double all) {
  return std::min(freedom / std::pow(std::max(error / all, 1e-3), 4), 1e6);
}

}  // namespace

double DependentShift::p(double shift, double centre, double spread) const {
  if (!std::isfinite(error)) return 1;
  const double all = std::hypot(error, spread);
  if (all <= 0) return shift > centre ? 0 : 1;
  return upper_t_p((shift - centre) / all, freedom_of_sum(freedom, error, all));
}

double DependentShift::reach(double confidence, double spread) const {
  if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
  const double all = std::hypot(error, spread);
  return all > 0 ? all * upper_t_quantile((1 - confidence) / 2, freedom_of_sum(freedom, error, all)) : 0;
}

double DependentShift::upper(double shift, double confidence) const {
  if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
  return shift + upper_t_quantile(1 - confidence, freedom) * error;
}

}  // namespace halfmark::reports
