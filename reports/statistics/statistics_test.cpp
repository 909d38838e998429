// Compares the statistics with examples from textbooks and papers, with scipy, and with full enumeration.
#include "reports/statistics/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace halfmark::reports {
namespace {

TEST(Median, AndQuantilesInterpolate) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(quantile({0, 10}, 0.25), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

// Ranks of the 95 % interval for n samples from the binomial
// distribution, as tables of nonparametric statistics print them.
TEST(MedianInterval, HasTheRanksOfTheTables) {
  const std::pair<int, std::pair<int, int>> rows[] = {{6, {1, 6}},   {8, {1, 8}},    {10, {2, 9}},   {12, {3, 10}},
                                                      {20, {6, 15}}, {30, {10, 21}}, {50, {18, 33}}, {100, {40, 61}}};
  for (const auto& [n, ranks] : rows) {
    std::vector<double> samples;
    for (int i = n; i > 0; --i) samples.push_back(i);
    const MedianInterval interval = median_interval(samples);
    EXPECT_EQ(interval.lower_rank, ranks.first) << n;
    EXPECT_EQ(interval.upper_rank, ranks.second) << n;
    EXPECT_EQ(interval.lower, ranks.first) << n;
    EXPECT_EQ(interval.upper, ranks.second) << n;
  }
}

TEST(MedianInterval, IsInfiniteWithFewerThanSixSamples) {
  const MedianInterval interval = median_interval({1, 2, 3, 4, 5});
  EXPECT_EQ(interval.lower_rank, 0);
  EXPECT_EQ(interval.half_width(), std::numeric_limits<double>::infinity());
}

// A synthetic series of log ratios; the numbers below come from scipy.stats.wilcoxon and from sorting the 78 means.
const std::vector<double> kPairs = {.031, .052, .018, .044, .067, .029, .038, .055, .012, .047, .061, -.004};

TEST(HodgesLehmann, IsTheMedianOfAllMeansOfTwo) {
  EXPECT_NEAR(hodges_lehmann(kPairs), 0.0385, 1e-15);
  EXPECT_NEAR(median(kPairs), 0.0410, 1e-15);
  EXPECT_EQ(hodges_lehmann(std::vector{3.0}), 3);
  EXPECT_TRUE(std::isnan(hodges_lehmann({})));
}

TEST(HodgesLehmann, ChangesItsSignWithTheDifferences) {
  std::vector<double> swapped;
  for (const double x : kPairs) swapped.push_back(-x);
  EXPECT_EQ(hodges_lehmann(swapped), -hodges_lehmann(kPairs));
}

TEST(HodgesLehmann, HasAnExactInterval) {
  const Interval interval = hodges_lehmann_interval(kPairs);
  EXPECT_NEAR(interval.lower, 0.0235, 1e-15);
  EXPECT_NEAR(interval.upper, 0.0525, 1e-15);
  // With five differences, at least 2^-5 lies outside on either side.
  EXPECT_EQ(hodges_lehmann_interval(std::vector<double>{1, 2, 3, 4, 5}).upper, std::numeric_limits<double>::infinity());
  EXPECT_EQ(hodges_lehmann_interval(std::vector<double>{1, 2, 3, 4, 5, 6}).upper, 6);
}

TEST(SignedRank, HasTheExactProbabilities) {
  EXPECT_EQ(signed_rank_p(kPairs), 2.0 / 4096);
  EXPECT_EQ(signed_rank_p(kPairs, std::log(1.01)), 5.0 / 4096);
  const std::vector<double> all_above(24, 0.05);
  EXPECT_EQ(signed_rank_p(all_above, std::log(1.01)), least_signed_rank_p(24));
}

// Tables of critical values, one-sided 0.05, 0.01, 0.001: the smallest significant sum.
TEST(SignedRank, HasTheCriticalValuesOfTheTables) {
  const struct {
    int count, at_5, at_1, at_01;
  } rows[] = {{8, 31, 35, 0},      {10, 45, 50, 55},    {12, 61, 69, 76},    {14, 80, 90, 99},
              {16, 101, 113, 125}, {18, 124, 139, 153}, {20, 150, 167, 184}, {24, 209, 231, 255}};
  for (const auto& row : rows)
    for (const auto& [level, least] : {std::pair{0.05, row.at_5}, {0.01, row.at_1}, {0.001, row.at_01}}) {
      if (least == 0) {
        EXPECT_GT(least_signed_rank_p(row.count), level);
        continue;
      }
      EXPECT_LE(signed_rank_tail(row.count, least), level) << row.count;
      EXPECT_GT(signed_rank_tail(row.count, least - 1), level) << row.count;
    }
}

// The definition of the p value: the share of all 2^n choices of signs whose rank sum is at least as high.
TEST(SignedRank, CountsEveryChoiceOfSigns) {
  for (const std::vector<double>& x : {std::vector{1.0, -2.0, 3.0, 4.0, -5.0, 6.0, 7.5}, {-1.0, -2.0, 0.5}, {2.0}}) {
    const auto sum_of = [&](uint64_t signs) {
      int sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        int rank = 1;
        for (const double other : x) rank += std::fabs(other) < std::fabs(x[i]);
        if (signs >> i & 1) sum += rank;
      }
      return sum;
    };
    uint64_t given = 0, as_high = 0;
    for (size_t i = 0; i < x.size(); ++i) given |= uint64_t{x[i] > 0} << i;
    for (uint64_t signs = 0; signs < uint64_t{1} << x.size(); ++signs) as_high += sum_of(signs) >= sum_of(given);
    EXPECT_EQ(signed_rank_p(x), std::ldexp(static_cast<double>(as_high), -static_cast<int>(x.size())));
  }
}

TEST(SignedRank, IsConservativeForTiesAndZeros) {
  // Ranks 1.5, 1.5, 3, of which 1.5 and 3 are positive: 4.5 counts as 4, P(W >= 4) = 3/8.
  EXPECT_EQ(signed_rank_p(std::vector{1.0, -1.0, 2.0}), 3.0 / 8);
  EXPECT_EQ(signed_rank_p(std::vector{0.0, 1.0, 2.0}), signed_rank_p(std::vector{-0.5, 1.0, 2.0}));
  EXPECT_EQ(signed_rank_p(std::vector{0.0, 0.0}), 1);
}

// The fifteen p values of Benjamini and Hochberg 1995, section 4.1 (thrombolysis in myocardial infarction).
const std::vector<double> kMany = {.0001, .0004, .0019, .0095, .0201, .0278, .0298, .0344,
                                   .0459, .3240, .4262, .5719, .6528, .7590, 1.0};

size_t rejected(const std::vector<double>& adjusted, double level) {
  return static_cast<size_t>(std::count_if(adjusted.begin(), adjusted.end(), [&](double p) { return p <= level; }));
}

TEST(ManyTests, AreCorrectedByHolm) {
  const std::vector<double> adjusted = holm(kMany);
  const double expected[] = {.0015, .0056, .0247, .1140, .2211, .2780, .2780, .2780, .3213, 1, 1, 1, 1, 1, 1};
  for (size_t i = 0; i < kMany.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 5.1e-5) << i;
  EXPECT_EQ(rejected(adjusted, .05), 3u);
}

TEST(ManyTests, AreCorrectedByBenjaminiAndHochberg) {
  const std::vector<double> adjusted = benjamini_hochberg(kMany);
  const double expected[] = {.0015, .0030, .0095, .0356, .0603, .0639, .0639, .0645,
                             .0765, .4860, .5812, .7149, .7532, .8132, 1};
  for (size_t i = 0; i < kMany.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 5.1e-5) << i;
  EXPECT_EQ(rejected(adjusted, .05), 4u);
}

TEST(ManyTests, KeepTheGivenOrder) {
  const std::vector<double> backwards(kMany.rbegin(), kMany.rend()), adjusted = holm(backwards), forwards = holm(kMany);
  EXPECT_EQ(std::vector<double>(adjusted.rbegin(), adjusted.rend()), forwards);
}

// Two synthetic samples. The p values come from scipy.stats.mannwhitneyu(b, a, alternative="greater", method="exact")
// of scipy 1.10, the rest from sorting the 72 differences.
const std::vector<double> kFirst = {.031, .052, .018, .044, .067, .029, .038, .055};
const std::vector<double> kSecond = {.012, .047, .061, -.004, .071, .083, .058, .091, .066};

TEST(RankSum, HasTheExactPValuesOfScipy) {
  EXPECT_NEAR(rank_sum_p(kFirst, kSecond), 0.0997943233237351, 1e-14);
  EXPECT_NEAR(rank_sum_p(kSecond, kFirst), 0.9164129987659398, 1e-14);
  EXPECT_NEAR(rank_sum_p(kFirst, kSecond, 0.0205), 0.6285067873303168, 1e-14);
}

TEST(RankSum, HasTheTailsOfLargeSamples) {
  EXPECT_NEAR(rank_sum_tail(24, 24, 288), 0.504074023400345, 1e-12);
  EXPECT_NEAR(rank_sum_tail(24, 24, 400), 0.010257434824602197, 1e-13);
  EXPECT_NEAR(rank_sum_tail(24, 24, 500) / 1.6298646099878955e-06, 1, 1e-12);
  EXPECT_NEAR(rank_sum_tail(24, 24, 576) / 3.101005612159858e-14, 1, 1e-12);
  EXPECT_NEAR(least_rank_sum_p(24, 24) / 3.101005612159858e-14, 1, 1e-10);
  EXPECT_EQ(rank_sum_tail(3, 4, 13), 0);
  EXPECT_NEAR(rank_sum_tail(3, 4, 0), 1, 1e-15);
}

// Counted by hand: how many of the 20 ways to split 1 ... 6 into two threes reach U >= u.
TEST(RankSum, CountsEveryAssignmentOfTheRanks) {
  const int reach[] = {20, 19, 18, 16, 13, 10, 7, 4, 2, 1, 0};
  for (int u = 0; u <= 10; ++u) EXPECT_NEAR(rank_sum_tail(3, 3, u), reach[u] / 20.0, 1e-15) << u;
}

TEST(RankSum, CorrectsTheNormalDistributionForTiesAndContinuity) {
  const std::vector<double> a = {1, 2, 2, 3, 5, 5, 7, 9}, b = {2, 4, 5, 5, 6, 8, 9, 9, 11};
  EXPECT_NEAR(rank_sum_p(a, b), 0.06574966659741059, 1e-13);  // scipy, method="asymptotic"
  EXPECT_EQ(rank_sum_p(std::vector<double>(24, 1.0), std::vector<double>(24, 1.0)), 1);
}

TEST(RankSum, UsesTheNormalDistributionForVeryLargeSamples) {
  std::vector<double> a, b;
  for (int i = 0; i < 110; ++i) a.push_back(2 * i), b.push_back((2 * i - 9) * 1.05);
  EXPECT_NEAR(rank_sum_p(a, b), 0.6721713514636769, 1e-12);  // scipy, method="asymptotic"
}

TEST(RankSum, IsSmallestIfAllOfBAreLarger) {
  const std::vector<double> a = {1, 2, 3, 4}, b = {5, 6, 7, 8, 9};
  EXPECT_NEAR(rank_sum_p(a, b), 1 / 126.0, 1e-15);
  EXPECT_NEAR(rank_sum_p(a, b), least_rank_sum_p(4, 5), 1e-14);
  EXPECT_EQ(rank_sum_p(a, std::vector<double>{}), 1);
}

TEST(Shift, IsTheMedianOfAllDifferencesAndChangesItsSignExactly) {
  EXPECT_NEAR(shift_between(kFirst, kSecond), 0.0175, 1e-15);
  EXPECT_EQ(shift_between(kFirst, kSecond), -shift_between(kSecond, kFirst));
  EXPECT_TRUE(std::isnan(shift_between(kFirst, std::vector<double>{})));
}

TEST(Shift, HasAnExactInterval) {
  const Interval interval = shift_interval(kFirst, kSecond);  // K = 15
  EXPECT_NEAR(interval.lower, -0.017, 1e-15);
  EXPECT_NEAR(interval.upper, 0.039, 1e-15);
  const Interval none = shift_interval(std::vector{1.0, 2.0}, std::vector{3.0, 4.0});
  EXPECT_EQ(none.lower, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(none.upper, std::numeric_limits<double>::infinity());
}

// Just above the largest exact size, the interval by the normal
// distribution is almost equal to the exact interval of the size below.
TEST(Shift, HasAnIntervalOfLargeSamples) {
  const auto width_of = [](int count) {
    std::vector<double> a, b;
    for (int i = 0; i < count; ++i) a.push_back(i / double(count)), b.push_back(1 + (i + 0.5) / count);
    const Interval interval = shift_interval(a, b);
    EXPECT_LT(interval.lower, 1) << count;
    EXPECT_GT(interval.upper, 1) << count;
    return interval.upper - interval.lower;
  };
  EXPECT_NEAR(width_of(101) / width_of(100), std::sqrt(100.0 / 101), 0.01);
}

// 2 * scipy.stats.t.sf(t, freedom) of scipy 1.10.
TEST(StudentsT, HasTheTwoSidedTailsOfScipy) {
  const double rows[][3] = {{0, 3, 1.0},
                            {1, 1, 0.49999999999999956},
                            {2.5, 4, 0.06676654481198813},
                            {3.3, 18, 0.003981306977226002},
                            {10, 48, 2.5329075677351385e-13},
                            {40, 98, 1.6633877203685742e-62},
                            {0.001, 7, 0.9992300172449988}};
  for (const auto& [t, freedom, expected] : rows)
    EXPECT_NEAR(two_sided_t_p(t, freedom) / expected, 1, 1e-9) << t << " " << freedom;
  EXPECT_EQ(two_sided_t_p(-2.5, 4), two_sided_t_p(2.5, 4));
}

// sqrt(n / scipy.stats.chi2.ppf(0.05, n)) of scipy 1.10.
TEST(RmsUpperFactor, HasTheValuesOfScipy) {
  const std::pair<double, double> rows[] = {{1, 15.947239402183659},
                                            {4, 2.372355691409756},
                                            {9, 1.6451975743942215},
                                            {19, 1.3704103976822324},
                                            {99, 1.133552433969973}};
  for (const auto& [count, expected] : rows) EXPECT_NEAR(rms_upper_factor(count, 0.05) / expected, 1, 1e-10) << count;
}

// sqrt(scipy.stats.f.isf(1e-6, n, n)) of scipy 1.10; the gate's reference
// rounds some of them to 6.3, 3.3, 2.0, 1.63, 1.24, 1.16, 1.015.
TEST(RmsRatio, HasTheQuantilesOfScipy) {
  const std::pair<double, double> rows[] = {
      {1, 636619.7723487514},    {2, 999.9994999854972},     {10, 6.325786603513969},
      {20, 3.2570813107806833},  {50, 2.0166297379974774},   {100, 1.6251093739107199},
      {500, 1.2379888280230396}, {1000, 1.1625750241401354}, {1e5, 1.0151455163877554},
  };
  for (const auto& [count, expected] : rows) EXPECT_NEAR(rms_ratio_quantile(count, 1e-6) / expected, 1, 1e-8) << count;
}

// Expected values: tables of the normal distribution and of Student's t.
TEST(Statistics, KnowsTheUpperTailsOfNormalAndStudent) {
  EXPECT_NEAR(normal_quantile_above(0.025), 1.959963985, 1e-8);
  EXPECT_NEAR(upper_normal_p(2.326347874), 0.01, 1e-9);
  EXPECT_NEAR(upper_normal_p(-1), 1 - upper_normal_p(1), 1e-15);
  EXPECT_NEAR(upper_t_p(2.228138852, 10), 0.025, 1e-9);
  EXPECT_NEAR(upper_t_p(-2.228138852, 10), 0.975, 1e-9);
}

// 1 - 0.05^(1/n) if nothing was found (the rule of three); the other value is from scipy.stats.beta.
TEST(Statistics, BoundsARateByTheNumberOfRuns) {
  EXPECT_NEAR(rate_bound(0, 299), 0.009969, 1e-6);
  EXPECT_NEAR(rate_bound(4, 1000), 0.009130, 1e-6);
  EXPECT_EQ(rate_bound(3, 3), 1);
}

}  // namespace
}  // namespace halfmark::reports
