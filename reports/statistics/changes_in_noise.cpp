#include "reports/statistics/changes_in_noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <tuple>

#include "reports/record/error.h"
#include "reports/statistics/dependence.h"

namespace halfmark::reports {

namespace {

// Largest p value of the placebo test, divided by the number of points; and that of the t-test. Measured on series of
// 20 to 200 points: at most 0.5 % false changes under every noise of noise_testing.h (changes_in_noise_test.cpp).
constexpr double kPlaceboLevel = 0.02, kDependentLevel = 1e-3;
constexpr double kLeastGain = 10;  // twice the logarithm of the likelihood ratio of step and line
// Jumps over w points that start at every point: about 1.5 of w are independent of each other.
constexpr double kIndependentJumps = 1.5;
constexpr size_t kShareOfJump = 8;  // the jump is taken over at most this part of the series
constexpr size_t kFewestJumps = 3;
constexpr double kSeemsDependentAt = 0.01, kBoundTooLowAt = 0.05;

class Levels {
 public:
  Levels(std::span<const double> series, const std::vector<ChangePoint>& changes) : series_(series), sums_{0} {
    for (const double x : series) sums_.push_back(sums_.back() + x);
    cuts_.push_back(0);
    for (const ChangePoint& one : changes) cuts_.push_back(one.at);
    cuts_.push_back(series.size());
    std::vector<std::vector<double>> parts;
    for (size_t i = 0; i + 1 < cuts_.size(); ++i)
      parts.emplace_back(series.begin() + static_cast<std::ptrdiff_t>(cuts_[i]),
                         series.begin() + static_cast<std::ptrdiff_t>(cuts_[i + 1]));
    const Dependence found = dependence_of(parts);
    lag_one_ = std::max(0.0, found.is_evident(kSeemsDependentAt) ? found.upper(kBoundTooLowAt) : found.lag_one);
    for (size_t i = 0; i + 1 < cuts_.size(); ++i) {
      const double worth = effective_runs(cuts_[i + 1] - cuts_[i], lag_one_);
      squares_ += squares(cuts_[i], cuts_[i + 1], false);
      weight_ += static_cast<double>(cuts_[i + 1] - cuts_[i]) * (1 - 1 / worth);
      freedom_ += worth - 1;
    }
  }

  // The worst of the three tests of a change, in units of its limit: at most 1 if the change is decided.
  double doubt_of(size_t change) const {
    const size_t begin = cuts_[change], at = cuts_[change + 1], end = cuts_[change + 2];
    if (is_without_noise()) return 0;
    const double placebo = placebo_p(begin, at, end) * static_cast<double>(series_.size()) / kPlaceboLevel;
    return std::max(
        {placebo, dependent_p(begin, at, end) / kDependentLevel, gain(begin, at, end) < kLeastGain ? 2.0 : 0.0});
  }

 private:
  double mean(size_t begin, size_t end) const { return (sums_[end] - sums_[begin]) / static_cast<double>(end - begin); }

  // The points of each level are equal, up to rounding.
  bool is_without_noise() const {
    const double tiny = 64 * std::numeric_limits<double>::epsilon();
    return squares_ <= tiny * tiny * static_cast<double>(series_.size());
  }

  // Summed squares of the differences from the mean, or from the straight line.
  double squares(size_t begin, size_t end, bool from_line) const {
    const auto n = static_cast<double>(end - begin);
    const double level = mean(begin, end), middle = (n - 1) / 2;
    double of_values = 0, of_places = 0, of_both = 0;
    for (size_t i = begin; i < end; ++i) {
      const double x = series_[i] - level, place = static_cast<double>(i - begin) - middle;
      of_values += x * x, of_places += place * place, of_both += x * place;
    }
    return from_line && of_places > 0 ? std::max(0.0, of_values - of_both * of_both / of_places) : of_values;
  }

  double gain(size_t begin, size_t at, size_t end) const {
    const double step = squares(begin, at, false) + squares(at, end, false), line = squares(begin, end, true);
    const double least = std::numeric_limits<double>::min();
    return static_cast<double>(end - begin) * std::log(std::max(line, least) / std::max(step, least));
  }

  double jump(size_t at, size_t width) const { return mean(at, at + width) - mean(at - width, at); }

  // Two-sided p value of x standard errors; an error that is only rounding counts as none.
  static double p_of(double x, double error, double freedom) {
    const double tiny = 64 * std::numeric_limits<double>::epsilon() * std::max(1.0, std::fabs(x));
    return error <= tiny ? 0 : 2 * upper_t_p(std::fabs(x) / error, std::max(freedom, 1.0));
  }

  double placebo_p(size_t begin, size_t at, size_t end) const {
    const size_t width = std::min({at - begin, end - at, std::max<size_t>(3, series_.size() / kShareOfJump)});
    double sum = 0;
    size_t count = 0;
    for (size_t place = width; place + width <= series_.size(); ++place) {
      const bool crosses = std::any_of(cuts_.begin() + 1, cuts_.end() - 1,
                                       [&](size_t cut) { return place + width > cut && cut + width > place; });
      if (crosses) continue;
      const double other = jump(place, width);
      sum += other * other, ++count;
    }
    if (count < kFewestJumps) return 1;
    return p_of(jump(at, width), std::sqrt(sum / static_cast<double>(count)),
                kIndependentJumps * static_cast<double>(count) / static_cast<double>(width));
  }

