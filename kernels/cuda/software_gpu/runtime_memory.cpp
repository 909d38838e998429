// Memory: allocation, copies, fills.
//
// Stricter than a GPU where the documentation allows both: a copy to pageable host memory is done only when something
// waits for it, and host memory never gets a byte that nothing has written on the device.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/images.h"

namespace halfmark::kernels::software_gpu {
namespace {

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

bool is_device_address(const void* address) { return global_memory().find(number_of(address)) != nullptr; }

// The range must be in one live allocation when the call is made.
void require_device_range(const void* address, size_t bytes, const char* which) {
  const Allocation* allocation = global_memory().find(number_of(address));
  if (!allocation || !allocation->live || !allocation->holds(number_of(address), bytes))
    throw CallError{cudaErrorInvalidValue, std::string(which) + ": " + std::to_string(bytes) + " bytes at " +
                                               global_memory().place_of(number_of(address))};
}
void require_host_range(const void* address, const char* which) {
  if (address == nullptr || is_device_address(address))
    throw CallError{cudaErrorInvalidValue, std::string(which) + " is no host memory"};
}

// Host memory of cudaMallocHost: it is read when the copy is done, not when it is enqueued.
std::set<const void*>& pinned() {
  static auto* all = new std::set<const void*>;
  return *all;
}

void* allocate(size_t bytes) {
  SoftwareDevice& device = working_device();
  if (bytes == 0) return nullptr;
  if (bytes > device.memory_bytes || global_memory().live_bytes(device.index) + bytes > device.memory_bytes)
    throw CallError{cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes"};
  Allocation* allocation = global_memory().allocate(device.index, bytes, "cudaMalloc");
  if (!allocation) throw CallError{cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes"};
  return reinterpret_cast<void*>(allocation->address);
}

void require_own(const void* address) {
  const Allocation* allocation = global_memory().find(number_of(address));
  if (!allocation || allocation->address != number_of(address))
    throw CallError{cudaErrorInvalidValue, "no allocation starts at " + global_memory().place_of(number_of(address))};
  if (!allocation->live)
    throw CallError{cudaErrorInvalidValue, "freed a second time: " + global_memory().place_of(number_of(address))};
}

void release(void* address) {
  if (!address) return;
  require_own(address);
  run_all(working_device());  // cudaFree waits
  global_memory().release(number_of(address));
}

// Device to device: bytes that nothing has written stay so.
void copy_on_device(void* to, const void* from, size_t bytes) {
  Allocation* source = global_memory().find(number_of(from));
  Allocation* target = global_memory().find(number_of(to));
  if (!source || !source->live || !target || !target->live)
    throw Fault(cudaErrorIllegalAddress,
                "copy of freed memory: " + global_memory().place_of(number_of(!source || !source->live ? from : to)));
  const uint64_t at = number_of(from) - source->address, there = number_of(to) - target->address;
  std::memmove(target->storage + there, source->storage + at, bytes);
  for (uint64_t n = 0; n < bytes; ++n)
    if (source->is_written(at + n, 1)) target->set_written(there + n, 1);
}

void enqueue_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return;
  if (kind == cudaMemcpyDefault)
    kind = is_device_address(to) ? (is_device_address(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                 : (is_device_address(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  switch (kind) {
    case cudaMemcpyHostToDevice: {
      require_device_range(to, bytes, "the target");
      require_host_range(from, "the source");
      if (pinned().contains(from)) {
        enqueue(
            stream, [=] { std::memcpy(check_access(to, bytes, Access::write), from, bytes); }, NodeKind::copy);
        return;
      }
      const auto* first = static_cast<const std::byte*>(from);
      auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
      enqueue(
          stream, [=] { std::memcpy(check_access(to, bytes, Access::write), staged->data(), bytes); }, NodeKind::copy);
      return;
    }
    case cudaMemcpyDeviceToHost:
      require_device_range(from, bytes, "the source");
      require_host_range(to, "the target");
      enqueue(
          stream, [=] { std::memcpy(to, check_access(from, bytes, Access::read), bytes); }, NodeKind::copy);
      return;
    case cudaMemcpyDeviceToDevice:
      require_device_range(to, bytes, "the target");
      require_device_range(from, bytes, "the source");
      enqueue(
          stream, [=] { copy_on_device(to, from, bytes); }, NodeKind::copy);
      return;
    case cudaMemcpyHostToHost:
      enqueue(
          stream, [=] { std::memcpy(to, from, bytes); }, NodeKind::copy);
      return;
    case cudaMemcpyDefault:
      break;
  }
  throw CallError{cudaErrorInvalidMemcpyDirection, "a direction that does not exist"};
}

void enqueue_fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  require_device_range(to, bytes, "the target");
  enqueue(
      stream, [=] { std::memset(check_access(to, bytes, Access::write), value, bytes); }, NodeKind::fill);
}

void wait_for(cudaStream_t handle) {
  const cudaStream_t stream = stream_of(handle);
  run_until(stream, stream->enqueued);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu

using namespace halfmark::kernels::software_gpu;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return runtime_call("cudaMalloc", true, [&] { *address = allocate(bytes); });
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  return runtime_call("cudaMallocAsync", true, [&] { stream_of(stream), *address = allocate(bytes); });
}
cudaError_t cudaFree(void* address) {
  return runtime_call("cudaFree", true, [&] { release(address); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return runtime_call("cudaFreeAsync", true, [&] {
    require_own(address);
    enqueue(
        stream, [address] { global_memory().release(number_of(address)); }, NodeKind::release);
  });
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return runtime_call("cudaMallocHost", true, [&] {
    *address = ::operator new(std::max<size_t>(bytes, 1));
    pinned().insert(*address);
  });
}
cudaError_t cudaFreeHost(void* address) {
  return runtime_call("cudaFreeHost", true, [&] {
    if (!address) return;
    if (pinned().erase(address) == 0) throw CallError{cudaErrorInvalidValue, "not of cudaMallocHost"};
    run_all(working_device());
    ::operator delete(address);
  });
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  return runtime_call("cudaMemGetInfo", true, [&] {
    *total = working_device().memory_bytes;
    *available = *total - global_memory().live_bytes(working_device().index);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return runtime_call("cudaMemcpyAsync", true, [&] { enqueue_copy(to, from, bytes, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return runtime_call("cudaMemcpy", true, [&] { enqueue_copy(to, from, bytes, kind, nullptr), wait_for(nullptr); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return runtime_call("cudaMemsetAsync", true, [&] { enqueue_fill(to, value, bytes, stream); });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return runtime_call("cudaMemset", true, [&] { enqueue_fill(to, value, bytes, nullptr), wait_for(nullptr); });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return runtime_call("cudaMemcpyFromSymbol", true, [&] {
    uint64_t size = 0;
    const uint64_t address = address_of(variable_symbol(symbol), working_device(), size);
    if (offset > size || bytes > size - offset)
      throw CallError{cudaErrorInvalidValue, "beyond the end of the variable"};
    enqueue_copy(to, reinterpret_cast<const void*>(address + offset), bytes, kind, nullptr), wait_for(nullptr);
  });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return runtime_call("cudaMemcpyToSymbol", true, [&] {
    uint64_t size = 0;
    const uint64_t address = address_of(variable_symbol(symbol), working_device(), size);
    if (offset > size || bytes > size - offset)
      throw CallError{cudaErrorInvalidValue, "beyond the end of the variable"};
    enqueue_copy(reinterpret_cast<void*>(address + offset), from, bytes, kind, nullptr), wait_for(nullptr);
  });
}

}  // extern "C"
