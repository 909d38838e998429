// What a device of the plugin does with its own code, its memory and its clocks, seen from the program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/software_gpu_failures_testing.h"

namespace halfmark::bench {
namespace {

class SoftwareGpuDevice : public SoftwareGpu {
 protected:
  static uint64_t calls_of(const Ran& run, const std::string& name) {
    uint64_t calls = 0;
    for (const Call& call : run.calls)
      if (call.name == name) calls += call.calls;
    return calls;
  }
};

// 209, cudaErrorNoKernelImageForDevice: dot.cu may be compiled for fewer GPUs than the rest.
TEST_F(SoftwareGpuDevice, WithoutCodeForDotProductsRefusesThemAndIsUsable) {
  const std::string no_image = "HALFMARK_SOFTWARE_GPU_FAIL=cudaMemcpyFromSymbol:1:209";
  const Ran run = ran(no_image, kSelection), base = ran("", kSelection);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  ASSERT_TRUE(run.report && base.report);
  EXPECT_TRUE(by_id(*run.report) == by_id(*base.report));
  std::ofstream(folder_ / "rows.csv") << kRowsOfDots;
  const Ran dot = ran(no_image, "dot --device cuda:0 --a f16 < rows.csv");
  EXPECT_EQ(dot.code, 2);
  EXPECT_TRUE(says(dot.err, "needs code for sm_80 and newer; this build has it for ")) << dot.err;
}

// A copy from a symbol waits for the device, and would be part of every time.
TEST_F(SoftwareGpuDevice, CopiesFromASymbolOnlyWhenItIsOpened) {
  const Ran probe = ran("", "probe --device cuda:0 --replay 100 --instruction mma.m16n8k16 --types 'f16>f32'");
  EXPECT_EQ(probe.code, 0) << probe.err;
  EXPECT_GT(calls_of(probe, "kernel"), 20u);
  EXPECT_EQ(calls_of(probe, "cudaMemcpyFromSymbol"), 1u);
}

// Plain loops say nothing about the speed of a GPU.
TEST_F(SoftwareGpuDevice, EmulatesWithPlainLoops) {
  const Ran list = ran("", "list kernels --json");
  ASSERT_EQ(list.code, 0) << list.err;
  int loops = 0, real = 0;
  for (const auto& row : nlohmann::json::parse(list.out)) {
    if (row["device"] != "cuda:0") continue;
    const bool is_loop = row["row"] == "cuda-direct";
    if (is_loop) {
      EXPECT_EQ(row["speed"], "emulated") << row;
    }
    ++(is_loop ? loops : real);
  }
  EXPECT_GT(loops, 5);
  EXPECT_GT(real, 50);
}

// Without the bound a kernel would run for ever.
TEST_F(SoftwareGpuDevice, EndsAPauseByItsClockWhereItsTimerStandsStill) {
  const Ran run = ran(fmt::format("{} HALFMARK_SOFTWARE_GPU_TIMER=stands", kSameTimes),
                      "run --device cuda:0 --no-probes linear/b4_i16_o8 fp32 throughput");
  EXPECT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  EXPECT_NE(run.report->records.at(0).status, Status::failed) << run.report->records.at(0).reason;
  EXPECT_TRUE(find(run.report->records.at(0), "time.evaluation", "hot"));
}

// 2, cudaErrorMemoryAllocation: at the last of many blocks, when others are free.
TEST_F(SoftwareGpuDevice, GivesFreeBlocksBackBeforeItIsOutOfMemory) {
  // The memory harness gives blocks back too.
  const std::string selection = "run --suite smoke --device cuda:0 --no-probes linear conv2d amp-fp16 fp32 error range";
  const Ran base = ran("", selection);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_TRUE(base.report);
  EXPECT_EQ(calls_of(base, "cudaFree"), 0u);
  const uint64_t last = calls_of(base, "cudaMalloc");
  const Ran run = ran(fmt::format("HALFMARK_SOFTWARE_GPU_FAIL=cudaMalloc:{}:2", last), selection);
  EXPECT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  EXPECT_TRUE(by_id(*run.report) == by_id(*base.report));
  EXPECT_GT(calls_of(run, "cudaFree"), 2u);
}

// It has a context, a stream and events when the code of dot products is looked for.
TEST_F(SoftwareGpuDevice, ThatCannotBeOpenedLeavesNothingBehind) {
  const Ran run = ran("HALFMARK_SOFTWARE_GPU_FAIL=cudaMemcpyFromSymbol:1:801", kSelection);
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_EQ(calls_of(run, "cudaEventCreate"), 2u);
  EXPECT_EQ(calls_of(run, "cudaEventDestroy"), 2u);
  EXPECT_EQ(calls_of(run, "cudaStreamCreateWithFlags"), calls_of(run, "cudaStreamDestroy"));
  EXPECT_EQ(calls_of(run, "nvmlInit_v2"), calls_of(run, "nvmlShutdown"));
}

// Of two GPUs: a call that fails costs one case of one of them, also where it ends the context of that one (700,
// cudaErrorIllegalAddress).
TEST_F(SoftwareGpuDevice, ThatFailsLeavesTheOtherOne) {
  const std::string two = "HALFMARK_SOFTWARE_GPU=sm_90,sm_75 ";
  const std::string cases =
      "run --device cuda:0 --device cuda:1 --no-probes linear/b4_i16_o8 fp32 amp-fp16 error range";
  const Ran base = ran(two, cases);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_TRUE(base.report);
  const auto expected = by_id(*base.report);
  EXPECT_EQ(expected.size(), 8u);
  std::set<std::string> lost_devices;
  for (const char* name : {"cudaSetDevice", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamSynchronize"})
    for (const uint64_t part : {1, 3})
      for (const int status : {801, 700}) {
        const std::string request = fmt::format("{}:{}:{}", name, calls_of(base, name) * part / 4, status);
        SCOPED_TRACE(request);
        const Ran run = ran(two + "HALFMARK_SOFTWARE_GPU_FAIL=" + request, cases);
        ASSERT_TRUE(run.report) << run.err;
        const auto found = by_id(*run.report);
        int lost = 0;
        for (const Record& record : run.report->records) {
          if (found.at(record.id) == expected.at(record.id)) continue;
          const std::string words = own_words(found.at(record.id).dump());
          EXPECT_TRUE(says(words, name) || says(words, ": cudaError")) << record.id;
          if (record.status == Status::failed) ++lost, lost_devices.insert(record.device);
        }
        EXPECT_LE(lost, 1);
        EXPECT_EQ(run.code, lost) << run.err;
      }
  EXPECT_EQ(lost_devices.size(), 2u);
}

}  // namespace
}  // namespace halfmark::bench
