// Statistics of repeated measurements: order statistics of one series, exact tests and intervals for pairs and for two
// samples, and corrections for multiple tests. Everything is exact or a definition. Only two parts assume a normal
// distribution: the tests of two large or tied samples, and the quantile of error ratios.
//
// Sources: Hodges and Lehmann, Ann. Math. Statist. 34, 1963 (estimate); Wilcoxon, Biometrics
// 1, 1945 (signed ranks); Mann and Whitney, Ann. Math. Statist. 18, 1947 (two samples);
// Hollander and Wolfe, Nonparametric Statistical Methods, 3.3 and 4.3 (intervals), 4.1 (ties);
// Holm, Scand. J. Statist. 6, 1979; Benjamini and Hochberg, J. R. Statist. Soc. B 57, 1995.
#pragma once

#include <span>
#include <vector>

namespace halfmark::reports {

double median(std::vector<double> samples);                  // NaN when empty
double quantile(std::vector<double> samples, double share);  // linear between order statistics (Hyndman and Fan type 7)

// The interval between two order statistics that covers the median with at least this confidence, for any distribution.
struct MedianInterval {
  double lower, upper;
  int lower_rank, upper_rank;  // 1-based; 0 = too few samples for this confidence, the bounds are then infinite
  double half_width() const { return (upper - lower) / 2; }
};
MedianInterval median_interval(std::vector<double> samples, double confidence = 0.95);

// The median of the means of all pairs of differences, including each with itself. NaN when empty.
double hodges_lehmann(std::span<const double> differences);

// The exact interval around the estimate. Its coverage assumes differences that are symmetric about their centre; the
// random order of the two builds ensures this. Infinite bounds: too few differences for this confidence.
struct Interval {
  double lower, upper;
};
Interval hodges_lehmann_interval(std::span<const double> differences, double confidence = 0.95);

// One-sided p value of the signed-rank test: the probability that differences symmetric about `centre` rank as high as
// these or higher; small = they lie above `centre`. Equal magnitudes get their mean rank and the sum is rounded down; a
// difference equal to `centre` counts as below it. Both make the test conservative.
double signed_rank_p(std::span<const double> differences, double centre = 0);
double least_signed_rank_p(int count);  // the smallest p value of `count` differences: 2^-count

// P(W >= sum) of `count` ranks with random signs, W the sum of the positive ones.
double signed_rank_tail(int count, int sum);

// The shift between two unpaired samples: the median of all differences
// b - a. It changes its sign exactly when the samples are swapped.
double shift_between(std::span<const double> a, std::span<const double> b);
// Exact for up to 10000 pairs of values, otherwise by the normal distribution. Infinite bounds: too few values.
Interval shift_interval(std::span<const double> a, std::span<const double> b, double confidence = 0.95);

// One-sided p value of the Mann-Whitney U test: the probability that b - `shift` ranks as high above a or higher if
// both have the same distribution. Exact up to 10000 pairs of values without ties; otherwise by the normal
// distribution, corrected for ties and for continuity.
double rank_sum_p(std::span<const double> a, std::span<const double> b, double shift = 0);
double rank_sum_tail(int a, int b, int sum);  // P(U >= sum) of samples of these sizes
double least_rank_sum_p(int a, int b);        // the smallest p value of these sizes: 1 / C(a + b, a)

// How many times larger than the root mean square of `freedom` independent normal values their true standard deviation
// can be; the probability that it is still larger is `chance`: sqrt(freedom / chi-square^-1(chance; freedom)).
double rms_upper_factor(double freedom, double chance);

// The ratio that the root mean squares of two sets of `count` independent errors of equal size exceed only with
// probability `chance`: sqrt(F^-1(1 - chance; count, count)).
double rms_ratio_quantile(double count, double chance);

// Two-sided p value of Student's t with this many degrees of freedom: P(|T| >= |t|).
double two_sided_t_p(double t, double freedom);

// One-sided: P(T >= t) of Student's t, and P(Z >= z) of a standard normal value; and the z with P(Z >= z) = chance.
double upper_t_p(double t, double freedom);
double upper_t_quantile(double chance, double freedom);  // the t with P(T >= t) = chance
double upper_normal_p(double z);
double normal_quantile_above(double chance);

// Upper bound of a rate of which `found` cases were seen in `runs` runs: Clopper and Pearson, Biometrika 26, 1934.
// 299 runs without a find give 1 %.
double rate_bound(int found, int runs, double confidence = 0.95);

// p values corrected for their number, in the given order. Holm limits the probability of any false rejection to the
// level, for any dependence. Benjamini and Hochberg limits the expected share of false rejections to the level.
std::vector<double> holm(std::span<const double> p);
std::vector<double> benjamini_hochberg(std::span<const double> p);

}  // namespace halfmark::reports
