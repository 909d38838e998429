// Property test of the gate on a measured report (reports/fixtures/measured.json): no mutation that hides or worsens
// something ends with exit code 0 and no word. bench/commands/gate_command_test.cpp does the same with a fresh report.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <set>
#include <string>

#include "reports/outputs/gate_mutations_testing.h"
#include "reports/record/paths_testing.h"
#include "reports/statistics/noise_testing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::reports::gate_test {
namespace {

// Each kind of mutation, on measurements and records drawn at random. HALFMARK_LONG=1: three times as many.
const size_t kTimes = simulates_in_full() ? 24 : 8;

Report measured() {
  return Report::load(std::filesystem::path(test_folders::source()) / "reports/fixtures/measured.json");
}

TEST(SlowGateMutations, NoMutationThatHidesOrWorsensSomethingPassesWithoutAWord) {
  const Report report = measured();
  const MutationCounts counts = mutate_all(report, kTimes, {}, "default");
  // What the test would not see: a kind that was never applied, a family of metrics that was never touched.
  for (const auto& [kind, mutation] : mutations()) {
    const auto applied = counts.by_kind.find(kind);
    if (kind == "drop expectation") continue;  // the report has none
    EXPECT_EQ(applied == counts.by_kind.end() ? 0 : applied->second, kTimes) << kind;
  }
  std::set<std::string> families;
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) families.insert(family_name(one.metric));
  for (const char* family : {"error", "range", "memory", "time", "throughput", "timing", "training", "evaluation",
                             "batchnorm", "accumulation", "work", "speedup"})
    EXPECT_TRUE(families.contains(family)) << family;
  for (const std::string& family : families) {
    const auto applied = counts.by_family.find(family);
    EXPECT_GE(applied == counts.by_family.end() ? 0 : applied->second, 1u) << family;
  }
  for (const char* code : {"0", "1", "2", "3"}) EXPECT_GE(counts.by_exit.at(code), kTimes) << code;
}

TEST(SlowGateMutations, HoldsForTheStrictRulesToo) { mutate_all(measured(), kTimes / 4, {}, "strict"); }

// The report as if each case had been measured in 24 processes, whose times vary by 1 % (standard deviation).
Report with_processes(Report report) {
  std::mt19937_64 random(1);
  for (Record& record : report.records) {
    if (record.status != Status::ok || !find(record, "time.step", "hot")) continue;
    const double seconds = find(record, "time.step", "hot")->value;
    Measurement process = *find(record, "time.step", "hot");
    process.metric = std::string(kProcessTime), process.interval.reset(), process.samples.clear();
    for (int i = 0; i < 24; ++i) {
      double z = -6;  // a sum of twelve uniform numbers is nearly normal
      for (int k = 0; k < 12; ++k) z += static_cast<double>(random() >> 11) * 0x1p-53;
      process.samples.push_back(seconds * std::exp(0.01 * z));
    }
    process.value = median(process.samples);
    std::erase_if(record.measurements, [](const Measurement& one) { return one.metric == kProcessTime; });
    record.measurements.push_back(process);
    record.determinism = {24, 0};
  }
  return report;
}

TEST(SlowGateMutations, HoldsWhenTimesAreTested) {
  const Report report = with_processes(measured());
  const Judgement same = judge({"base", report}, {"new", report}, load_gate_rules("default"), {.time = true});
  ASSERT_GE(same.timing.cases.size(), 3u);
  const MutationCounts counts = mutate_all(report, kTimes / 4, {.time = true}, "default");
  EXPECT_GE(counts.by_family.at("time"), kTimes);
}

}  // namespace
}  // namespace halfmark::reports::gate_test
