// The gate on findings of the linter: a new one fails, also if another one went; one that stays does not.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reports/gate/gate_testing.h"

namespace halfmark::reports::gate_test {
namespace {

// Rules with the number that each has: 1 found, 0 not.
Report with_rules(const std::vector<std::pair<std::string, double>>& rules) {
  Report report = made_report();
  double count = 0;
  for (const auto& [rule, found] : rules) {
    report.records[0].measurements.push_back(number("lint.finding", rule, found, Kind::exact));
    report.records[0].measurements.push_back(
        number("lint.evidence", rule, found * 65536, Kind::information, Better::neither));
    count += found;
  }
  report.records[0].measurements.push_back(number("lint.findings", "", count, Kind::exact));
  return report;
}

bool fails(const Report& base, const Report& found, const std::string& rules = "default") {
  return !lines_with(gate(base, found, {}, rules), Outcome::breach).empty();
}

TEST(GateLint, FailsForANewFinding) {
  for (const char* rules : {"default", "strict"}) {
    EXPECT_FALSE(fails(with_rules({{"stale_cast", 0}}), with_rules({{"stale_cast", 0}}), rules));
    EXPECT_TRUE(fails(with_rules({{"stale_cast", 0}}), with_rules({{"stale_cast", 1}}), rules));
    EXPECT_FALSE(fails(with_rules({{"stale_cast", 1}}), with_rules({{"stale_cast", 1}}), rules)) << "known before";
    EXPECT_FALSE(fails(with_rules({{"stale_cast", 1}}), with_rules({{"stale_cast", 0}}), rules)) << "mended";
  }
}

TEST(GateLint, FailsForANewFindingThatReplacesAnother) {
  EXPECT_TRUE(
      fails(with_rules({{"stale_cast", 1}, {"half_update", 0}}), with_rules({{"stale_cast", 0}, {"half_update", 1}})));
}

TEST(GateLint, TakesARuleThatTheBaseDidNotHaveAsSilentThere) {
  EXPECT_FALSE(fails(made_report(), with_rules({{"stale_cast", 0}})));
  EXPECT_TRUE(fails(made_report(), with_rules({{"stale_cast", 1}})));
}

TEST(GateLint, MissesTheFindingsOfARecordThatIsNoLongerExamined) {
  for (const char* rules : {"default", "strict"})
    for (const double before : {0.0, 1.0}) {
      const Judgement judgement = gate(with_rules({{"stale_cast", before}}), made_report(), {}, rules);
      EXPECT_FALSE(lines_with(judgement, Outcome::lost).empty()) << rules << " " << before;
      EXPECT_TRUE(lines_with(gate(made_report(), with_rules({{"stale_cast", 0}}), {}, rules), Outcome::lost).empty());
    }
}

TEST(GateLint, DoesNotJudgeTheEvidence) {
  Report found = with_rules({{"stale_cast", 1}});
  for (Measurement& one : found.records[0].measurements)
    if (one.metric == "lint.evidence") one.value *= 100;
  EXPECT_FALSE(fails(with_rules({{"stale_cast", 1}}), found));
}

}  // namespace
}  // namespace halfmark::reports::gate_test
