// The program on a software GPU (kernels/cuda/software_gpu): what fails costs one case, and the report says which call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/software_gpu_failures_testing.h"
#include "bench/software_gpu_testing.h"
#include "reports/record/error.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

TEST_F(SoftwareGpu, AFaultOfDeviceCodeCostsOneCaseAndTheOthersRunInProcessesOfTheirOwn) {
  const Ran base = ran("", kSelection);
  ASSERT_EQ(base.code, 0) << base.err;
  uint64_t kernels = 0;
  for (const Call& call : base.calls)
    if (call.name == "kernel") kernels += call.calls;
  ASSERT_GT(kernels, 20u);
  // 719, cudaErrorLaunchFailure: of a kernel in the middle of the run, seen by a later call.
  const Ran run = ran(fmt::format("HALFMARK_SOFTWARE_GPU_FAIL=kernel:{}:719", kernels / 2), kSelection);
  EXPECT_EQ(run.code, 1) << run.err;
  ASSERT_TRUE(run.report);
  EXPECT_TRUE(run.report->run.complete);
  const auto expected = by_id(*base.report), found = by_id(*run.report);
  int lost = 0;
  for (const Record& record : run.report->records) {
    if (record.status == Status::failed) {
      ++lost;
      EXPECT_TRUE(says(record.reason, "cuda:0 is lost: cudaStreamSynchronize: cudaErrorLaunchFailure"))
          << record.reason;
      EXPECT_TRUE(says(record.reason, "repeated in a process of its own it does not fail")) << record.reason;
    } else {
      EXPECT_TRUE(found.at(record.id) == expected.at(record.id)) << record.id;
    }
  }
  EXPECT_EQ(lost, 1);
  EXPECT_TRUE(says(run.err, "the cases that follow on cuda:0 are measured in processes of their own")) << run.err;
}

TEST_F(SoftwareGpu, AFaultOfDeviceCodeThatComesAgainIsNamedByItsOperation) {
  const std::string one = "run --no-probes --case linear/b4_i16_o8/cuda:0/fp16/range";
  const Ran base = ran("", one);
  ASSERT_EQ(base.code, 0) << base.err;
  const Ran run = ran("HALFMARK_SOFTWARE_GPU_FAIL=kernel:1:700:always", one);
  EXPECT_EQ(run.code, 1) << run.err;
  ASSERT_TRUE(run.report);
  const std::string reason = run.report->records.at(0).reason;
  EXPECT_TRUE(says(reason, "found with CUDA_LAUNCH_BLOCKING=1; first seen by cudaStreamSynchronize")) << reason;
  EXPECT_FALSE(reason.starts_with("cuda:0 is lost: cudaStreamSynchronize")) << reason;
}

// Turing has no tf32: that form is left out, and the others are evaluated.
TEST_F(SoftwareGpu, AFormThatAGpuDoesNotHaveIsLeftOutOfAnEvaluation) {
  const Ran run = ran("HALFMARK_SOFTWARE_GPU=sm_75",
                      "run --no-probes --case mlp/b8_i16_h24_o10/cuda:0/fp32/evaluation/part=memory");
  EXPECT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  const Record& record = run.report->records.at(0);
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  EXPECT_TRUE(find(record, "evaluation.left_out", "tf32"));
  EXPECT_FALSE(find(record, "evaluation.left_out", "full_fp16"));
  EXPECT_TRUE(find(record, "evaluation.bytes_per_batch", "full_fp16/streamed"));
}

// A GPU whose first call fails in each process: a process that was started for one case must not start another.
TEST_F(SoftwareGpu, AFaultBeforeTheFirstCaseOfEveryProcessGivesFailedRecords) {
  for (const char* fault : {"cudaMalloc:1:214:always", "cudaStreamSynchronize:1:700:always"}) {
    const Ran run = ran(fmt::format("HALFMARK_SOFTWARE_GPU_FAIL={}", fault),
                        "run --no-probes --case linear/b4_i16_o8/cuda:0/fp16/error");
    EXPECT_EQ(run.code, 1) << run.err;
    ASSERT_TRUE(run.report) << fault;
    EXPECT_EQ(run.report->records.at(0).status, Status::failed);
    EXPECT_TRUE(says(run.report->records.at(0).reason, "cuda:0 is lost: ")) << run.report->records.at(0).reason;
  }
}

