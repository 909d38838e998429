// Tests of the row_statistics harness: where sums of squares overflow and vanish follows from the format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include "accuracy/experiments/experiment_testing.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kRowNorms[] = {"layernorm/b6_d12", "rmsnorm/b6_d12", "linear/b4_i16_o8_w1"};

// Measured once for each subject and policy.
const Findings& rows_under(const char* subject, const char* policy, const char* epsilon = "1e-05") {
  static std::map<std::array<std::string, 3>, Findings> known;
  const auto [found, is_new] = known.try_emplace({subject, policy, epsilon});
  if (is_new)
    found->second = findings_of(row_statistics_harness(), experiment_trial(subject, policy, {{"epsilon", epsilon}}));
  return found->second;
}

TEST(RowStatistics, OverflowInFp16AndNotInFp32UnderAutocastOrInBf16) {
  for (const char* subject : kRowNorms)
    for (const char* policy : {"fp16", "fp32", "amp-fp16", "bf16"}) {
      const TrialSpec spec = experiment_trial(subject, policy);
      const Findings& found = rows_under(subject, policy);
      EXPECT_TRUE(meets_expectation(row_statistics_harness(), spec, found)) << subject << " " << policy;
      EXPECT_EQ(number_at(found, "row_statistics.nonfinite", "policy") > 0, std::string(policy) == "fp16")
          << subject << " " << policy;
      EXPECT_EQ(number_at(found, "row_statistics.safe_widths", "fp32"), 1) << subject << " " << policy;
    }
}

// n values of standard deviation s have n s^2 (1 +- sqrt(2 / n)) as the sum of their squares.
TEST(RowStatistics, OverflowWhereTheSumOfSquaresExceeds65504) {
  const Findings& found = rows_under("rmsnorm/b6_d12", "fp16");
  int decided = 0;
  for (const double width : {64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0})
    for (const double size : {0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4}) {
      const double sum = width * size * size, spread = 5 * std::sqrt(2 / width);
      const std::string at = "low_result/width=" + std::to_string(static_cast<int>(width));
      const double error = curve_at(found, "row_statistics.error", at, size);
      const bool overflows = sum * (1 - spread) > 65520;
      if (!overflows && sum * (1 + spread) >= 65504) continue;
      ++decided;
      EXPECT_EQ(std::isinf(error), overflows) << at << " " << size;
      EXPECT_TRUE(overflows || error < 0x1p-9) << at << " " << size;
    }
  EXPECT_GE(decided, 57);
}

// The mean of squares of 1e-4 is 1e-8, below half the least subnormal of fp16, 2^-25.
TEST(RowStatistics, VanishForSmallValuesInFp16) {
  for (const char* policy : {"fp16", "bf16", "fp32"}) {
    const Findings& found = rows_under("rmsnorm/b6_d12", policy);
    EXPECT_EQ(number_at(found, "row_statistics.vanished", "low_result") > 0, std::string(policy) == "fp16") << policy;
    EXPECT_EQ(number_at(found, "row_statistics.vanished", "fp32"), 0) << policy;
  }
}

// A weight norm takes the sum, not the mean: 64 squares of 1e-4 are 6.4e-7, which fp16 still holds with a few bits.
TEST(RowStatistics, OfAWeightNormAreSums) {
  const Findings& found = rows_under("linear/b4_i16_o8_w1", "fp16");
  EXPECT_EQ(number_at(found, "row_statistics.vanished", "low_result"), 0);
  EXPECT_TRUE(std::isinf(curve_at(found, "row_statistics.error", "low_result/width=64", 100)));
  EXPECT_LT(curve_at(found, "row_statistics.error", "low_result/width=64", 1e-3), 0x1p-9);
}

