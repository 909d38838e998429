// Tests of single numbers under their rules: limits by number of values, slack, NaN, zeros, missing numbers.
#include "reports/gate/gate_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/record/folder_testing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports::gate_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

NumberVerdict judged(const NumberRule& rule, const Measurement& base, double found, bool proved = true) {
  Measurement other = base;
  other.value = found;
  const Record record = made_report().records[0];
  return judge_number(rule, base, other, {record, record, proved});
}

NumberRule ratio_rule(double elements) {
  NumberRule rule;
  rule.judge = Judging::ratio, rule.squared = true, rule.elements = elements;
  return rule;
}

NumberRule slack_rule(double absolute, double share) {
  NumberRule rule;
  rule.judge = Judging::slack, rule.absolute = absolute, rule.share = share;
  return rule;
}

TEST(NumberUnderRatio, MayGrowByTheScatterOfItsNumberOfValues) {
  for (const double elements : {10.0, 20.0, 50.0, 500.0}) {
    const double most = rms_ratio_quantile(elements, 1e-6);
    const Measurement base = number("error.nmse", "output", 1e-8);
    EXPECT_EQ(judged(ratio_rule(elements), base, 1e-8 * most * most * 0.9999, true).outcome, Outcome::pass) << elements;
    EXPECT_EQ(judged(ratio_rule(elements), base, 1e-8 * most * most * 1.0001, true).outcome, Outcome::breach)
        << elements;
  }
}

TEST(NumberUnderRatio, MayGrowByFivePerCentWhenProvedAndByAQuarterWhenNot) {
  const Measurement base = number("error.nmse", "output", 1e-8);
  for (const auto& [proved, least] : {std::pair(true, 1.05), std::pair(false, 1.25)}) {
    EXPECT_EQ(judged(ratio_rule(1e6), base, 1e-8 * least * least * 0.9999, proved).outcome, Outcome::pass);
    EXPECT_EQ(judged(ratio_rule(1e6), base, 1e-8 * least * least * 1.0001, proved).outcome, Outcome::breach);
  }
}

TEST(NumberUnderRatio, NeverGoesBelowZeroAndNeverToZeroUnnoticed) {
  const Measurement base = number("error.nmse", "output", 1e-8);
  EXPECT_EQ(judged(ratio_rule(1e6), base, -1).outcome, Outcome::breach);
  EXPECT_EQ(judged(ratio_rule(1e6), base, 0).outcome, Outcome::untrusted);
  EXPECT_EQ(judged(ratio_rule(1), base, 0).outcome, Outcome::untrusted) << "a single value, or no histogram";
}

TEST(TheGapOfTheEvaluation, IsWorseFartherFromZeroOnEitherSide) {
  for (const char* rules : {"default", "strict"})
    for (const double gap : {-100.0, 100.0}) {
      Report base = made_report();
      base.records[0].measurements.push_back(number("evaluation.gap", "", 0.0001));
      Report found = base;
      found.records[0].measurements.back().value = gap;
      EXPECT_NE(words_of(gate(base, found, {}, rules), Question::accuracy, Outcome::breach), "") << rules << gap;
    }
}

// Each of these changes of a definition would make the limit wider or reverse it.
TEST(NumberDefinedOtherwise, IsLost) {
  const Report base = made_report();
  const auto lost = [&](auto change) {
    Report found = base;
    change(found.records[0]);
    const Judgement judgement = gate(base, found);
    return words_of(judgement, Question::accuracy, Outcome::lost);
  };
  const auto says = [](const std::string& words, const std::string& part) { return words.find(part) != words.npos; };
  EXPECT_EQ(lost([](Record&) {}), "");
  EXPECT_TRUE(says(lost([](Record& one) { one.series.clear(); }), "ulp_histogram at that place is missing"));
  EXPECT_TRUE(says(lost([](Record& one) { one.series[0].y = {0, 0}; }), "ulp_histogram at that place is missing"));
  EXPECT_TRUE(says(lost([](Record& one) { at(one, "error.cosine").better = Better::lower; }), "direction"));
  EXPECT_TRUE(says(lost([](Record& one) { at(one, "error.nmse").unit = "MiB"; }), "its unit is MiB, was 1"));
  EXPECT_TRUE(says(lost([](Record& one) { at(one, "error.arithmetic.nmse").bound.reset(); }), "no bound of its own"));
  EXPECT_EQ(lost([](Record& one) { at(one, "error.arithmetic.nmse").bound = 2e-6; }), "");
  EXPECT_TRUE(says(lost([](Record& one) { at(one, "error.arithmetic.nmse").bound = 2.1e-6; }), "its own bound is"));
}

