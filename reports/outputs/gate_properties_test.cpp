// Property test of the gate on a measured report (reports/fixtures/measured.json): no mutation that hides or worsens
// something ends with exit code 0 and no word. bench/commands/gate_command_test.cpp does the same with a fresh report.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "reports/outputs/gate_mutations_testing.h"

namespace halfmark::reports::gate_test {
namespace {

constexpr size_t kTimes = 25;  // each kind of mutation, on measurements and records drawn at random

Report measured() {
  return Report::load(std::filesystem::path(HALFMARK_SOURCE_DIR) / "reports/fixtures/measured.json");
}

TEST(SlowGateMutations, NoMutationThatHidesOrWorsensSomethingPassesWithoutAWord) {
  const Report report = measured();
  const MutationCounts counts = mutate_all(report, kTimes, {}, "default");
  // What the test would not see: a kind that was never applied, a family of metrics that was never touched.
  for (const auto& [kind, mutation] : mutations()) {
    const auto applied = counts.by_kind.find(kind);
    if (kind == "drop expectation" || kind == "drop interval") continue;  // the report has none
    EXPECT_EQ(applied == counts.by_kind.end() ? 0 : applied->second, kTimes) << kind;
  }
  std::set<std::string> families;
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) families.insert(family_name(one.metric));
  for (const char* family : {"error", "range", "memory", "time", "throughput", "timing", "training", "evaluation",
                             "batchnorm", "accumulation", "work"})
    EXPECT_TRUE(families.contains(family)) << family;
  for (const std::string& family : families) {
    const auto applied = counts.by_family.find(family);
    EXPECT_GE(applied == counts.by_family.end() ? 0 : applied->second, 1u) << family;
  }
  for (const char* code : {"0", "1", "2", "3"}) EXPECT_GT(counts.by_exit.at(code), 20u) << code;
}

TEST(SlowGateMutations, HoldsForTheStrictRulesToo) { mutate_all(measured(), 5, {}, "strict"); }

}  // namespace
}  // namespace halfmark::reports::gate_test
