#include "reports/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace halfmark {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [w] = P(W = w) of the ranks 1 ... count with random signs. Kept: hundreds of cases have the same number of pairs.
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

// The places of p in ascending order.
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
  // The r-th smallest lies above the median with probability P(Binomial(n, 1/2) < r): the largest r for which both
  // tails together stay within 1 - confidence.
  int rank = 0;
  double below = 0;  // P(Binomial(n, 1/2) <= rank - 1)
  for (int r = 1; 2 * r <= n; ++r) {
    below += std::exp(std::lgamma(n + 1.0) - std::lgamma(r + 0.0) - std::lgamma(n - r + 2.0) - n * std::log(2.0));
    if (2 * below > 1 - confidence) break;
    rank = r;
  }
  if (rank == 0) return {-kInfinity, kInfinity, 0, 0};
  return {samples[static_cast<size_t>(rank - 1)], samples[static_cast<size_t>(n - rank)], rank, n - rank + 1};
}

double hodges_lehmann(std::span<const double> differences) { return median(sorted_walsh_averages(differences)); }

Interval hodges_lehmann_interval(std::span<const double> differences, double confidence) {
  const std::vector<double> means = sorted_walsh_averages(differences);
  const std::vector<double>& chance = signed_rank_distribution(static_cast<int>(differences.size()));
  // With K the largest sum of ranks for which P(W <= K) is within half of what may be missed, the interval leaves out
  // the K least means and the K greatest.
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
    const double rank = static_cast<double>(begin + 1 + end) / 2;  // ranks count from 1
    for (; begin < end; ++begin)
      if (shifted[begin] > 0) sum += rank;
  }
  return signed_rank_tail(static_cast<int>(shifted.size()), static_cast<int>(std::floor(sum)));
}

double least_signed_rank_p(int count) { return std::ldexp(1.0, -count); }

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

}  // namespace halfmark
