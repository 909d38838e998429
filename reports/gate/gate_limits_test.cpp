// The limits of the shipped rules, with a change that each lets pass and one that fails: an edit of a rule must be an edit here.
#include <gtest/gtest.h>

#include <string>

#include "reports/gate/gate_testing.h"

namespace halfmark::reports::gate_test {
namespace {

struct LimitOfRule {
  const char* metric;
  double base, within, beyond;
  Better better = Better::lower;
};

constexpr LimitOfRule kLimits[] = {
    {"error.nan", 0, 0, 1e-6},
    {"error.cosine", 0.99, 0.9885, 0.987, Better::higher},
    {"error.zeroed", 0.1, 0.104, 0.106},
    {"range.headroom", 5, 4.1, 3.9, Better::higher},
    {"range.underflow", 0.1, 0.1009, 0.1012},
    {"range.nonfinite", 0, 0, 1e-6},
    {"lint.finding", 0, 0, 1},
    {"lint.findings", 0, 0, 1},
    {"sanity.scale_mismatches", 0, 0, 1},
    {"sanity.skipped_steps", 0, 0, 1},
    {"sanity.gradient_ratio", 1, 1.009, 1.011},
    {"dtypes.bits", 32, 32, 31, Better::higher},
    {"same_bits.equal", 1, 1, 0, Better::higher},
    {"conversion.changed", 0, 0, 1e-6},
    {"capacity.batch", 1000, 991, 989, Better::higher},
    {"traffic.bytes", 1000, 1009, 1011},
    {"loss_scale.plateau", 19, 17, 16, Better::higher},
    {"loss_scale.first_good", 3, 5, 6},
    {"loss_scale.dynamic_skipped", 0, 0.019, 0.021},
    {"underflow.zero", 0.3, 0.304, 0.306},
    {"scaling.changed", 0.9, 0.904, 0.906},
    {"exponent.lost", 0.1, 0.104, 0.106},
    {"mantissa.trained_control", 1, 1, 0, Better::higher},
    {"cast_cache.casts", 10, 10, 11},
    {"cast_lists.idle", 3, 3, 4},
    {"reduction.overflow", 10, 10, 11},
    {"row_statistics.safe_widths", 0.5, 0.481, 0.479, Better::higher},
    {"mask.leaked", 0, 0.0009, 0.0011},
    {"batchnorm_statistics.stalled", 0.1, 0.104, 0.106},
    {"all_reduce.zero", 0.1, 0.104, 0.106},
    {"batchnorm.nonfinite_statistics", 0, 0, 1e-6},
    {"training.skipped_steps", 3, 5, 6},
    {"quantization.operands", 24, 24, 25},
    {"memory.slope", 0, 0, 1},
};

Report with_number(const LimitOfRule& limit, double value) {
  Report report = made_report();
  report.records[0].measurements.clear(), report.records[0].series.clear();
  report.records[0].measurements.push_back(number(limit.metric, "place", value, Kind::bounded, limit.better));
  report.records.resize(1);
  return report;
}

TEST(GateLimits, LetPassWhatIsWithinAndFailWhatIsBeyond) {
  for (const LimitOfRule& limit : kLimits) {
    const Report base = with_number(limit, limit.base);
    const auto breaches = [&](double value) {
      return lines_with(gate(base, with_number(limit, value)), Outcome::breach).size();
    };
    EXPECT_EQ(breaches(limit.within), 0u) << limit.metric << " within";
    EXPECT_EQ(breaches(limit.beyond), 1u) << limit.metric << " beyond";
  }
}

}  // namespace
}  // namespace halfmark::reports::gate_test