// A width without any safe size is not safe.
TEST(RowStatistics, SafeWidthsAreThoseWithASafeSize) {
  const Findings& found = rows_under("linear/b4_i16_o8_w1", "fp16");
  for (const Series& curve : found.series) {
    if (curve.metric != "row_statistics.safe_to") continue;
    const auto safe = static_cast<double>(std::ranges::count_if(curve.y, [](double size) { return size > 0; }));
    EXPECT_EQ(number_at(found, "row_statistics.safe_widths", curve.at), safe / static_cast<double>(curve.y.size()))
        << curve.at;
  }
  EXPECT_LT(number_at(found, "row_statistics.safe_widths", "low_sum"), 1);
  EXPECT_GT(number_at(found, "row_statistics.safe_widths", "low_sum"), 0);
}

// The region is found again from the curves of the errors: 2^-9 is four unit roundoffs of fp16.
TEST(RowStatistics, TheSafeRegionHasErrorsUpToFourUnitRoundoffs) {
  const Findings& found = rows_under("linear/b4_i16_o8_w1", "fp16");
  const double limit = 4 * 0x1p-11;
  int curves = 0;
  for (const Series& safe : found.series) {
    if (safe.metric != "row_statistics.safe_to" && safe.metric != "row_statistics.safe_from") continue;
    const bool is_up = safe.metric == "row_statistics.safe_to";
    for (size_t i = 0; i < safe.x.size(); ++i) {
      const std::string at = fmt::format("{}/width={:.0f}", safe.at, safe.x[i]);
      const auto errors = std::ranges::find_if(
          found.series, [&](const Series& one) { return one.metric == "row_statistics.error" && one.at == at; });
      ASSERT_NE(errors, found.series.end()) << at;
      double reached = is_up ? 0 : HUGE_VAL;
      const auto take = [&](size_t j) {
        if (errors->y[j] > limit) return false;
        reached = errors->x[j];
        return true;
      };
      const auto centre = static_cast<size_t>(std::ranges::find(errors->x, 1.0) - errors->x.begin());
      if (is_up)
        for (size_t j = centre; j < errors->x.size() && take(j);) ++j;
      else
        for (size_t j = centre + 1; j > 0 && take(j - 1);) --j;
      EXPECT_EQ(safe.y[i], reached) << safe.metric << " " << at;
    }
    ++curves;
  }
  EXPECT_GT(curves, 2);
}

TEST(RowStatistics, AddedInFp16LoseWideRows) {
  const Findings& found = rows_under("rmsnorm/b6_d12", "fp16");
  // With 65,536 equal terms the sum would stop at 2048 terms: an error of the root of 1 - 2048 / 65536 and less for random ones.
  EXPECT_GT(curve_at(found, "row_statistics.error", "low_sum/width=65536", 0.01), 0.1);
  EXPECT_LT(curve_at(found, "row_statistics.error", "low_sum/width=64", 0.1), 64 * 0x1p-11);
  EXPECT_EQ(number_at(found, "row_statistics.output_nonfinite"), 0);
}

TEST(RowStatistics, RoundSmallEpsilonsToZeroInFp16) {
  EXPECT_EQ(number_at(rows_under("layernorm/b6_d12", "fp16"), "row_statistics.zero_row_nan", "policy"), 0);
  EXPECT_EQ(number_at(rows_under("layernorm/b6_d12", "fp16", "1e-08"), "row_statistics.epsilon", "policy"), 0);
  EXPECT_EQ(number_at(rows_under("layernorm/b6_d12", "fp16", "1e-08"), "row_statistics.zero_row_nan", "policy"), 1);
  EXPECT_EQ(number_at(rows_under("layernorm/b6_d12", "amp-fp16", "1e-08"), "row_statistics.zero_row_nan", "policy"), 0);
  // The fp16 number nearest to 1e-5 is 168 * 2^-24 = 1.0014e-5.
  EXPECT_NEAR(number_at(rows_under("layernorm/b6_d12", "fp16"), "row_statistics.epsilon", "policy"), 1.0014e-5, 5e-10);
}

TEST(RowStatistics, NeedANorm) {
  EXPECT_TRUE(refusal_of(row_statistics_harness(), experiment_trial("linear/b4_i16_o8", "fp16")));
  EXPECT_TRUE(refusal_of(row_statistics_harness(), experiment_trial("softmax/b6_d12", "fp16")));
}

}  // namespace
}  // namespace halfmark::accuracy
