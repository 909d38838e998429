#include "reports/statistics/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/record/error.h"

namespace halfmark::reports {

namespace {

constexpr size_t kWindow = 50,
                 kStep = 25;  // as in the sources: windows also find levels that are short compared with the series
// Factor by which a split may be weaker before its neighbours are known, because two changes can hide each other.
// Measured on constant series of 20 to 200 points: a false change in 0.1 % of them, as with 10; in 0.5 % with 1000.
constexpr double kFirstPass = 100;

using Points = std::span<const double>;

// The sums of |x_i - x_j| over all pairs left of a split, right of it and across it, updated from split to split.
size_t best_split(Points series, size_t fewest) {
  const size_t n = series.size();
  double left = 0, right = 0, across = 0, best = -1;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) right += std::abs(series[i] - series[j]);
  size_t found = 0;
  for (size_t split = 1; split < n; ++split) {
    // One more point moves from the right to the left.
    double to_left = 0, to_right = 0;
    for (size_t i = 0; i + 1 < split; ++i) to_left += std::abs(series[i] - series[split - 1]);
    for (size_t i = split; i < n; ++i) to_right += std::abs(series[i] - series[split - 1]);
    left += to_left, right -= to_right, across += to_right - to_left;
    if (split < fewest || n - split < fewest) continue;
    const auto a = static_cast<double>(split), b = static_cast<double>(n - split);
    const double energy = a * b / (a + b) * (2 * across / (a * b) - 2 * left / (a * a) - 2 * right / (b * b));
    if (energy > best) best = energy, found = split;
  }
  return found;
}

struct Side {
  double count, mean, squares;  // squares: summed squared differences from the mean
};

Side side_of(Points series) {
  Side side{static_cast<double>(series.size()), 0, 0};
  for (const double x : series) side.mean += x / side.count;
  for (const double x : series) side.squares += (x - side.mean) * (x - side.mean);
  return side;
}

struct Test {
  double p, standard_error;
};

// Student's two-sided t-test of two samples with equal variance.
Test t_test(Points a, Points b) {
  const Side left = side_of(a), right = side_of(b);
  const double freedom = left.count + right.count - 2;
  const double error = std::sqrt((left.squares + right.squares) / freedom * (1 / left.count + 1 / right.count));
  const double difference = std::abs(left.mean - right.mean);
  // Equal up to rounding of the mean: a series without noise.
  const double tiny = 16 * std::numeric_limits<double>::epsilon() * (std::abs(left.mean) + std::abs(right.mean));
  if (difference <= tiny) return {1, error};
  if (error <= tiny) return {0, error};
  return {two_sided_t_p(difference / error, freedom), error};
}

// Splits [begin, end), and recursively the parts on both sides of each split.
void add_splits(Points series, size_t begin, size_t end, const ChangePointRules& rules, std::vector<size_t>& splits) {
  if (end - begin < 2 * rules.fewest_points) return;
  const size_t split = begin + best_split(series.subspan(begin, end - begin), rules.fewest_points);
  if (split == begin) return;
  if (t_test(series.subspan(begin, split - begin), series.subspan(split, end - split)).p > kFirstPass * rules.p) return;
  splits.push_back(split);
  add_splits(series, begin, split, rules, splits);
  add_splits(series, split, end, rules, splits);
}

ChangePoint between(Points series, size_t begin, size_t at, size_t end, const ChangePointRules& rules) {
  const Points before = series.subspan(begin, at - begin), after = series.subspan(at, end - at);
  ChangePoint point{at, median({before.begin(), before.end()}), median({after.begin(), after.end()})};
  if (std::min(before.size(), after.size()) < rules.fewest_points) return point;
  const Test test = t_test(before, after);
  const double change = std::abs(point.change());
  if (change > rules.least && change > rules.errors * test.standard_error) point.p = test.p;
  return point;
}

std::vector<ChangePoint> tested(Points series, const std::vector<size_t>& splits, const ChangePointRules& rules) {
  std::vector<ChangePoint> points;
  for (size_t i = 0; i < splits.size(); ++i)
    points.push_back(between(series, i ? splits[i - 1] : 0, splits[i],
                             i + 1 < splits.size() ? splits[i + 1] : series.size(), rules));
  return points;
}

}  // namespace

std::vector<ChangePoint> change_points(Points series, const ChangePointRules& rules) {
  if (!std::all_of(series.begin(), series.end(), [](double x) { return std::isfinite(x); }))
    throw ReportError("cannot search change points: a value of the series is not finite");
  std::vector<size_t> splits;
  for (size_t begin = 0;; begin += kStep) {
    const size_t end = std::min(begin + kWindow, series.size());
    add_splits(series, begin, end, rules, splits);
    if (end == series.size()) break;
  }
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());

  // The weakest split is dropped first, because its neighbours then have longer sides.
  for (;;) {
    std::vector<ChangePoint> points = tested(series, splits, rules);
    const auto weaker = [](const ChangePoint& a, const ChangePoint& b) {
      return a.p != b.p ? a.p < b.p : std::abs(a.change()) > std::abs(b.change());
    };
    const auto weakest = std::max_element(points.begin(), points.end(), weaker);
    if (weakest == points.end() || weakest->p <= rules.p) return points;
    splits.erase(splits.begin() + (weakest - points.begin()));
  }
}

}  // namespace halfmark::reports