TEST(NumberUnderAnyRule, ProvesNothingOutsideItsRange) {
  const std::vector<std::tuple<int, std::string, double>> impossible = {{0, "error.cosine", 5}, {1, "memory.peak", 0}};
  for (const char* rules : {"default", "strict"})
    for (const auto& [record, metric, value] : impossible) {
      Report found = made_report();
      at(found.records[static_cast<size_t>(record)], metric).value = value;
      const auto lines = lines_with(gate(made_report(), found, {}, rules), Outcome::untrusted);
      ASSERT_EQ(lines.size(), 1u) << rules << " " << metric;
      EXPECT_EQ(lines[0].metric, metric);
    }
}

TEST(NumberUnderRatio, OfFewValuesPassesWithTheWidthOfItsLimit) {
  EXPECT_EQ(words_of(gate(made_report(), made_report()), Question::accuracy, Outcome::pass),
            "6 numbers within the rules");
  Report both = made_report();
  both.records[0].measurements.push_back(number("error.nmse", "loss", 1e-8));
  const Judgement judgement = gate(both, both);
  EXPECT_SAYS(words_of(judgement, Question::accuracy, Outcome::pass),
              "7 numbers within the rules; 1 of them has too few values for a narrow limit");
  ASSERT_EQ(judgement.remarks.size(), 1u);
  EXPECT_SAYS(judgement.remarks[0], "1 error of few values may grow up to ");
}

// Fewer values on the new side would give a wider limit.
TEST(NumberUnderRatio, CountsTheValuesOfTheSideThatHasMore) {
  Report base = made_report(), found = made_report();
  at(found.records[0], "error.nmse").value *= 9;
  EXPECT_EQ(gate(base, found).exit_code, 1);
  found.records[0].series[0].y = {1, 1};
  EXPECT_EQ(gate(base, found).exit_code, 1);
}

TEST(NumberUnderRatio, CountsTheValuesInTheHistogramAtTheSamePlace) {
  NumberRule rule = ratio_rule(1);
  rule.elements_in = "error.ulp_histogram";
  const Record record = made_report().records[0];
  EXPECT_EQ(elements_of(rule, number("error.nmse", "output", 1), record), 65536);
  EXPECT_EQ(elements_of(rule, number("error.nmse", "loss", 1), record), 1);
  rule.most_elements = 25;
  const double most = rms_ratio_quantile(25, 1e-6);
  const Measurement base = number("error.nmse", "output", 1e-8);
  EXPECT_EQ(judged(rule, base, 1e-8 * most * most * 0.999).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, base, 1e-8 * most * most * 1.001).outcome, Outcome::breach);
}

TEST(NumberUnderRatio, GetsARemarkForLostBitsBelowTheLimit) {
  NumberRule rule = ratio_rule(1000);
  rule.least_ratio = 4, rule.bits_warn = 0.5, rule.bits_fail = 1;
  const Measurement base = number("error.nmse", "output", 1e-8);
  EXPECT_TRUE(judged(rule, base, 1e-8 * std::exp2(2 * 0.49)).remark.empty());
  EXPECT_SAYS(judged(rule, base, 1e-8 * std::exp2(2 * 0.51)).remark, "0.51 bits lost");
  EXPECT_EQ(judged(rule, base, 1e-8 * std::exp2(2 * 0.99)).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, base, 1e-8 * std::exp2(2 * 1.01)).outcome, Outcome::breach);
  rule.elements = 20;  // the error of so few values may double by chance
  EXPECT_EQ(judged(rule, base, 1e-8 * std::exp2(2 * 1.5)).outcome, Outcome::pass);
}

