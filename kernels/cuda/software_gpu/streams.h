// What stand-ins for CUDA libraries (cublasLt, cuDNN, NCCL, NVML) need of the software GPU: work on streams, checked
// access to device memory, the current device, and injected failures.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "kernels/cuda/software_gpu/fault.h"

namespace halfmark::kernels::software_gpu {

// The node that work becomes in a graph. none: it orders work, which is no node.
enum class NodeKind : uint8_t { kernel, copy, fill, release, graph, none };

// Appends work to a stream; null is the default stream of the current device. The work runs once, after all earlier
// work of the stream, when something waits for the stream. It may throw Fault. It must not call this function or a
// function of the CUDA runtime.
void enqueue(cudaStream_t stream, std::function<void()> work, NodeKind kind = NodeKind::kernel);

enum class Access : uint8_t { read, write };

// The host memory that holds the `bytes` bytes of device memory at `address`: a device address itself cannot be
// dereferenced. To be called in enqueued work, since only then earlier work of the stream has been done. Throws Fault
// unless all bytes are in one live allocation of the device whose work runs. `read`: also unless every byte has been
// written. `write`: all bytes count as written from now on, so the caller must write all of them.
// An operand with gaps (a leading dimension beyond the width) is checked row by row.
std::byte* check_access(const void* address, size_t bytes, Access access);

// Whether the address is in a live allocation of the current device, for checks when a function is called: contents are
// not looked at. Bytes from the address to the end of its allocation; 0 if it is in none.
size_t bytes_at(const void* address);

int current_device();                // as cudaGetDevice gives it, without counting as a call
int architecture_of(int device);     // 90 for sm_90
int device_of(cudaStream_t stream);  // null: the current device

// Counts a call of a function; the status that it must return at once because a test asked for that (calls.h), or
// nothing. Every function of a library calls this first: if (auto status = called("cublasLtCreate")) return ...
// Inlined, so that the place is the one from which the function of the library is called.
std::optional<int> called_from(const char* function, const void* place);
[[gnu::always_inline]] inline std::optional<int> called(const char* function) {
  return called_from(function, __builtin_return_address(0));
}

}  // namespace halfmark::kernels::software_gpu
