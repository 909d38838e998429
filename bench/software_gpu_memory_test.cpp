// The program on a software GPU: what a report says of memory outside the allocator.
#include <gtest/gtest.h>

#include <string>

#include "bench/software_gpu_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

constexpr double kBefore = 1e9, kAfter = 1.7e9;  // bytes in use on the GPU, as NVML says
constexpr const char* kCase = "run --no-probes --case linear/b4_i16_o8/cuda:0/fp16/memory";

// The first time that it is asked, there is no context yet.
TEST_F(SoftwareGpu, MemoryOutsideThePoolIsWhatCameIntoUseLessTheBlocks) {
  const Ran run = ran("HALFMARK_SOFTWARE_NVML=memory_used=1000000000@1-1,memory_used=1700000000", kCase);
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  const Record& record = run.report->records.at(0);
  const Measurement *pool = find(record, "device.pool"), *outside = find(record, "device.outside_pool"),
                    *peak = find(record, "memory.peak", "train");
  ASSERT_TRUE(pool && outside && peak);
  EXPECT_GE(pool->value, peak->value);
  EXPECT_EQ(pool->unit, "B");
  EXPECT_EQ(outside->value, kAfter - kBefore - pool->value);
}

// A case before it may have had far more.
TEST_F(SoftwareGpu, ThePoolIsThatOfTheCaseAlone) {
  const Ran alone = ran("", kCase);
  const Ran after = ran("", "run --no-probes --device cuda:0 linear/b64_i1024_o1024 linear/b4_i16_o8 fp16 memory");
  ASSERT_TRUE(alone.report && after.report) << alone.err << after.err;
  ASSERT_EQ(after.report->records.size(), 2u);
  const Record& small = after.report->records.at(0).subject == "linear/b4_i16_o8" ? after.report->records.at(0)
                                                                                  : after.report->records.at(1);
  EXPECT_EQ(find(small, "device.pool")->value, find(alone.report->records.at(0), "device.pool")->value);
}

TEST_F(SoftwareGpu, MemoryOutsideThePoolIsLeftOutWhereItIsNotKnown) {
  // Other processes: all the time, and only when the device was opened, which is the second time that it is asked for.
  for (const char* reason : {"memory_used=none", "memory_used=1000000000@1-1,memory_used=1700000000,processes=1",
                             "memory_used=1000000000@1-1,memory_used=1700000000,processes=1@2-2",
                             "memory_used=1700000000@1-1,memory_used=1000000000", "processes=none"}) {
    const Ran run = ran(std::string("HALFMARK_SOFTWARE_NVML=") + reason, kCase);
    ASSERT_EQ(run.code, 0) << run.err;
    ASSERT_TRUE(run.report);
    EXPECT_TRUE(find(run.report->records.at(0), "device.pool")) << reason;
    EXPECT_FALSE(find(run.report->records.at(0), "device.outside_pool")) << reason;
  }
}

}  // namespace
}  // namespace halfmark::bench
