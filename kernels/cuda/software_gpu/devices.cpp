#include "kernels/cuda/software_gpu/devices.h"

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <utility>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr uint64_t kMemory = uint64_t{8} << 30;

std::vector<SoftwareDevice> made(const std::vector<int>& architectures, uint64_t memory_bytes) {
  std::vector<SoftwareDevice> all(architectures.size());
  for (size_t n = 0; n < all.size(); ++n) {
    all[n].index = static_cast<int>(n);
    all[n].architecture = architectures[n];
    all[n].memory_bytes = memory_bytes;
    all[n].default_stream.device = all[n].index;
  }
  return all;
}

std::vector<SoftwareDevice> from_environment() {
  const char* names = std::getenv("HALFMARK_SOFTWARE_GPU");
  if (!names || !*names) return {};
  uint64_t memory = kMemory;
  if (const char* text = std::getenv("HALFMARK_SOFTWARE_GPU_MEMORY"); text && *text) {
    char* end = nullptr;
    memory = std::strtoull(text, &end, 10);
    if (*end) throw Error("HALFMARK_SOFTWARE_GPU_MEMORY is no number of bytes: " + std::string(text));
  }
  return made(architectures_named(names), memory);
}

// Errors after which the context cannot be used: cudaError in the toolkit's documentation ("the process must be
// terminated and relaunched").
bool is_fault(cudaError_t code) {
  for (const cudaError_t one :
       {cudaErrorECCUncorrectable, cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
        cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorLaunchFailure})
    if (one == code) return true;
  return false;
}

// The device whose work runs now; -1: none.
int& running_device() {
  static int index = -1;
  return index;
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

std::vector<SoftwareDevice>& devices() {
  static auto* all = new std::vector<SoftwareDevice>(from_environment());
  return *all;
}

void replace_devices(const std::vector<int>& architectures, uint64_t memory_bytes) {
  devices() = made(architectures, memory_bytes);
}

int& device_of_thread() {
  static thread_local int index = 0;
  return index;
}

SoftwareDevice& working_device() {
  const int index = running_device() >= 0 ? running_device() : device_of_thread();
  if (static_cast<size_t>(index) >= devices().size())
    throw CallError{cudaErrorNoDevice, "HALFMARK_SOFTWARE_GPU is not set"};
  return devices()[static_cast<size_t>(index)];
}

int current_device() { return device_of_thread(); }
int architecture_of(int device) { return devices().at(static_cast<size_t>(device)).architecture; }
int device_of(cudaStream_t stream) { return stream_of(stream)->device; }

cudaStream_t stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &working_device().default_stream;
  for (SoftwareDevice& device : devices())
    if (handle == &device.default_stream || device.streams.contains(handle)) return handle;
  throw CallError{cudaErrorInvalidResourceHandle, "no such stream"};
}

void enqueue(cudaStream_t handle, std::function<void()> work, NodeKind kind) {
  const std::lock_guard lock(runtime_mutex());
  const cudaStream_t stream = stream_of(handle);
  SoftwareDevice& device = devices()[static_cast<size_t>(stream->device)];
  if (stream->captured) {
    stream->captured->push_back({std::move(work), kind});
    return;
  }
  // The default stream and the blocking ones wait for what the others hold now.
  std::vector<std::pair<cudaStream_t, uint64_t>> before;
  if (stream == &device.default_stream) {
    for (const cudaStream_t other : device.streams)
      if (other->blocking) before.emplace_back(other, other->enqueued);
  } else if (stream->blocking) {
    before.emplace_back(&device.default_stream, device.default_stream.enqueued);
  }
  stream->queue.emplace_back([before = std::move(before), work = std::move(work)] {
    for (const auto& [other, position] : before) run_until(other, position);
    work();
  });
  ++stream->enqueued;
}

