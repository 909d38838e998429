// The program on a software GPU: what a report says of memory beside that of tensors.
#include <gtest/gtest.h>

#include <string>

#include "bench/software_gpu_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

constexpr double kBefore = 1e9, kAfter = 1.7e9;  // bytes in use on the GPU, as NVML says
constexpr const char* kCase = "run --no-probes --case linear/b4_i16_o8/cuda:0/fp16/memory";

// The first time that it is asked, there is no context yet.
TEST_F(SoftwareGpu, MemoryOfContextAndLibrariesIsWhatCameIntoUseBesideTheDevicesBlocks) {
  const Ran run = ran("HALFMARK_SOFTWARE_NVML=memory_used=1000000000@1-1,memory_used=1700000000", kCase);
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  const Record& record = run.report->records.at(0);
  const Measurement *pool = find(record, "memory.pool"), *beside = find(record, "memory.beside"),
                    *peak = find(record, "memory.peak", "train");
  ASSERT_TRUE(pool && beside && peak);
  EXPECT_GE(pool->value, peak->value);
  EXPECT_EQ(pool->unit, "B");
  EXPECT_EQ(beside->value, kAfter - kBefore - pool->value);
}

TEST_F(SoftwareGpu, MemoryBesideIsLeftOutWhereItIsNotKnown) {
  for (const char* reason : {"memory_used=none", "memory_used=1000000000@1-1,memory_used=1700000000,processes=1",
                             "memory_used=1700000000@1-1,memory_used=1000000000", "processes=none"}) {
    const Ran run = ran(std::string("HALFMARK_SOFTWARE_NVML=") + reason, kCase);
    ASSERT_EQ(run.code, 0) << run.err;
    ASSERT_TRUE(run.report);
    EXPECT_TRUE(find(run.report->records.at(0), "memory.pool")) << reason;
    EXPECT_FALSE(find(run.report->records.at(0), "memory.beside")) << reason;
  }
}

}  // namespace
}  // namespace halfmark::bench
