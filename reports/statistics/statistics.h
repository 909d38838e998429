// Statistics of repeated measurements: order statistics of one series, exact tests and intervals for pairs and for two
// samples, and corrections for many tests at once. Everything here is exact or a definition; nothing assumes a normal
// distribution but the tests of two samples that are large or tied, and the quantile of error ratios.
//
// Sources: Hodges and Lehmann, Ann. Math. Statist. 34, 1963 (estimate); Wilcoxon, Biometrics 1, 1945 (signed ranks);
// Mann and Whitney, Ann. Math. Statist. 18, 1947 (two samples); Hollander and Wolfe, Nonparametric Statistical Methods,
// 3.3 and 4.3 (intervals), 4.1 (ties); Holm, Scand. J. Statist. 6, 1979; Benjamini and Hochberg, J. R. Statist. Soc. B 57, 1995.
#pragma once

#include <span>
#include <vector>

namespace halfmark::reports {

double median(std::vector<double> samples);                  // NaN when empty
double quantile(std::vector<double> samples, double share);  // linear between order statistics (Hyndman and Fan type 7)

// The interval between two order statistics that covers the median with at least this confidence, whatever the
// distribution.
struct MedianInterval {
  double lower, upper;
  int lower_rank, upper_rank;  // 1-based; 0 = too few samples for this confidence, the bounds are then infinite
  double half_width() const { return (upper - lower) / 2; }
};
MedianInterval median_interval(std::vector<double> samples, double confidence = 0.95);

// The median of the means of all pairs of differences, each with itself too. NaN when empty.
double hodges_lehmann(std::span<const double> differences);

// The exact interval around it; the coverage assumes that differences are symmetric about their centre, which the
// random order of two builds sees to. Infinite bounds: too few differences for this confidence.
struct Interval {
  double lower, upper;
};
Interval hodges_lehmann_interval(std::span<const double> differences, double confidence = 0.95);

// The chance that differences symmetric about `centre` rank as high as these or higher: small = they lie above it.
// Equal magnitudes share their mean rank and the sum is rounded down, a difference of exactly `centre` counts as below:
// both err on the side of no finding.
double signed_rank_p(std::span<const double> differences, double centre = 0);
double least_signed_rank_p(int count);  // that `count` differences can reach: 2^-count

// P(W >= sum) of `count` ranks with random signs, W the sum of the positive ones.
double signed_rank_tail(int count, int sum);

// Two samples that nobody paired. The median of all differences b - a; it changes its sign exactly when they are
// swapped.
double shift_between(std::span<const double> a, std::span<const double> b);
// Exact for up to 10000 pairs of values, beyond that by the normal distribution. Infinite bounds: too few values.
Interval shift_interval(std::span<const double> a, std::span<const double> b, double confidence = 0.95);

// The chance that b, less `shift`, ranks as high above a as it does or higher if both come from one distribution (Mann
// and Whitney's U). Exact up to 10000 pairs of values when no two are equal; else by the normal distribution, corrected
// for ties and for continuity.
double rank_sum_p(std::span<const double> a, std::span<const double> b, double shift = 0);
double rank_sum_tail(int a, int b, int sum);  // P(U >= sum) of samples of these sizes
double least_rank_sum_p(int a, int b);        // that they can reach: 1 / C(a + b, a)

// How many times larger the root mean square of `count` independent errors can be than that of as many others, of the
// same size, but for this chance: sqrt(F^-1(1 - chance; count, count)).
double rms_ratio_quantile(double count, double chance);

// The chance that Student's t with this many degrees of freedom lies at least as far from 0 as `t`, on either side.
double two_sided_t_p(double t, double freedom);

// p values corrected for their number, in the order given. Holm: a false finding among all has at most the level's
// chance, whatever depends on what. Benjamini and Hochberg: of the findings at most the level's share is false.
std::vector<double> holm(std::span<const double> p);
std::vector<double> benjamini_hochberg(std::span<const double> p);

}  // namespace halfmark::reports
