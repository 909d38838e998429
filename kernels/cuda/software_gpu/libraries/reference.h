// The arithmetic of the stand-ins: the reference rows (kernels/cpu/reference), on copies of device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/ops/ops.h"

namespace halfmark::kernels::software_gpu {

// Runs `work` with a device in host memory that has only the reference rows, one caller at a time. Nothing is logged as
// an operation of the program. An Error becomes a Fault with cudaErrorUnknown, because enqueued work may throw only that.
void with_reference_rows(const std::function<void(Device&)>& work);

// Elements at a device address, checked before they are read or written (streams.h). Places are counted in elements.
// The runs of `length` elements that follow each other in memory are given by `first`, the place of each.
std::vector<double> read_runs(const void* address, DType dtype, std::span<const int64_t> first, int64_t length);
// `values`: in the order of the runs; rounded to nearest even. E4M3 and E5M2 saturate, as cuda_fp8.h does by default.
void write_runs(void* address, DType dtype, std::span<const int64_t> first, int64_t length,
                std::span<const double> values);

double read_one(const void* address, DType dtype);

// Throws Fault if an operand and the result of one call share bytes: the real library writes while it reads.
struct Runs {
  const void* address = nullptr;
  DType dtype = DType::f32;
  std::vector<int64_t> first;
  int64_t length = 0;
};
void check_apart(const Runs& operand, const Runs& result);

// Overwrites scratch memory with NaN patterns, so that a workspace that overlaps an operand gives a wrong result.
void spoil(void* workspace, size_t bytes);

}  // namespace halfmark::kernels::software_gpu
