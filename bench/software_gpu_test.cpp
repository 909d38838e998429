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

#include "bench/software_gpu_testing.h"
#include "reports/record/error.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

// Two subjects under two policies, so that products and convolutions of the libraries, all kinds of own kernels, casts and
// memory are in it.
constexpr const char* kSelection =
    "run --suite smoke --device cuda:0 --no-probes linear conv2d amp-fp16 fp32 error memory range";

// Its products are those of cublasLt where cuDNN fails.
constexpr const char* kAttention = "run --device cuda:0 --no-probes attention/b2_h2_t6_d8 amp-fp16 error range";
constexpr int64_t kProductsOfAttention = 7, kLayoutsOfProduct = 4;

// Its scales change when a pass ends, in a destructor.
constexpr const char* kDelayedScaling = "run --device cuda:0 --no-probes linear/b4_i16_o8 fp8-delayed error range";

// What two runs of one case have in common, whichever process measured it.
nlohmann::ordered_json common(Record record) {
  record.seconds = 0;
  return to_json(record);
}

std::map<std::string, nlohmann::ordered_json> by_id(const Report& report) {
  std::map<std::string, nlohmann::ordered_json> all;
  for (const Record& record : report.records) all.emplace(record.id, common(record));
  return all;
}

// The software GPU adds to the text of an error which call a test has asked to fail. Without that the names are ours.
std::string own_words(std::string text) {
  for (size_t end; (end = text.find(" fails because a test asks for it)")) != text.npos;) {
    const size_t begin = text.rfind('(', end);
    text.erase(begin, text.find(')', end) + 1 - begin);
  }
  return text;
}

int status_of(const std::string& name) {
  if (name.starts_with("cublas")) return 14;   // CUBLAS_STATUS_INTERNAL_ERROR
  if (name.starts_with("cudnn")) return 5000;  // CUDNN_STATUS_EXECUTION_FAILED
  if (name.starts_with("nvml")) return 999;    // NVML_ERROR_UNKNOWN
  return 801;                                  // cudaErrorNotSupported: the context stays
}

// A failed call: what it may cost.
class SoftwareGpuFailures : public SoftwareGpu, public testing::WithParamInterface<size_t> {
 protected:
  // The run with that failure against the run without.
  void expect_one_case_at_most(const Ran& base, const std::string& name, uint64_t number, int status,
                               const char* selection = kSelection) const {
    const std::string request = fmt::format("{}:{}:{}", name, number, status);
    SCOPED_TRACE(request);
    const Ran run = ran("HALFMARK_SOFTWARE_GPU_FAIL=" + request, selection);
    ASSERT_TRUE(run.code == 0 || run.code == 1 || run.code == 2) << "exit code " << run.code << "\n" << run.err;
    expect_nothing_left_over(base, run, name, selection == kAttention);
    const bool names_it = says(own_words(run.err), name);
    if (run.code == 2) {  // the device cannot be opened
      EXPECT_FALSE(run.report);
      EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
      EXPECT_TRUE(says(run.err, "halfmark: device cuda:0 ")) << run.err;
      EXPECT_TRUE(names_it || says(run.err, "is absent: ")) << run.err;
      return;
    }
    ASSERT_TRUE(run.report) << run.err;
    EXPECT_TRUE(run.report->run.complete);
    const auto expected = by_id(*base.report), found = by_id(*run.report);
    ASSERT_EQ(found.size(), expected.size());
    std::vector<std::string> lost;
    bool falls_through = false;
    for (const Record& record : run.report->records) {
      if (record.status == Status::failed) {
        lost.push_back(record.id);
        // Of a launch, the operation is named and not the call; after a release that fails, the next call.
        const std::string reason = own_words(record.reason);
        EXPECT_TRUE(says(reason, name) || (name == "cudaLaunchKernel" && says(reason, ": cudaError")) ||
                    (gives_back(name) && says(reason, "cuda:0 is lost: ")))
            << record.reason;
        EXPECT_EQ(reason.find('\n'), reason.npos);
        continue;
      }
      if (found.at(record.id) == expected.at(record.id)) continue;
      // What a library cannot do is refused, and its next algorithm or the next row of the operation runs, or an algorithm is
      // used untried; the record says why. The attributes of an algorithm are only described.
      EXPECT_TRUE(says(own_words(found.at(record.id).dump()), name) || name == "cublasLtMatmulAlgoConfigGetAttribute")
          << record.id;
      falls_through = true;
    }
    EXPECT_LE(lost.size(), 1u) << fmt::format("{}", lost.size());
    EXPECT_EQ(run.code, lost.empty() ? 0 : 1) << run.err;
    const auto& device = run.report->environment["devices"]["cuda:0"];
    const bool probed = !device.contains("failed");
    if (!probed) {
      EXPECT_TRUE(says(own_words(device["failed"].get<std::string>()), name) || name == "cudaLaunchKernel") << device;
    }
    // A library that failed while the environment was probed is among the facts of the device.
    const bool is_fact = device.contains("failures") && says(own_words(device["failures"].dump()), name);
    if (lost.empty() && !falls_through && !is_fact && probed && !says(run.err, "cuda:0 is lost: ")) {
      EXPECT_TRUE(may_fail_unnoticed(name)) << "no word about it";
    }
  }

  static bool gives_back(const std::string& name) {
    return says(name, "Destroy") || name == "cudaFree" || name == "cudaFreeHost";
  }