TEST(NumberUnderRatio, MayGrowFromAnErrorOfZeroByTiny) {
  NumberRule rule = ratio_rule(1000);
  const Measurement base = number("error.nmse", "output", 0);
  EXPECT_EQ(judged(rule, base, 0).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, base, 1e-30).outcome, Outcome::breach);
  rule.tiny = 1e-8;
  EXPECT_EQ(judged(rule, base, 0.9e-16).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, base, 1.1e-16).outcome, Outcome::breach);
}

TEST(NumberUnderRatio, ReportsTheGrowthAndTheLimit) {
  const NumberVerdict verdict = judged(ratio_rule(500), number("error.nmse", "output", 1e-8), 4e-8);
  EXPECT_SAYS(verdict.words, "error.nmse at output is 4e-08, was 1e-08");
  EXPECT_SAYS(verdict.words, "2.00x the error, 1 bits lost");
  EXPECT_SAYS(verdict.words, "allows 1.24x for 500 values");
  EXPECT_NEAR(verdict.limit, 1e-8 * 1.2379888 * 1.2379888, 1e-14);
}

TEST(NumberUnderSlack, MayBeWorseByTheGreaterOfAmountAndShare) {
  const NumberRule rule = slack_rule(1 << 20, 0.01);
  const double mib = 1 << 20;
  const Measurement small = number("memory.peak", "train", 10 * mib, Kind::exact);
  EXPECT_EQ(judged(rule, small, 11 * mib).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, small, 11 * mib + 1).outcome, Outcome::breach);
  EXPECT_EQ(judged(rule, small, 9 * mib - 1).outcome, Outcome::improved);
  const Measurement large = number("memory.peak", "train", 1000 * mib, Kind::exact);
  EXPECT_EQ(judged(rule, large, 1010 * mib).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, large, 1010 * mib + 1).outcome, Outcome::breach);
  NumberRule capped = rule;
  capped.absolute_share = 0.1;
  const Measurement tiny = number("memory.peak", "train", 0.5 * mib, Kind::exact);
  EXPECT_EQ(judged(rule, tiny, 1.5 * mib).outcome, Outcome::pass);
  EXPECT_EQ(judged(capped, tiny, 0.54 * mib).outcome, Outcome::pass);
  EXPECT_EQ(judged(capped, tiny, 0.56 * mib).outcome, Outcome::breach) << "less than 1 MiB, but more than a tenth";
  EXPECT_SAYS(judged(capped, tiny, 0.56 * mib).words, "the greater of 51.2 KiB and 1%");
  EXPECT_EQ(judged(capped, large, 1010 * mib).outcome, Outcome::pass);
  const Measurement none = number("memory.peak", "train", 0, Kind::exact);
  EXPECT_EQ(judged(rule, none, mib).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, none, mib + 1).outcome, Outcome::breach);
  EXPECT_EQ(judged(rule, none, 0).outcome, Outcome::pass);
  EXPECT_SAYS(judged(rule, none, 2 * mib).words, "2 MiB, was 0 B");
}

TEST(NumberUnderSlack, MayBeWorseByStandardErrorsOfTheDifference) {
  NumberRule rule = slack_rule(0, 0);
  rule.standard_errors = 4;
  Measurement base = number("evaluation.accuracy", "fp32", 0.8, Kind::bounded, Better::higher), found = base;
  base.standard_error = 0.003, found.standard_error = 0.004;  // of the difference: 0.005
  const Record record = made_report().records[0];
  const auto verdict = [&](double value) {
    found.value = value;
    return judge_number(rule, base, found, {record, record, true});
  };
  EXPECT_EQ(verdict(0.7801).outcome, Outcome::pass);
  EXPECT_EQ(verdict(0.7799).outcome, Outcome::breach);
  EXPECT_SAYS(verdict(0.7799).words, "the rule allows 0.02 worse than the base, 4 standard errors of the difference");
  EXPECT_EQ(verdict(0.8201).outcome, Outcome::improved);
  EXPECT_EQ(verdict(kNaN).outcome, Outcome::breach);
  rule.absolute = 0.05;
  EXPECT_EQ(verdict(0.7501).outcome, Outcome::pass);
  EXPECT_SAYS(verdict(0.7499).words, "the greater of 0.05 and 4 standard errors of the difference");
}