  double dependent_p(size_t begin, size_t at, size_t end) const {
    if (weight_ <= 0 || freedom_ < 0.5) return 1;
    const double of_means = 1 / effective_runs(at - begin, lag_one_) + 1 / effective_runs(end - at, lag_one_);
    return p_of(mean(at, end) - mean(begin, at), std::sqrt(squares_ / weight_ * of_means), freedom_);
  }

  std::span<const double> series_;
  std::vector<double> sums_;
  std::vector<size_t> cuts_;
  double lag_one_ = 0, squares_ = 0, weight_ = 0, freedom_ = 0;
};

// change_points() keeps some points on either side of a split, so that near an end or another change its place may be
// off by as many. Moved to where the points are nearest to the medians of their sides.
void settle_places(std::span<const double> series, std::vector<ChangePoint>& changes, size_t fewest_points) {
  const auto sides = [&](size_t begin, size_t at, size_t end) {
    const auto part = [&](size_t from, size_t to) {
      return std::vector<double>(series.begin() + static_cast<std::ptrdiff_t>(from),
                                 series.begin() + static_cast<std::ptrdiff_t>(to));
    };
    const double before = median(part(begin, at)), after = median(part(at, end));
    double distance = 0;
    for (size_t i = begin; i < end; ++i) distance += std::fabs(series[i] - (i < at ? before : after));
    return std::tuple(distance, before, after);
  };
  for (size_t k = 0; k < changes.size(); ++k) {
    ChangePoint& one = changes[k];
    const size_t begin = k == 0 ? 0 : changes[k - 1].at,
                 end = k + 1 < changes.size() ? changes[k + 1].at : series.size();
    double least = std::get<0>(sides(begin, one.at, end));
    size_t best = one.at;
    const size_t low = std::max(begin + 1, one.at - std::min(one.at, fewest_points - 1));
    for (size_t at = low; at < std::min(end, one.at + fewest_points); ++at)
      if (const double distance = std::get<0>(sides(begin, at, end)); distance < least) least = distance, best = at;
    one.at = best;
    std::tie(std::ignore, one.before, one.after) = sides(begin, best, end);
  }
}

}  // namespace

std::vector<size_t> far_points(std::span<const double> series, std::span<const ChangePoint> changes, double least) {
  constexpr size_t kFewest = 8;
  constexpr double kDeviations = 5,
                   kOfMedian = 1.4826;  // standard deviation / median distance of a normal distribution
  if (series.size() < kFewest) return {};
  std::vector<double> distances(series.size());
  for (size_t k = 0; k <= changes.size(); ++k) {
    const size_t begin = k == 0 ? 0 : changes[k - 1].at, end = k < changes.size() ? changes[k].at : series.size();
    const double level = median(
        {series.begin() + static_cast<std::ptrdiff_t>(begin), series.begin() + static_cast<std::ptrdiff_t>(end)});
    for (size_t i = begin; i < end; ++i) distances[i] = std::fabs(series[i] - level);
  }
  const double limit = std::max(least, kDeviations * kOfMedian * median(distances));
  std::vector<size_t> far;
  for (size_t i = 0; i < series.size(); ++i)
    if (distances[i] > limit) far.push_back(i);
  return far;
}

std::vector<ChangePoint> changes_in_noise(std::span<const double> series, std::span<const int64_t> day,
                                          const ChangePointRules& rules) {
  if (day.size() != series.size()) throw ReportError("cannot search change points: a point has no day");
  std::vector<size_t> first_of_day;
  for (size_t i = 0; i < series.size(); ++i)
    if (i == 0 || day[i] != day[i - 1]) first_of_day.push_back(i);
  std::vector<double> days;
  for (size_t k = 0; k < first_of_day.size(); ++k) {
    const size_t begin = first_of_day[k], end = k + 1 < first_of_day.size() ? first_of_day[k + 1] : series.size();
    days.push_back(median(
        {series.begin() + static_cast<std::ptrdiff_t>(begin), series.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
  std::vector<ChangePoint> all = change_points(days, rules), left = all;
  while (!left.empty()) {
    const Levels levels(days, left);
    size_t weakest = 0;
    double most = -1;
    for (size_t i = 0; i < left.size(); ++i)
      if (const double doubt = levels.doubt_of(i); doubt > most) most = doubt, weakest = i;
    if (most <= 1) break;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(weakest));
  }
  for (ChangePoint& one : all)
    one.undecided =
        std::none_of(left.begin(), left.end(), [&](const ChangePoint& decided) { return decided.at == one.at; });
  settle_places(days, all, rules.fewest_points);
  for (ChangePoint& one : all) one.at = first_of_day[one.at];
  return all;
}

std::vector<ChangePoint> exact_changes(std::span<const double> series) {
  std::vector<ChangePoint> changes;
  for (size_t i = 1; i < series.size(); ++i)
    if (series[i] != series[i - 1]) changes.push_back({i, series[i - 1], series[i], 0});
  return changes;
}

}  // namespace halfmark::reports
