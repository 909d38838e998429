// Whole suites on a software GPU: every case is measured, or refused with the reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "bench/software_gpu_testing.h"
#include "reports/record/record.h"

namespace halfmark::bench {
namespace {

void expect_ok_or_refused(const Ran& run) {
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  ASSERT_TRUE(run.report);
  EXPECT_TRUE(run.report->run.complete);
  size_t ok = 0;
  for (const Record& record : run.report->records) {
    EXPECT_TRUE(record.status == Status::ok || record.status == Status::skipped) << record.id << ": " << record.reason;
    EXPECT_NE(record.status == Status::ok, !record.reason.empty()) << record.id << ": " << record.reason;
    if (record.status == Status::ok) ++ok;
  }
  EXPECT_GT(ok, run.report->records.size() / 2);
}

class SoftwareGpuSuites : public SoftwareGpu {};

TEST_F(SoftwareGpuSuites, TheSmokeSuiteIsMeasuredOrRefusedWithTheReason) {
  const Ran run = ran("", "run --suite smoke --device cuda:0");
  expect_ok_or_refused(run);
  ASSERT_TRUE(run.report);
  EXPECT_GT(run.report->records.size(), 80u);
}

constexpr int kShards = 16;

class SoftwareGpuQuickSuite : public SoftwareGpu, public testing::WithParamInterface<int> {};

// HALFMARK_LONG=1: the quick suite, which takes a quarter of an hour, in parts.
TEST_P(SoftwareGpuQuickSuite, IsMeasuredOrRefusedWithTheReason) {
  if (!std::getenv("HALFMARK_LONG")) GTEST_SKIP() << "takes a minute: with HALFMARK_LONG=1 only";
  expect_ok_or_refused(ran("", fmt::format("run --suite quick --device cuda:0 --shard {}/{}", GetParam(), kShards)));
}

INSTANTIATE_TEST_SUITE_P(Part, SoftwareGpuQuickSuite, testing::Range(1, kShards + 1));

}  // namespace
}  // namespace halfmark::bench
