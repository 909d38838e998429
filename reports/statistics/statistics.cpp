#include "reports/statistics/statistics.h"

#include <algorithm>
#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/fisher_f.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace halfmark::reports {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [w] = P(W = w) of the ranks 1 ... count with random signs. Cached: hundreds of cases have the same number of pairs.
const std::vector<double>& signed_rank_distribution(int count) {
  thread_local std::map<int, std::vector<double>> known;
  std::vector<double>& chance = known[count];
  if (!chance.empty()) return chance;
  const auto ranks = static_cast<size_t>(count);
  chance.resize(ranks * (ranks + 1) / 2 + 1);
  chance[0] = 1;
  size_t highest = 0;
  for (int rank = 1; rank <= count; ++rank) {
    const auto step = static_cast<size_t>(rank);
    highest += step;
    for (size_t w = highest + 1; w-- > 0;) chance[w] = (chance[w] + (w >= step ? chance[w - step] : 0)) / 2;
  }
  return chance;
}

std::vector<double> sorted_walsh_averages(std::span<const double> differences) {
  std::vector<double> means;
  means.reserve(differences.size() * (differences.size() + 1) / 2);
  for (size_t i = 0; i < differences.size(); ++i)
    for (size_t j = i; j < differences.size(); ++j) means.push_back((differences[i] + differences[j]) / 2);
  std::sort(means.begin(), means.end());
  return means;
}

constexpr size_t kMostExactPairs = 10000;  // computing the distribution of U takes its square in additions

// [u] = P(U = u) for samples of these sizes, by recursion: remove the largest of all values, which is from a or from b.
const std::vector<double>& rank_sum_distribution(size_t a, size_t b) {
  thread_local std::map<std::pair<size_t, size_t>, std::vector<double>> known;
  std::vector<double>& chance = known[{a, b}];
  if (!chance.empty()) return chance;
  std::vector<std::vector<double>> row(b + 1, std::vector<double>{1});  // of 0 values of a and j of b
  for (size_t i = 1; i <= a; ++i)
    for (size_t j = 1; j <= b; ++j) {
      // If the largest is from b, it is above all i values of a. If it is from a, it adds nothing.
      const std::vector<double>&left = row[j - 1], &above = row[j];
      const double share = static_cast<double>(j) / static_cast<double>(i + j);
      std::vector<double> next(i * j + 1, 0.0);
      for (size_t u = 0; u < left.size(); ++u) next[u + i] += share * left[u];
      for (size_t u = 0; u < above.size(); ++u) next[u] += (1 - share) * above[u];
      row[j] = std::move(next);
    }
  return chance = std::move(row[b]);
}

std::vector<double> sorted_differences(std::span<const double> a, std::span<const double> b) {
  std::vector<double> all;
  all.reserve(a.size() * b.size());
  for (const double x : a)
    for (const double y : b) all.push_back(y - x);
  std::sort(all.begin(), all.end());
  return all;
}

// Overflow of a quantile gives infinity instead of an exception.
using Policy =
    boost::math::policies::policy<boost::math::policies::overflow_error<boost::math::policies::ignore_error>>;

double normal_tail(double z) {
  return boost::math::cdf(boost::math::complement(boost::math::normal_distribution<double, Policy>(), z));
}

// The indices of p in ascending order.
std::vector<size_t> ascending(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  return order;
}

}  // namespace

double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
}

double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

MedianInterval median_interval(std::vector<double> samples, double confidence) {
  std::sort(samples.begin(), samples.end());
  const int n = static_cast<int>(samples.size());
  // The r-th smallest value is above the median with probability P(Binomial(n, 1/2) < r). Finds the largest r for which
  // both tails together are at most 1 - confidence.
  const boost::math::binomial_distribution<double, Policy> smaller(n, 0.5);
  int rank = 0;  // by bisection, because this is called often during sampling
  for (int too_large = n / 2 + 1; too_large - rank > 1;) {
    const int middle = (rank + too_large) / 2;
    (2 * boost::math::cdf(smaller, middle - 1) <= 1 - confidence ? rank : too_large) = middle;
  }
  if (rank == 0) return {-kInfinity, kInfinity, 0, 0};
  return {samples[static_cast<size_t>(rank - 1)], samples[static_cast<size_t>(n - rank)], rank, n - rank + 1};
}