TEST_F(SoftwareGpu, AFaultWhileTheEnvironmentIsProbedDoesNotEndTheRun) {
  const std::string cases = "run --suite smoke --device cuda:0 linear fp32 memory range";
  const Ran base = ran("", cases);
  ASSERT_EQ(base.code, 0) << base.err;
  const Ran run = ran("HALFMARK_SOFTWARE_GPU_FAIL=cudaMemcpyAsync:1:719", cases);
  EXPECT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  EXPECT_TRUE(by_id(*run.report) == by_id(*base.report));
  const auto& device = run.report->environment["devices"]["cuda:0"];
  ASSERT_TRUE(device.contains("failed")) << device;
  EXPECT_TRUE(says(device["failed"].get<std::string>(), "cudaErrorLaunchFailure")) << device;
  EXPECT_EQ(device["name"], "software GPU (sm_90), not a GPU");
  EXPECT_EQ(device["numerics"], "software GPU: PTX interpreted on the CPU");
  EXPECT_TRUE(says(run.err, "cuda:0: probing it for the environment of the report failed: ")) << run.err;
  EXPECT_TRUE(says(run.err, "cuda:0 is lost: ")) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 2) << run.err;
}

TEST_F(SoftwareGpu, AGpuThatCannotBeOpenedLeavesTheOtherDevices) {
  const std::string no_stream = "HALFMARK_SOFTWARE_GPU_FAIL=cudaStreamCreateWithFlags:1:46";
  const std::string why = "cuda:0 cannot be opened: cudaStreamCreateWithFlags: cudaErrorDevicesUnavailable";
  const Ran list = ran(no_stream, "list devices");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_TRUE(says(list.out, "cuda:0") && says(list.out, "sim:hopper")) << list.out;
  EXPECT_EQ(list.err, "");

  const Ran kernels = ran(no_stream, "list kernels --json");
  EXPECT_EQ(kernels.code, 0) << kernels.err;
  EXPECT_TRUE(says(kernels.out, "\"cpu\"")) << kernels.out;
  EXPECT_TRUE(says(kernels.err, why)) << kernels.err;
  EXPECT_EQ(std::count(kernels.err.begin(), kernels.err.end(), '\n'), 1) << kernels.err;

  const Ran cpu = ran(no_stream, "run --suite smoke --device cpu --no-probes linear fp32 memory");
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_EQ(cpu.err, "");
  ASSERT_TRUE(cpu.report);

  const Ran none = ran(no_stream, "run --suite smoke --no-probes linear fp32 memory");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
  EXPECT_TRUE(says(none.err, why) && says(none.err, "; using the device cpu")) << none.err;
  ASSERT_TRUE(none.report);
  for (const Record& record : none.report->records) EXPECT_EQ(record.device, "cpu");

  const Ran named = ran(no_stream, "run --suite smoke --device cuda:0 linear fp32 memory");
  EXPECT_EQ(named.code, 2);
  EXPECT_EQ(std::count(named.err.begin(), named.err.end(), '\n'), 1) << named.err;
  EXPECT_TRUE(named.err.starts_with("halfmark: device " + why)) << named.err;
  EXPECT_FALSE(named.report);
}

TEST_F(SoftwareGpu, EachReasonForNoGpuComesWithItsRemedy) {
  for (const auto& [status, remedy] : {std::pair{34, "take folders ending in /stubs out of LD_LIBRARY_PATH"},
                                       {35, "update the driver"},
                                       {46, "nvidia-smi -c DEFAULT"},
                                       {100, "is CUDA_VISIBLE_DEVICES set?"},
                                       {802, "systemctl start nvidia-fabricmanager"},
                                       {999, "modprobe nvidia-uvm"}}) {
    const std::string failing = fmt::format("HALFMARK_SOFTWARE_GPU_FAIL=cudaGetDeviceCount:1:{}", status);
    const Ran named = ran(failing, "run --suite smoke --device cuda:0 linear fp32 memory");
    EXPECT_EQ(named.code, 2) << status;
    EXPECT_EQ(std::count(named.err.begin(), named.err.end(), '\n'), 1) << named.err;
    EXPECT_TRUE(says(named.err, remedy)) << named.err;
    const Ran none = ran(failing, "run --suite smoke --no-probes linear fp32 memory");
    EXPECT_EQ(none.code, 0) << none.err;
    EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
    EXPECT_TRUE(says(none.err, remedy) && says(none.err, "; using the device cpu")) << none.err;
  }
}