TEST(NumberUnderSlack, IsNotComparedWithoutTheStandardErrorThatItsRuleNeeds) {
  for (const char* rules : {"default", "strict"}) {
    Report base = made_report(), found = base;
    Measurement accuracy = number("evaluation.accuracy", "fp32", 0.8, Kind::bounded, Better::higher);
    found.records[0].measurements.push_back(accuracy);
    accuracy.standard_error = 0.0125;
    base.records[0].measurements.push_back(accuracy);
    EXPECT_SAYS(words_of(gate(base, found, {}, rules), Question::accuracy, Outcome::lost), "standard error");
    // The other way round the base is older than standard errors: nothing was hidden, but nothing is proved.
    EXPECT_SAYS(words_of(gate(found, base, {}, rules), Question::accuracy, Outcome::untrusted),
                "the base has no standard error");
    Report moved = base;
    moved.records[0].measurements.back().value = 0.7;
    EXPECT_SAYS(words_of(gate(found, moved, {}, rules), Question::accuracy, Outcome::inconclusive),
                "the base has no standard error");
    EXPECT_EQ(gate(found, moved, {}, rules).exit_code, 3) << rules;
    EXPECT_EQ(words_of(gate(base, base, {}, rules), Question::accuracy, Outcome::untrusted), "") << rules;
  }
}

TEST(NumberUnderSlack, OfFewerHeldOutSamplesIsAChange) {
  for (const char* rules : {"default", "strict"}) {
    Report base = made_report();
    base.records[0].measurements.push_back(number("evaluation.samples", "", 1024, Kind::exact, Better::neither));
    Report found = base;
    found.records[0].measurements.back().value = 16;
    EXPECT_NE(words_of(gate(base, found, {}, rules), Question::accuracy, Outcome::breach), "") << rules;
  }
}

TEST(NumberUnderSlack, KnowsWhichSideIsWorse) {
  const NumberRule rule = slack_rule(0.1, 0);
  const Measurement higher = number("error.cosine", "output", 0.9, Kind::bounded, Better::higher);
  EXPECT_EQ(judged(rule, higher, 0.81).outcome, Outcome::pass);
  EXPECT_EQ(judged(rule, higher, 0.79).outcome, Outcome::breach);
  EXPECT_EQ(judged(rule, higher, 1.01).outcome, Outcome::improved);
  const Measurement neither = number("x.y", "", 5, Kind::exact, Better::neither);
  EXPECT_EQ(judged(rule, neither, 5.2).outcome, Outcome::breach);
  EXPECT_EQ(judged(rule, neither, 4.8).outcome, Outcome::breach);
  NumberRule magnitude = rule;
  magnitude.magnitude = true;
  EXPECT_EQ(judged(magnitude, neither, -5.05).outcome, Outcome::pass);
  EXPECT_EQ(judged(magnitude, neither, -5.2).outcome, Outcome::breach);
  EXPECT_EQ(judged(magnitude, neither, 0).outcome, Outcome::improved);
}

TEST(NumberUnderAnyRule, IsBrokenByANaNThatTheBaseDoesNotHave) {
  const Measurement base = number("error.nmse", "output", 1e-8);
  EXPECT_EQ(judged(ratio_rule(100), base, kNaN).outcome, Outcome::breach);
  EXPECT_SAYS(judged(ratio_rule(100), base, kNaN).words, "a NaN breaks every limit");
  for (const Better better : {Better::lower, Better::higher, Better::neither})
    for (const bool magnitude : {false, true}) {
      NumberRule rule = slack_rule(1e300, 1e300);
      rule.magnitude = magnitude;
      EXPECT_EQ(judged(rule, number("x.y", "", 1, Kind::exact, better), kNaN).outcome, Outcome::breach);
    }
  NumberRule own;
  own.judge = Judging::bound;
  Measurement bounded = base;
  bounded.bound = 1e300;
  EXPECT_EQ(judged(own, bounded, kNaN).outcome, Outcome::breach);
}

TEST(NumberUnderAnyRule, MustKeepItsOwnBoundOnTheWorseSide) {
  for (const auto& [better, good, bad] :
       {std::tuple(Better::lower, 1.0, 1.1), {Better::higher, 1.0, 0.9}, {Better::neither, -1.0, -1.1}}) {
    Measurement one = number("x.y", "", good, Kind::bounded, better);
    one.bound = 1;
    EXPECT_FALSE(judge_own_bound(one));
    one.value = bad;
    ASSERT_TRUE(judge_own_bound(one));
    EXPECT_EQ(judge_own_bound(one)->outcome, Outcome::breach);
    one.value = kNaN;
    EXPECT_TRUE(judge_own_bound(one));
    one.bound.reset();
    EXPECT_FALSE(judge_own_bound(one));
  }
}

