// The algorithms that the stand-in of cublasLt offers, and how each computes. What the real library offers is not
// documented; these differ in what programs must look at: numerical flags, alignment, partial sums, workspace.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_problem.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::software_gpu::cublaslt {

struct Candidate {
  Algorithm algorithm;
  uint64_t workspace = 0;
};

// The arithmetic of an algorithm, as cublasLtNumericalImplFlags_t and as the reference rows take it.
struct Numerics {
  uint64_t flags = 0;
  Format multiply = kFp32, accumulate = kFp32;
};

inline constexpr uint32_t kWideAlignment = 16;  // bytes; of algorithms on tensor cores and of narrow types

std::span<const int> algorithm_ids();

// Nothing: the algorithm does not exist for these types or on this architecture.
std::optional<Numerics> numerics_of(const Algorithm& algorithm, int architecture);
uint32_t alignment_of(const Algorithm& algorithm, cudaDataType_t type);  // bytes, of pointers and strides

// All that the preference leaves, fastest first.
std::vector<Candidate> candidates(const Problem& problem, const Preference& preference);

// Whether this algorithm can run this problem, with the bytes of workspace that it needs. INVALID_VALUE: it was
// initialised for other types; NOT_SUPPORTED: it does not have this configuration.
cublasStatus_t check_algorithm(const Problem& problem, const Algorithm& algorithm, uint64_t& workspace);

Algorithm initialised(const Problem& problem, int id);

}  // namespace halfmark::kernels::software_gpu::cublaslt
