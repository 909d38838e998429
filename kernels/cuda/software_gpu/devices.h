// The devices of this process: their state, streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/streams.h"

struct CUgraphNode_st {
  std::function<void()> run;
  halfmark::kernels::software_gpu::NodeKind kind;
  std::shared_ptr<CUgraph_st> child{};  // of a graph that was launched while the stream was captured
};
// Work that graphs repeat.
using GraphWork = std::vector<CUgraphNode_st>;

struct CUstream_st {
  int device = 0;
  bool blocking = true;  // waits for the default stream and is waited for by it
  std::deque<std::function<void()>> queue;
  uint64_t enqueued = 0, executed = 0;
  std::unique_ptr<GraphWork> captured;  // what is enqueued while the stream is captured; null: it is not
  bool broken_capture = false;          // something has waited for it
};

struct CUevent_st {
  int device = 0;
  bool timed = true;
  cudaStream_t stream = nullptr;  // recorded last in this stream; null: never
  uint64_t position = 0;          // complete once so much of the stream has been executed
  double milliseconds = 0;        // when that was
};

namespace halfmark::kernels::software_gpu {

struct SoftwareDevice {
  int index = 0;
  int architecture = 0;
  uint64_t memory_bytes = 0;
  CUstream_st default_stream;
  std::set<cudaStream_t> streams;  // without the default one
  std::set<cudaEvent_t> events;
  cudaError_t fault = cudaSuccess;  // sticky
  std::string fault_text;
};

// From HALFMARK_SOFTWARE_GPU ("sm_90" or "sm_90,sm_75") and HALFMARK_SOFTWARE_GPU_MEMORY (bytes of each device;
// 8 GiB). Throws Error if a variable is wrong; empty if the first is not set.
std::vector<SoftwareDevice>& devices();
void replace_devices(const std::vector<int>& architectures, uint64_t memory_bytes);  // a part of the next
void set_devices(const std::vector<int>& architectures,
                 uint64_t memory_bytes);  // for tests: instead of the environment

std::recursive_mutex& runtime_mutex();
int& device_of_thread();

// The device whose enqueued work runs, or the current one.
SoftwareDevice& working_device();

// The stream of a handle; null: the default stream of the current device. Throws CallError(cudaErrorInvalidResourceHandle).
cudaStream_t stream_of(cudaStream_t handle);

void run_until(cudaStream_t stream, uint64_t position);  // executes its work up to there. Throws Fault.
void run_all(SoftwareDevice& device);                    // everything enqueued on its streams

// What a call returns, other than success, without making the device unusable.
struct CallError {
  cudaError_t code;
  std::string text;
};

// Counts the call and returns what a test asked for, which is a fault of the device if its code is one that device code
// causes; else the sticky fault of the current device if `uses_device`; else the result of `body`. The error becomes the
// thread's last one. Inlined, so that the place is the one from which the runtime is called.
cudaError_t runtime_call_from(const char* name, const void* place, bool uses_device, const std::function<void()>& body);
[[gnu::always_inline]] inline cudaError_t runtime_call(const char* name, bool uses_device,
                                                       const std::function<void()>& body) {
  return runtime_call_from(name, __builtin_return_address(0), uses_device, body);
}

// A fault ends the context: nothing that is still enqueued is done.
void forget_work(SoftwareDevice& device);

// The last error of the thread, for cudaGetLastError.
cudaError_t& last_error();
// The text that cudaGetErrorString adds for this code.
void set_detail(cudaError_t code, const std::string& text);

}  // namespace halfmark::kernels::software_gpu