void run_until(cudaStream_t stream, uint64_t position) {
  if (stream->captured) {
    stream->broken_capture = true;
    throw CallError{cudaErrorStreamCaptureUnsupported, "waits for a stream that is being captured"};
  }
  SoftwareDevice& device = devices()[static_cast<size_t>(stream->device)];
  while (stream->executed < position && !stream->queue.empty()) {
    std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->executed;
    const int outer = std::exchange(running_device(), device.index);
    try {
      work();
    } catch (const StillWaits&) {
      running_device() = outer;
      stream->queue.push_front(std::move(work));
      --stream->executed;
      throw;
    } catch (...) {
      running_device() = outer;
      forget_work(device);
      throw;
    }
    running_device() = outer;
  }
}

void forget_work(SoftwareDevice& device) {
  device.default_stream.queue.clear();
  for (const cudaStream_t other : device.streams) other->queue.clear();
}

void run_all(SoftwareDevice& device) {
  for (const cudaStream_t stream : device.streams) run_until(stream, stream->enqueued);
  run_until(&device.default_stream, device.default_stream.enqueued);
}

std::byte* check_access(const void* address, size_t bytes, Access access) {
  SoftwareDevice& device = working_device();
  const auto at = reinterpret_cast<uint64_t>(address);
  Allocation* allocation = global_memory().find(at);
  const char* verb = access == Access::read ? "reads " : "writes ";
  const std::string what = verb + std::to_string(bytes) + " bytes at ";
  if (!allocation || !allocation->live || !allocation->holds(at, bytes))
    throw Fault(cudaErrorIllegalAddress, what + global_memory().place_of(at));
  if (allocation->device != device.index)
    throw Fault(cudaErrorIllegalAddress,
                what + global_memory().place_of(at) + ", memory of device " + std::to_string(allocation->device));
  const uint64_t offset = at - allocation->address;
  if (access == Access::read && !allocation->is_written(offset, bytes))
    throw Fault(cudaErrorLaunchFailure, what + global_memory().place_of(at) + ": not all of them have been written");
  if (access == Access::write) allocation->set_written(offset, bytes);
  return allocation->storage + offset;
}

size_t bytes_at(const void* address) {
  const std::lock_guard lock(runtime_mutex());
  const auto at = reinterpret_cast<uint64_t>(address);
  const Allocation* allocation = global_memory().find(at);
  if (!allocation || !allocation->live || allocation->device != device_of_thread()) return 0;
  return allocation->bytes - (at - allocation->address);
}

cudaError_t& last_error() {
  static thread_local cudaError_t code = cudaSuccess;
  return code;
}

cudaError_t runtime_call_from(const char* name, const void* place, bool uses_device,
                              const std::function<void()>& body) {
  const std::lock_guard lock(runtime_mutex());
  cudaError_t code = cudaSuccess;
  std::string text;
  if (const auto injected = called_from(name, place)) {
    code = static_cast<cudaError_t>(*injected);
    text = std::string(name) + " fails because a test asks for it";
    if (uses_device && is_fault(code) && static_cast<size_t>(device_of_thread()) < devices().size()) {
      SoftwareDevice& device = devices()[static_cast<size_t>(device_of_thread())];
      device.fault = code, device.fault_text = text;
      forget_work(device);
    }
  } else {
    SoftwareDevice* device = nullptr;
    try {
      device = uses_device ? &working_device() : nullptr;
      if (device && device->fault != cudaSuccess) {
        code = device->fault, text = device->fault_text;
      } else {
        body();
      }
    } catch (const CallError& error) {
      code = error.code, text = error.text;
    } catch (const StillWaits& waits) {
      code = cudaErrorLaunchTimeout, text = waits.what();
      if (device) device->fault = code, device->fault_text = text, forget_work(*device);
    } catch (const Fault& fault) {
      code = fault.code, text = fault.what();
      if (device) device->fault = code, device->fault_text = text;
    } catch (const std::exception& error) {
      code = cudaErrorUnknown, text = error.what();
    }
  }
  if (code != cudaSuccess) {
    last_error() = code;
    set_detail(code, text);
  }
  return code;
}

}  // namespace halfmark::kernels::software_gpu
