// Every call of the CUDA runtime and of the libraries fails in turn: what that may cost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/software_gpu_failures_testing.h"
#include "bench/software_gpu_testing.h"
#include "reports/record/error.h"

namespace halfmark::bench {
namespace {

// Products of attention, and layouts of each, which have plans where cuDNN fails.
constexpr int64_t kProductsOfAttention = 7, kLayoutsOfProduct = 4;
// An engine of packed attention that fails is replaced by one of attention on copies, whose graph and plan are kept: backward
// has the larger ones.
constexpr int64_t kDescriptorsOfAttention = 70;

// A failed call: what it may cost.
class SoftwareGpuFailures : public SoftwareGpu, public testing::WithParamInterface<size_t> {
 protected:
  // The run with that failure against the run without.
  void expect_one_case_at_most(const FailedRun& which, const Ran& base, const std::string& function,
                               const std::string& request) const {
    const std::string name = function.substr(0, function.find("_v2"));
    SCOPED_TRACE(
        fmt::format("HALFMARK_SOFTWARE_GPU_FAIL={} {} halfmark {}", request, which.variables, which.arguments));
    const Ran run = ran(fmt::format("HALFMARK_SOFTWARE_GPU_FAIL={} {}", request, which.variables), which.arguments);
    ASSERT_TRUE(run.code == 0 || run.code == 1 || run.code == 2) << "exit code " << run.code << "\n" << run.err;
    const bool has_spare_plans = which.also == std::string_view("cudnn") || says(which.arguments, "fused=on");
    expect_nothing_left_over(base, run, function, has_spare_plans);
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
      const std::string words = own_words(found.at(record.id).dump());
      EXPECT_TRUE(says(words, name) || (name == "cudaLaunchKernel" && says(words, ": cudaError")) ||
                  name == "cublasLtMatmulAlgoConfigGetAttribute")
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
      EXPECT_TRUE(may_fail_unnoticed(name) || only_helps(which, name)) << "no word about it";
    }
  }

  static bool gives_back(const std::string& name) {
    return says(name, "Destroy") || name == "cudaFree" || name == "cudaFreeHost";
  }

  // What another call takes the place of: a product that an engine for attention is tried against, and the end of a graph,
  // after which the device waits again.
  static bool only_helps(const FailedRun& which, const std::string& name) {
    if (which.also == std::string_view("cudnn")) return name.starts_with("cublasLt");
    return which.is_timed && (name == "cudaSetDevice" || name == "cudaStreamSynchronize");
  }

  // What is only described in the report, and what gives something back.
  static bool may_fail_unnoticed(const std::string& name) {
    return name == "cudaDriverGetVersion" || name == "cudaRuntimeGetVersion" || name == "cudaMemGetInfo" ||
           name == "cublasLtMatmulAlgoConfigGetAttribute" || name.starts_with("nvml") || gives_back(name);
  }

  // Objects that exist at the end: those of the run without the failure, or fewer. The products and the engines that
  // replace an engine of cuDNN have plans, which are kept.
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
        {"cublasCreate_v2", "cublasDestroy_v2"},
        {"cudaGraphInstantiate", "cudaGraphExecDestroy"},
        {"cudaStreamEndCapture", "cudaGraphDestroy"},
        {"cudnnCreate", "cudnnDestroy"},
        {"cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor"},
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
      if (replaces && create == std::string_view("cudnnBackendCreateDescriptor")) more = kDescriptorsOfAttention;
      if (is_lost && (is_event || create == std::string_view("cudaMallocHost"))) more = of_readers;
      if (create == std::string_view("cublasCreate_v2")) more = 1;  // it is opened where cublasLt refuses
      const int64_t before = count(base, create) - count(base, destroy) + (is_event ? of_readers_before : 0);
      EXPECT_LE(left, run.code == 2 ? 0 : before + more) << create;
    }
  }
};

// The parts run at the same time. Each place in the code that calls a function is asked to fail at its first call, which
// is often while the environment is probed, and at its last one. HALFMARK_LONG=1: also in the whole smoke suite.
constexpr size_t kParts = 6;

std::set<std::string> requests_of(const FailedRun& which, const Call& call) {
  const int status = status_of(call.name);
  if (!which.is_timed)
    return {fmt::format("{}:{}:{}", call.name, call.first, status),
            fmt::format("{}:{}:{}", call.name, call.last, status)};
  const std::string at = call.name + "@" + call.place.substr(call.place.find('+') + 1);
  std::set<std::string> all = {fmt::format("{}:1:{}", at, status)};
  // The first is made of an empty graph, which shows that the device can.
  const bool is_of_graphs = says(call.name, "Graph") || says(call.name, "Capture");
  if (call.calls > 1 && is_of_graphs) all.insert(fmt::format("{}:2:{}", at, status));
  return all;
}

TEST_P(SoftwareGpuFailures, OfEachCallSiteCostOneCaseAtMost) {
  std::set<std::pair<std::string, std::string>> known;
  size_t number = 0;
  std::vector<FailedRun> runs(std::begin(kFailedRuns), std::end(kFailedRuns));
  if (std::getenv("HALFMARK_LONG")) runs.push_back({"", "run --suite smoke --device cuda:0 --no-probes", "", false});
  for (const FailedRun& which : runs) {
    SCOPED_TRACE(which.arguments);
    const Ran base = ran(which.variables, which.arguments);
    ASSERT_EQ(base.code, 0) << base.err;
    ASSERT_TRUE(base.report);
    ASSERT_GT(base.calls.size(), 60u);
    size_t chosen = 0;
    for (const Call& call : base.calls) {
      const std::string_view also = which.also;
      const bool is_chosen =
          known.emplace(call.name, call.place).second || (!also.empty() && call.name.starts_with(also));
      if (call.name == "kernel" || !is_chosen || (++chosen, number++ % kParts != GetParam())) continue;
      for (const std::string& request : requests_of(which, call))
        expect_one_case_at_most(which, base, call.name, request);
    }
    EXPECT_GT(chosen, 0u);
  }
}

// Errors after which the context is gone, cudaErrorIllegalAddress: for each function of the runtime, in the middle of its calls.
TEST_P(SoftwareGpuFailures, ThatEndTheContextCostOneCaseAtMost) {
  const Ran base = ran("", kSelection);
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_GT(base.calls.size(), 60u);
  std::map<std::string, uint64_t> all;
  for (const Call& call : base.calls) all[call.name] += call.calls;
  size_t number = 0;
  for (const auto& [name, calls] : all)
    if (name.starts_with("cuda") && number++ % kParts == GetParam())
      expect_one_case_at_most(kFailedRuns[0], base, name, fmt::format("{}:{}:700", name, (calls + 1) / 2));
}

INSTANTIATE_TEST_SUITE_P(Part, SoftwareGpuFailures, testing::Range(size_t{0}, kParts));

}  // namespace
}  // namespace halfmark::bench
