// Device memory, work and failures for the tests of the libraries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/streams.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu {

// Frees all memory, forgets enqueued work and failures; one device of this architecture.
void reset_device(int architecture);
void* allocate_on_device(size_t bytes);  // 512-byte aligned, contents undefined
void copy_to_device(void* address, const void* host, size_t bytes);
void copy_from_device(void* host, const void* address, size_t bytes);
// Runs all enqueued work; the code of the first Fault.
cudaError_t run_enqueued();

inline void* on_device(DType dtype, std::span<const double> values, size_t offset_bytes = 0) {
  std::vector<std::byte> host(bytes_for(dtype, values.size()));
  for (size_t i = 0; i < values.size(); ++i) store(dtype, host.data(), i, values[i]);
  auto* address = static_cast<std::byte*>(allocate_on_device(host.size() + offset_bytes)) + offset_bytes;
  copy_to_device(address, host.data(), host.size());
  return address;
}

inline std::vector<double> from_device(const void* address, DType dtype, size_t count) {
  std::vector<std::byte> host(bytes_for(dtype, count));
  copy_from_device(host.data(), address, host.size());
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(load(dtype, host.data(), i));
  return values;
}

// Numbers that every tested format has, from -4 to 4 in steps of 1/2.
inline std::vector<double> small_numbers(size_t count, uint32_t seed) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<double>(static_cast<int>(seed >> 24) % 17 - 8) / 2);
  }
  return values;
}

}  // namespace halfmark::kernels::software_gpu