double hodges_lehmann(std::span<const double> differences) { return median(sorted_walsh_averages(differences)); }

Interval hodges_lehmann_interval(std::span<const double> differences, double confidence) {
  const std::vector<double> means = sorted_walsh_averages(differences);
  const std::vector<double>& chance = signed_rank_distribution(static_cast<int>(differences.size()));
  // Let K be the largest rank sum with P(W <= K) <= (1 - confidence) /
  // 2. The interval excludes the K smallest and the K largest means.
  size_t sums = 0;  // K + 1
  for (double below = 0; sums < chance.size(); ++sums) {
    below += chance[sums];
    if (below > (1 - confidence) / 2) break;
  }
  if (sums == 0 || 2 * sums > means.size()) return {-kInfinity, kInfinity};
  return {means[sums - 1], means[means.size() - sums]};
}

double signed_rank_tail(int count, int sum) {
  const std::vector<double>& chance = signed_rank_distribution(count);
  const auto first = static_cast<size_t>(std::clamp(sum, 0, static_cast<int>(chance.size())));
  return std::accumulate(chance.begin() + static_cast<std::ptrdiff_t>(first), chance.end(), 0.0);
}

double signed_rank_p(std::span<const double> differences, double centre) {
  std::vector<double> shifted;
  for (const double x : differences) shifted.push_back(x - centre);
  std::sort(shifted.begin(), shifted.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  double sum = 0;
  for (size_t begin = 0; begin < shifted.size();) {
    size_t end = begin;
    while (end < shifted.size() && std::fabs(shifted[end]) == std::fabs(shifted[begin])) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2;  // ranks start at 1
    for (; begin < end; ++begin)
      if (shifted[begin] > 0) sum += rank;
  }
  return signed_rank_tail(static_cast<int>(shifted.size()), static_cast<int>(std::floor(sum)));
}

double least_signed_rank_p(int count) { return std::ldexp(1.0, -count); }

double shift_between(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> all = sorted_differences(a, b);
  if (all.empty()) return std::numeric_limits<double>::quiet_NaN();
  return (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
}

Interval shift_interval(std::span<const double> a, std::span<const double> b, double confidence) {
  const std::vector<double> all = sorted_differences(a, b);
  const double each_side = (1 - confidence) / 2;
  size_t sums = 0;  // K + 1, with K the largest U for which P(U <= K) is at most the error allowed on one side
  if (all.size() <= kMostExactPairs) {
    const std::vector<double>& chance = rank_sum_distribution(a.size(), b.size());
    for (double below = 0; sums < chance.size(); ++sums) {
      below += chance[sums];
      if (below > each_side) break;
    }
  } else {
    const auto pairs = static_cast<double>(all.size());
    const double deviation = std::sqrt(pairs * static_cast<double>(a.size() + b.size() + 1) / 12);
    while (normal_tail((pairs / 2 - static_cast<double>(sums) - 0.5) / deviation) <= each_side) ++sums;
  }
  if (sums == 0 || 2 * sums > all.size()) return {-kInfinity, kInfinity};
  return {all[sums - 1], all[all.size() - sums]};
}

double rank_sum_tail(int a, int b, int sum) {
  const std::vector<double>& chance = rank_sum_distribution(static_cast<size_t>(a), static_cast<size_t>(b));
  const auto count = static_cast<size_t>(std::clamp(sum, 0, static_cast<int>(chance.size())));
  // Adds the smallest terms first.
  return std::accumulate(chance.rbegin(), chance.rend() - static_cast<std::ptrdiff_t>(count), 0.0);
}

double rank_sum_p(std::span<const double> a, std::span<const double> b, double shift) {
  std::vector<std::pair<double, bool>> all;  // value, is from b
  for (const double x : a) all.emplace_back(x, false);
  for (const double x : b) all.emplace_back(x - shift, true);
  std::sort(all.begin(), all.end());
  double sum = 0, ties = 0;  // U, and the sum of t^3 - t over groups of t equal values
  double below = 0;          // values of a below the current one
  for (size_t begin = 0; begin < all.size();) {
    double of_a = 0, of_b = 0;
    size_t end = begin;
    for (; end < all.size() && all[end].first == all[begin].first; ++end) ++(all[end].second ? of_b : of_a);
    sum += of_b * (below + of_a / 2);
    below += of_a;
    const double equal = of_a + of_b;
    ties += equal * equal * equal - equal;
    begin = end;
  }
  const size_t pairs = a.size() * b.size();
  if (pairs == 0) return 1;
  if (ties == 0 && pairs <= kMostExactPairs)
    return rank_sum_tail(static_cast<int>(a.size()), static_cast<int>(b.size()), static_cast<int>(sum));
  const auto count = static_cast<double>(all.size()), expected = static_cast<double>(pairs) / 2;
  const double variance = static_cast<double>(pairs) / 12 * (count + 1 - ties / (count * (count - 1)));
  return variance > 0 ? normal_tail((sum - expected - 0.5) / std::sqrt(variance)) : 1;
}

double least_rank_sum_p(int a, int b) {
  return std::exp(std::lgamma(a + 1.0) + std::lgamma(b + 1.0) - std::lgamma(a + b + 1.0));
}

double two_sided_t_p(double t, double freedom) {
  const boost::math::students_t_distribution<double, Policy> student(freedom);
  return 2 * boost::math::cdf(boost::math::complement(student, std::fabs(t)));
}

double upper_t_p(double t, double freedom) {
  const boost::math::students_t_distribution<double, Policy> student(freedom);
  return boost::math::cdf(boost::math::complement(student, t));
}

double upper_t_quantile(double chance, double freedom) {
  const boost::math::students_t_distribution<double, Policy> student(freedom);
  return boost::math::quantile(boost::math::complement(student, chance));
}

double upper_normal_p(double z) { return normal_tail(z); }

double normal_quantile_above(double chance) {
  return boost::math::quantile(boost::math::complement(boost::math::normal_distribution<double, Policy>(), chance));
}

double rate_bound(int found, int runs, double confidence) {
  if (found >= runs) return 1;
  const boost::math::beta_distribution<double, Policy> rate(found + 1.0, static_cast<double>(runs - found));
  return boost::math::quantile(rate, confidence);
}

double rms_upper_factor(double freedom, double chance) {
  const boost::math::chi_squared_distribution<double, Policy> squares(freedom);
  return std::sqrt(freedom / boost::math::quantile(squares, chance));
}

double rms_ratio_quantile(double count, double chance) {
  const double freedom = std::max(count, 1.0);
  const boost::math::fisher_f_distribution<double, Policy> ratio_of_squares(freedom, freedom);
  return std::sqrt(boost::math::quantile(boost::math::complement(ratio_of_squares, chance)));
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<double> adjusted(p.size());
  const std::vector<size_t> order = ascending(p);
  double least = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    least = std::max(least, std::min(1.0, static_cast<double>(p.size() - k) * p[order[k]]));
    adjusted[order[k]] = least;
  }
  return adjusted;
}

std::vector<double> benjamini_hochberg(std::span<const double> p) {
  std::vector<double> adjusted(p.size());
  const std::vector<size_t> order = ascending(p);
  double most = 1;
  for (size_t k = order.size(); k-- > 0;) {
    most = std::min(most, static_cast<double>(p.size()) / static_cast<double>(k + 1) * p[order[k]]);
    adjusted[order[k]] = most;
  }
  return adjusted;
}

}  // namespace halfmark::reports