// By NVML; without it nothing fails.
TEST_F(SoftwareGpu, IsIdentifiedInTheReport) {
  const auto facts_of = [&](const std::string& device, const std::string& variables) {
    const Ran run = ran(variables, "run --suite smoke --device " + device + " --no-probes linear fp32 memory");
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    return run.report ? run.report->environment["devices"][device] : nlohmann::ordered_json();
  };
  const auto known =
      facts_of("cuda:1", "HALFMARK_SOFTWARE_GPU=sm_75,sm_90 HALFMARK_SOFTWARE_NVML=power_limit=400000,mig=1");
  EXPECT_EQ(known["uuid"], "GPU-00000000-5057-4750-8000-000000000002") << known;
  EXPECT_EQ(known["mig"], "on") << known;
  EXPECT_EQ(known["power limit"], "400 W") << known;
  EXPECT_FALSE(known.contains("nvml")) << known;
  const auto unknown =
      facts_of("cuda:0", "HALFMARK_SOFTWARE_GPU_FAIL=nvmlDeviceGetHandleByUUID:1:6,nvmlDeviceGetHandleByUUID:2:6");
  EXPECT_EQ(unknown["nvml"], "nvmlDeviceGetHandleByUUID: Not Found (GPU-00000000-5057-4750-8000-000000000001)");
  EXPECT_FALSE(unknown.contains("uuid")) << unknown;
}

// cublasLt multiplies fp8 only with k contiguous in both operands.
TEST_F(SoftwareGpu, ProbeAndCheckAskTheLibraryForFp8) {
  const Ran probe = ran("", "probe --device cuda:0 --replay 100 --types 'e4m3>f32,bf16>f32'");
  ASSERT_EQ(probe.code, 0) << probe.err;
  EXPECT_TRUE(says(probe.out, "e4m3>f32 (matmul 32x32x64, b transposed)")) << probe.out;
  EXPECT_TRUE(says(probe.out, "bf16>f32 (matmul 32x32x64)")) << probe.out;
  EXPECT_FALSE(says(probe.out, "cuda-direct")) << probe.out;
  const Ran check = ran("", "check --device cuda:0 --minutes 0.001 --matmuls-only --types 'e4m3>f32' --shape 32x32x64");
  ASSERT_EQ(check.code, 0) << check.err;
  EXPECT_TRUE(says(check.out, "b transposed")) << check.out;
}

// Its report under the name cuda:0, and one of a GPU with the same numbers.
TEST_F(SoftwareGpu, IsNeverTakenForAGpu) {
  const Ran run = ran("", "run --suite smoke --device cuda:0 --no-probes linear fp32 memory range throughput");
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_TRUE(run.report);
  const std::string is_none = "cuda:0 is not a GPU: software GPU: PTX interpreted on the CPU";
  EXPECT_TRUE(says(run.out, is_none)) << run.out;
  Report gpu = *run.report;
  for (Record& record : gpu.records) {
    EXPECT_FALSE(record.numerics.empty() && record.status != Status::skipped) << record.id;
    if (record.harness == "throughput") {
      EXPECT_EQ(record.status, Status::skipped) << "no times are given as those of a GPU";
    }
    for (const Measurement& one : record.measurements) EXPECT_NE(one.kind, Kind::sampled) << record.id << one.metric;
    record.numerics.clear();
  }
  gpu.environment["devices"]["cuda:0"].erase("numerics");
  gpu.environment["devices"]["cuda:0"]["name"] = "NVIDIA H100";
  gpu.save(folder_ / "gpu.json");
  const std::string program = quoted(folder_of_programs() + "/halfmark");
  for (const char* pair : {"gpu.json report.json", "report.json gpu.json"}) {
    const Result gate = shell(program + " gate " + pair);
    EXPECT_EQ(gate.code, 3) << gate.out << gate.err;
    EXPECT_TRUE(says(gate.out, "another kind of device than the base")) << gate.out;
    const Result compare = shell(program + " compare " + pair);
    EXPECT_TRUE(says(compare.out, "report.json: " + is_none)) << compare.out;
  }
  EXPECT_EQ(shell(program + " gate report.json report.json").code, 0);
  const Result merged = shell(program + " merge gpu.json report.json -o merged.json");
  EXPECT_EQ(merged.code, 2) << merged.out;
}

}  // namespace
}  // namespace halfmark::bench
