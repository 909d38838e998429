// Device memory, work and failures for the tests of the libraries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/streams.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu {

inline void check_runtime(cudaError_t status) {
  if (status != cudaSuccess) throw Fault(status, cudaGetErrorString(status));
}

// Frees all memory, forgets enqueued work and failures; one device of this architecture.
inline void reset_device(int architecture) {
  set_devices({architecture}, uint64_t{1} << 30);
  fail_no_call();
}
inline void* allocate_on_device(size_t bytes) {  // contents undefined
  void* address = nullptr;
  check_runtime(cudaMalloc(&address, bytes));
  return address;
}
// Both run what was enqueued before. Reading what nothing has written throws.
inline void copy_to_device(void* address, const void* host, size_t bytes) {
  check_runtime(cudaMemcpyAsync(address, host, bytes, cudaMemcpyHostToDevice, nullptr));
  check_runtime(cudaStreamSynchronize(nullptr));
}
inline void copy_from_device(void* host, const void* address, size_t bytes) {
  check_runtime(cudaMemcpyAsync(host, address, bytes, cudaMemcpyDeviceToHost, nullptr));
  check_runtime(cudaStreamSynchronize(nullptr));
}
inline cudaError_t run_enqueued() { return cudaStreamSynchronize(nullptr); }

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