  // What is only described in the report, and what gives something back.
  static bool may_fail_unnoticed(const std::string& name) {
    return name == "cudaDriverGetVersion" || name == "cudaRuntimeGetVersion" || name == "cudaMemGetInfo" ||
           name == "cublasLtMatmulAlgoConfigGetAttribute" || name.starts_with("nvml") || gives_back(name);
  }

  // Objects that exist at the end: those of the run without the failure, or fewer. The products that replace an engine of
  // cuDNN have plans, which are kept.
  static void expect_nothing_left_over(const Ran& base, const Ran& run, const std::string& failed, bool replaces) {
    const auto count = [](const Ran& one, const std::string& name) {
      uint64_t calls = 0;
      for (const Call& call : one.calls)
        if (call.name == name) calls += call.calls;
      return static_cast<int64_t>(calls);
    };
    static const std::pair<const char*, const char*> kPairs[] = {
        {"cudaStreamCreateWithFlags", "cudaStreamDestroy"},
        {"cudaEventCreate", "cudaEventDestroy"},
        {"cudaMalloc", "cudaFree"},
        {"cudaMallocHost", "cudaFreeHost"},
        {"cublasLtCreate", "cublasLtDestroy"},
        {"cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy"},
        {"cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy"},
        {"cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy"},
        {"cudnnCreate", "cudnnDestroy"},
        {"cudnnCreateTensorDescriptor", "cudnnDestroyTensorDescriptor"},
        {"cudnnCreateFilterDescriptor", "cudnnDestroyFilterDescriptor"},
        {"cudnnCreateConvolutionDescriptor", "cudnnDestroyConvolutionDescriptor"},
        {"nvmlInit_v2", "nvmlShutdown"}};
    // A reader of values has an event and memory of the host. Those of a lost device are gone with its context.
    const int64_t of_readers = count(run, "cudaEventCreateWithFlags") - (failed == "cudaEventCreateWithFlags");
    const int64_t of_readers_before = count(base, "cudaEventCreateWithFlags");
    const bool is_lost = says(run.err, "cuda:0 is lost: ");
    for (const auto& [create, destroy] : kPairs) {
      // The library is loaded anew for each use. Blocks of memory stay in the pool of an open device.
      if (failed == destroy || failed == "nvmlInit_v2" || (run.code != 2 && std::string(create) == "cudaMalloc"))
        continue;
      const bool is_event = create == std::string_view("cudaEventCreate");
      const int64_t left = count(run, create) - count(run, destroy) - (failed == create) + (is_event ? of_readers : 0);
      int64_t more =
          replaces && std::string(create).starts_with("cublasLtMat") ? kProductsOfAttention * kLayoutsOfProduct : 0;
      if (is_lost && (is_event || create == std::string_view("cudaMallocHost"))) more = of_readers;
      const int64_t before = count(base, create) - count(base, destroy) + (is_event ? of_readers_before : 0);
      EXPECT_LE(left, run.code == 2 ? 0 : before + more) << create;
    }
  }
};

// The parts run at the same time. Each place in the code that calls a function is asked to fail at its first call, which
// is often while the environment is probed, and at its last one.
constexpr size_t kParts = 4;

TEST_P(SoftwareGpuFailures, OfEachCallSiteCostOneCaseAtMost) {
  const Ran base = ran("", kSelection);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_TRUE(base.report);
  ASSERT_GT(base.calls.size(), 60u);
  for (size_t number = GetParam(); number < base.calls.size(); number += kParts) {
    const Call& call = base.calls[number];
    if (call.name == "kernel") continue;
    for (const uint64_t at : std::set<uint64_t>{call.first, call.last})
      expect_one_case_at_most(base, call.name, at, status_of(call.name));
  }
}

TEST_P(SoftwareGpuFailures, OfEachCallOfCudnnForAttentionCostOneCaseAtMost) {
  const Ran base = ran("", kAttention);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_TRUE(base.report);
  size_t number = 0;
  for (const Call& call : base.calls) {
    if (!call.name.starts_with("cudnn") || number++ % kParts != GetParam()) continue;
    for (const uint64_t at : std::set<uint64_t>{call.first, call.last})
      expect_one_case_at_most(base, call.name, at, status_of(call.name), kAttention);
  }
  EXPECT_GT(number, 20u);
}

TEST_P(SoftwareGpuFailures, OfEachLaunchUnderDelayedScalingCostOneCaseAtMost) {
  const Ran base = ran("", kDelayedScaling);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_TRUE(base.report);
  const auto& kernels = base.report->records.at(0).kernels;
  EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(),
                          [](const KernelUse& use) { return use.operation == "delayed_scaling_step"; }));
  size_t number = 0;
  for (const Call& call : base.calls)
    if (call.name == "cudaLaunchKernel" && number++ % kParts == GetParam())
      expect_one_case_at_most(base, call.name, call.last, status_of(call.name), kDelayedScaling);
  EXPECT_GT(number, 5u);
}

// Errors after which the context is gone: for each function of the runtime, in the middle of its calls.
TEST_P(SoftwareGpuFailures, ThatEndTheContextCostOneCaseAtMost) {
  const Ran base = ran("", kSelection);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_GT(base.calls.size(), 60u);
  std::map<std::string, uint64_t> all;
  for (const Call& call : base.calls) all[call.name] += call.calls;
  size_t number = 0;
  for (const auto& [name, calls] : all)
    if (name.starts_with("cuda") && number++ % kParts == GetParam())
      expect_one_case_at_most(base, name, (calls + 1) / 2, 700);  // cudaErrorIllegalAddress
}

INSTANTIATE_TEST_SUITE_P(Part, SoftwareGpuFailures, testing::Range(size_t{0}, kParts));

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