TEST(NumberUnderAnyRule, ProvesNothingIfBothAreNaN) {
  const Measurement base = number("error.nmse", "output", kNaN);
  EXPECT_EQ(judged(ratio_rule(100), base, kNaN).outcome, Outcome::untrusted);
  EXPECT_EQ(judged(slack_rule(1, 0), base, kNaN).outcome, Outcome::untrusted);
  EXPECT_EQ(judged(ratio_rule(100), base, 1).outcome, Outcome::improved);
}

TEST(NumberUnderAnyRule, TreatsInfinityAsWorseThanAnyNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(judged(ratio_rule(100), number("error.nmse", "output", 1), infinity).outcome, Outcome::breach);
  EXPECT_EQ(judged(ratio_rule(100), number("error.nmse", "output", infinity), infinity).outcome, Outcome::pass);
  EXPECT_EQ(judged(ratio_rule(100), number("error.nmse", "output", infinity), 1).outcome, Outcome::improved);
  EXPECT_EQ(judged(slack_rule(1, 0), number("x.y", "", infinity), infinity).outcome, Outcome::pass);
  EXPECT_EQ(judged(slack_rule(1, 0), number("x.y", "", 1), infinity).outcome, Outcome::breach);
}

TEST(NumberUnderInformation, IsNeverJudged) {
  Measurement base = number("x.y", "", 1);
  base.bound = 2;
  EXPECT_EQ(judged(NumberRule{}, base, 1e9).outcome, Outcome::information);
}

TEST(NumberUnderSlack, IsJudgedEvenWithoutAnySlack) {
  const Measurement base = number("error.nan", "output", 0);
  EXPECT_LT(judged(slack_rule(0, 0), base, 0.1).times_limit, judged(slack_rule(0, 0), base, 0.2).times_limit);
  EXPECT_LT(judged(slack_rule(0, 0), base, 1e9).times_limit, judged(slack_rule(0, 0), base, kNaN).times_limit);
}

// Numbers of a whole record, through the gate.
TEST(GateNumbers, MemoryGrowthOfAByteIsAChangeAndOfTwoPerCentARegression) {
  Report found = made_report();
  at(found.records[1], "memory.peak").value += 1;
  Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_SAYS(words_of(judgement, Question::memory, Outcome::changed), "209715201 B, was 209715200 B");
  EXPECT_EQ(gate(made_report(), found, {.strict_bits = true}).exit_code, 1);
  Report elsewhere = found;  // another library needs another workspace
  elsewhere.environment["libraries"]["onednn"] = "3.1.1";
  EXPECT_EQ(gate(made_report(), elsewhere, {.strict_bits = true}).exit_code, 0);
  EXPECT_EQ(gate(made_report(), found, {}, "strict").exit_code, 1);
  at(found.records[1], "memory.peak").value = 1.02 * (200 << 20);
  at(found.records[1], "memory.peak.casts").value = 12 << 20;
  judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(words_of(judgement, Question::memory, Outcome::breach), "204 MiB, was 200 MiB (2% worse)");
  EXPECT_SAYS(words_of(judgement, Question::memory, Outcome::breach), "grown at train: casts +4 MiB");
  EXPECT_EQ(word_of(judgement.lines[0].question, judgement.lines[0].outcome), "REGRESSION");
}

TEST(GateNumbers, ALeakOfAByteIsARegression) {
  Report found = made_report();
  at(found.records[1], "memory.slope").value = 1;
  EXPECT_EQ(gate(made_report(), found).exit_code, 1);
}

TEST(GateNumbers, AMissingNumberIsLost) {
  Report found = made_report();
  found.records[0].measurements.erase(found.records[0].measurements.begin());
  const Judgement judgement = gate(made_report(), found);
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_SAYS(words_of(judgement, Question::accuracy, Outcome::lost), "error.nmse at output was 2e-07");
  // Numbers that are only information may disappear.
  Report less = made_report();
  std::erase_if(less.records[0].measurements,
                [](const Measurement& one) { return one.metric == "error.max_relative"; });
  EXPECT_EQ(gate(made_report(), less).exit_code, 0);
}

