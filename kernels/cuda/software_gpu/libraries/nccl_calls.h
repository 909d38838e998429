// The stand-in of NCCL: communicators of one process, and all-reduce in groups.
//
// Numbers from the documentation of NCCL, "Types" (2.28); nccl_calls_test.cpp compares them with nccl.h where the toolkit has it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu::nccl {

enum Result {
  kSuccess,
  kUnhandledCudaError,
  kSystemError,
  kInternalError,
  kInvalidArgument,
  kInvalidUsage,
  kRemoteError,
  kInProgress
};
inline constexpr int kVersion = 22809;
inline constexpr int kTypes = 12, kOps = 5;  // ncclNumTypes, ncclNumOps of that version
inline constexpr int kFirstFloat = 6;        // the types before it are integers

struct TypeRow {
  int type;
  DType dtype;
};
inline constexpr TypeRow kFloats[] = {{6, DType::f16},  {7, DType::f32},   {8, DType::f64},
                                      {9, DType::bf16}, {10, DType::e4m3}, {11, DType::e5m2}};
enum Op { kSum, kProd, kMax, kMin, kAvg };

// A communicator: one rank of the ranks that were made together.
struct Rank {
  int clique = 0, rank = 0, ranks = 0, device = 0;
  int oldest = 0;  // architecture of the devices of the clique
};

struct Call {
  Rank rank;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int type = 0, op = 0;
  cudaStream_t stream = nullptr;
};

// Whether ncclCommAbort has been called of the communicator, so that its work ends without a result.
bool is_aborted(const Rank& rank);

// Enqueues one all-reduce, of which each rank has made its call; `calls` by rank.
void enqueue_all_reduce(const std::vector<Call>& calls);

// The sums of all inputs, element by element: result[r] is what rank r gets. All of `dtype`, one number of bytes.
std::vector<std::vector<std::byte>> all_reduced(const std::vector<std::vector<std::byte>>& inputs, DType dtype, Op op);

}  // namespace halfmark::kernels::software_gpu::nccl
