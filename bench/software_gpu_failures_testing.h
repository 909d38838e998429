// Shared by the tests that let calls of the plugin fail on a software GPU: the runs whose calls fail, and their records.
#pragma once

#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "bench/software_gpu_testing.h"
#include "reports/record/record.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Two subjects under two policies, so that products and convolutions of the libraries, all kinds of own kernels, casts and
// memory are in it.
inline constexpr const char* kSelection =
    "run --suite smoke --device cuda:0 --no-probes linear conv2d amp-fp16 fp32 error memory range";

// A run of which calls fail in turn: those from places that no run before it has reached, and others.
struct FailedRun {
  const char* variables;
  const char* arguments;
  const char* also;  // how the names of others begin; empty: none
  bool is_timed;     // how often something is called depends on the machine
};
// Times that are the same in each run, and no waiting for a counter of energy.
inline constexpr const char* kSameTimes = "HALFMARK_SOFTWARE_GPU_TIMES=5 HALFMARK_SOFTWARE_NVML=energy=none";

inline constexpr FailedRun kFailedRuns[] = {
    {"", kSelection, "", false},
    // Its products are those of cublasLt where cuDNN fails.
    {"", "run --device cuda:0 --no-probes attention/b2_h2_t6_d8 amp-fp16 error range", "cudnn", false},
    // Its scales change when a pass ends, in a destructor.
    {"", "run --device cuda:0 --no-probes linear/b4_i16_o8 fp8-delayed error range", "cudaLaunchKernel", false},
    // Without cublasLt products are those of cuBLAS; attention has products of batches.
    {"HALFMARK_SOFTWARE_LIBRARIES=cublasLtCreate",
     "run --device cuda:0 --no-probes linear/b4_i16_o8 gpt/b2_t8_n1_h2_d8_v27 amp-fp16 error", "cublas", false},
    {"", "run --device cuda:0 --no-probes mlp/b8_i16_h24_o10 amp-fp16 error fused=on range", "", false},
    // The gradient of so many rows is found by a list of the rows of each entry.
    {"", "run --device cuda:0 --no-probes embedding/b8_t64_v20_d8 amp-fp16 error range", "", false},
    {kSameTimes, "run --device cuda:0 --no-probes linear/b4_i16_o8 fp16 throughput error", "", true},
    {kSameTimes, "run --device cuda:0 --no-probes linear/b4_i16_o8 fp16 throughput launch=graph error", "cudaGraph",
     true},
};

// Other commands whose calls fail.
struct FailedCommand {
  const char* variables;
  const char* arguments;
};
inline void PrintTo(const FailedCommand& one, std::ostream* out) { *out << one.arguments; }
inline constexpr FailedCommand kFailedCommands[] = {
    {"", "check --device cuda:0 --minutes 0.00001 --matmuls-only --types 'f16>f32+split2' --shape 32x32x256"},
    {"", "probe --device cuda:0 --replay 100 --types 'bf16>f32'"},
    {"HALFMARK_SOFTWARE_GPU=sm_90,sm_90 HALFMARK_SOFTWARE_GPU_TIMES=5",
     "probe --all-reduce --device cuda:0,cuda:1 --elements 64 --replay 100 --types bf16"},
    {"", "dump linear/b4_i16_o8/cuda:0/fp16 -o tensors; code=$?; rm -rf tensors; exit $code"},
    {"", "dot --device cuda:0 --a f16 < rows.csv"},
    {"", "plan --device cuda:0 linear/b4_i16_o8"}};

// A sum across devices that is given up.
inline constexpr FailedRun kFailedSum = {
    "HALFMARK_SOFTWARE_GPU=sm_90,sm_90",
    "probe --all-reduce --device cuda:0,cuda:1 --elements 64 --replay 100 --types bf16", "", false};

// For rows.csv.
inline constexpr const char* kRowsOfDots =
    "a,b,c\n3c003c003c003c003c003c003c003c003c003c003c003c003c003c003c003c00,"
    "3c003c003c003c003c003c003c003c003c003c003c003c003c003c003c003c00,00000000\n";

// Failures after which something is given back or asked again, by other calls, which fail then.
struct FirstFailure {
  const char* request;
  const FailedRun& run;
};
inline void PrintTo(const FirstFailure& one, std::ostream* out) { *out << one.request; }
inline constexpr FirstFailure kFirstFailures[] = {
    {"cudaGetDeviceCount:1:35", kFailedRuns[0]},                      // the driver is too old for this build
    {"cudaMemcpyFromSymbol:1:801", kFailedRuns[0]},                   // the device cannot be opened
    {"cudaMallocHost:1:2", kFailedRuns[0]},                           // no memory for a value that is read
    {"cudaEventRecord:1:801", kFailedRuns[0]},                        // a value of which nothing says when it has come
    {"cudnnSetStream:1:5000", kFailedRuns[0]},                        // a handle that would use another stream
    {"cudaMalloc:3:2", kFailedRuns[0]},                               // out of memory, but not without the free blocks
    {"cudaMalloc:3:2,cudaMalloc:4:2", kFailedRuns[0]},                // nor without them
    {"kernel:60:719", kFailedRuns[0]},                                // the context is gone
    {"cublasSetStream_v2:1:14", kFailedRuns[3]},                      // cuBLAS cannot be opened
    {"nvmlDeviceGetCurrentClocksEventReasons:1:13", kFailedRuns[6]},  // a function that older drivers have not
    {"cudaGraphInstantiate:1:801", kFailedRuns[7]},                   // a graph that cannot be run
    {"ncclCommGetAsyncError:1:6", kFailedSum},                        // a rank that fails within a sum
};

// What two runs of one case have in common, whichever process measured it.
inline nlohmann::ordered_json common(Record record) {
  record.seconds = 0;
  // What the allocator holds depends on what earlier cases have left in use, a library's workspace for one.
  std::erase_if(record.measurements, [](const Measurement& one) { return one.metric == "device.pool"; });
  if (record.harness == "throughput") {  // times of the host are among its numbers, and the machine may be busy
    record.measurements.clear(), record.series.clear();
    for (KernelUse& kernel : record.kernels) kernel.calls = 0;
    if (record.status == Status::suspect) record.status = Status::ok, record.reason.clear();
  }
  return to_json(record);
}

inline std::map<std::string, nlohmann::ordered_json> by_id(const Report& report) {
  std::map<std::string, nlohmann::ordered_json> all;
  for (const Record& record : report.records) all.emplace(record.id, common(record));
  return all;
}

// The software GPU adds to the text of an error which call a test has asked to fail. Without that the names are ours.
inline std::string own_words(std::string text) {
  for (size_t end; (end = text.find(" fails because a test asks for it)")) != text.npos;) {
    const size_t begin = text.rfind('(', end);
    text.erase(begin, text.find(')', end) + 1 - begin);
  }
  return text;
}

inline int status_of(const std::string& name) {
  if (name.starts_with("cublas")) return 14;   // CUBLAS_STATUS_INTERNAL_ERROR
  if (name.starts_with("cudnn")) return 5000;  // CUDNN_STATUS_EXECUTION_FAILED
  if (name.starts_with("nccl")) return 3;      // ncclInternalError
  if (name.starts_with("nvml")) return 999;    // NVML_ERROR_UNKNOWN
  return 801;                                  // cudaErrorNotSupported: the context stays
}

}  // namespace halfmark::bench