TEST(GateNumbers, ANewNumberMustKeepItsOwnBoundOnly) {
  Report found = made_report();
  found.records[0].measurements.push_back(number("error.nmse", "gradient/fc", 0.5));
  EXPECT_EQ(gate(made_report(), found).exit_code, 0);
  found.records[0].measurements.back().bound = 0.4;
  EXPECT_EQ(gate(made_report(), found).exit_code, 1);
}

TEST(GateNumbers, ATensorThatBecomesNonFiniteFails) {
  Report found = made_report();
  found.records[0].measurements.push_back(number("range.first_nonfinite", "activation/fc2", 3));
  EXPECT_EQ(gate(made_report(), found).exit_code, 1);
  Report base = made_report();
  base.records[0].measurements.push_back(number("range.first_nonfinite", "activation/fc1", 3));
  EXPECT_EQ(gate(base, found).exit_code, 0);  // equally many, but a different first tensor
  EXPECT_EQ(lines_with(gate(base, made_report()), Outcome::improved).size(), 1u);
}

// The base has no casts of this kind, or none that overflow.
TEST(GateNumbers, ACastThatOverflowsWhereTheBaseHasNoneFails) {
  for (const char* metric : {"range.cast_overflow", "range.cast_underflow"}) {
    Report found = made_report();
    found.records[0].measurements.push_back(number(metric, "casts/gradients/f32-f16", 0.01, Kind::bounded));
    EXPECT_EQ(gate(made_report(), found).exit_code, 1) << metric;
  }
}

TEST(GateNumbers, ASpreadTwiceAsLargeIsAChange) {
  const auto report = [](std::vector<double> values) {
    Report made = made_report();
    made.records[0].determinism = {static_cast<int>(values.size()), 1};
    made.records[0].measurements = {number("error.nmse", "output", 3e-7)};
    made.records[0].measurements[0].samples = std::move(values);
    return made;
  };
  const std::vector<double> close{3e-7, 2.9e-7, 2.8e-7, 3e-7, 2.5e-7}, wide{3e-7, 2e-7, 1e-7, 3e-7, 3e-7};
  const auto changed = [&](const Report& base, const Report& found) {
    return lines_with(gate(base, found), Outcome::changed);
  };
  EXPECT_TRUE(changed(report(close), report(close)).empty());
  EXPECT_TRUE(changed(report(wide), report(close)).empty());
  EXPECT_TRUE(changed(report({3e-7, 3e-7, 3e-7, 3e-7}), report(wide)).empty()) << "four processes are too few";
  const auto lines = changed(report(close), report(wide));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_SAYS(lines[0].words, "the values of 5 processes differ by up to 3.00x, before 1.20x: less reproducible");
}

TEST(GateNumbers, AMetricWithoutARuleGetsARemarkAndMustKeepItsBound) {
  Report found = made_report();
  found.records[0].measurements.push_back(number("novel.metric", "", 1));
  Judgement judgement = gate(found, found);
  EXPECT_EQ(judgement.exit_code, 0);
  ASSERT_EQ(judgement.remarks.size(), 1u);
  EXPECT_SAYS(judgement.remarks[0], "no rule matches novel.metric");
  found.records[0].measurements.back().bound = 0.5;
  EXPECT_EQ(gate(found, found).exit_code, 1);
}

TEST(GateNumbers, OneLineReportsTheWorstPlaceAndNamesTheOthers) {
  Report base = made_report(), found;
  for (const char* place : {"gradient/a", "gradient/b", "gradient/c"})
    base.records[0].measurements.push_back(number("error.nmse", place, 1e-8));
  found = base;
  for (Measurement& one : found.records[0].measurements)
    if (one.at.starts_with("gradient/")) one.value = one.at == "gradient/b" ? 1e9 : 1e8;
  const auto lines = lines_with(gate(base, found), Outcome::breach);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at, "gradient/b");
  EXPECT_SAYS(lines[0].words, "also at gradient/a, gradient/c");
}

}  // namespace
}  // namespace halfmark::reports::gate_test
