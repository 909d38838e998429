// Devices, versions and errors.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/images.h"

namespace halfmark::kernels::software_gpu {
namespace {

// Small, so that clearing the caches takes no time.
constexpr int kCacheBytes = 1 << 20;

struct ErrorRow {
  cudaError_t code;
  const char* name;
  const char* text;
};
// The texts are those of the toolkit's documentation of cudaError, first sentences.
#define HM_ERROR(code, text) \
  { code, #code, text }
constexpr ErrorRow kErrors[] = {
    HM_ERROR(cudaSuccess, "no error"),
    HM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    HM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    HM_ERROR(cudaErrorInitializationError, "initialization error"),
    HM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    HM_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    HM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    HM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    HM_ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    HM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    HM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    HM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    HM_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    HM_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    HM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    HM_ERROR(cudaErrorNotReady, "device not ready"),
    HM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    HM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    HM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    HM_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    HM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    HM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    HM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    HM_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    HM_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    HM_ERROR(cudaErrorNotSupported, "operation not supported"),
    HM_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    HM_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    HM_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    HM_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef HM_ERROR

const ErrorRow* error_row(cudaError_t code) {
  for (const ErrorRow& row : kErrors)
    if (row.code == code) return &row;
  return nullptr;
}

std::map<cudaError_t, std::string>& details() {
  static auto* all = new std::map<cudaError_t, std::string>;
  return *all;
}

void select(int index) {
  if (devices().empty()) throw CallError{cudaErrorNoDevice, "HALFMARK_SOFTWARE_GPU is not set"};
  if (index < 0 || static_cast<size_t>(index) >= devices().size())
    throw CallError{cudaErrorInvalidDevice,
                    std::to_string(devices().size()) + " devices, no number " + std::to_string(index)};
  device_of_thread() = index;
}

const SoftwareDevice& device_at(int index) {
  if (index < 0 || static_cast<size_t>(index) >= devices().size())
    throw CallError{cudaErrorInvalidDevice,
                    std::to_string(devices().size()) + " devices, no number " + std::to_string(index)};
  return devices()[static_cast<size_t>(index)];
}

int attribute_of(const SoftwareDevice& device, cudaDeviceAttr attribute) {
  const ArchitectureRow& row = *architecture_row(device.architecture);
  const struct {
    cudaDeviceAttr attribute;
    int value;
  } rows[] = {
      {cudaDevAttrComputeCapabilityMajor, device.architecture / 10},
      {cudaDevAttrComputeCapabilityMinor, device.architecture % 10},
      {cudaDevAttrMultiProcessorCount, kMultiprocessors},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 0x7FFFFFFF},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 * 1024},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, row.shared_of_block},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, row.shared_of_multiprocessor},
      {cudaDevAttrMaxThreadsPerMultiProcessor, row.threads_of_multiprocessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, row.blocks_of_multiprocessor},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrL2CacheSize, kCacheBytes},
      {cudaDevAttrClockRate, 0},
      {cudaDevAttrMemoryClockRate, 0},
      {cudaDevAttrGlobalMemoryBusWidth, 0},
      {cudaDevAttrEccEnabled, 0},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrComputeMode, cudaComputeModeDefault},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrCooperativeLaunch, 0},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrTotalConstantMemory, 65536},
  };
  for (const auto& one : rows)
    if (one.attribute == attribute) return one.value;
  throw CallError{cudaErrorInvalidValue,
                  "attribute " + std::to_string(attribute) + " is not in the table of the software GPU"};
}

cudaDeviceProp properties_of(const SoftwareDevice& device) {
  const ArchitectureRow& row = *architecture_row(device.architecture);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "software GPU (sm_%d), not a GPU", device.architecture);
  p.major = device.architecture / 10, p.minor = device.architecture % 10;
  p.totalGlobalMem = device.memory_bytes;
  p.sharedMemPerBlock = 48 * 1024;
  p.sharedMemPerBlockOptin = static_cast<size_t>(row.shared_of_block);
  p.sharedMemPerMultiprocessor = static_cast<size_t>(row.shared_of_multiprocessor);
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = row.threads_of_multiprocessor;
  p.maxBlocksPerMultiProcessor = row.blocks_of_multiprocessor;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7FFFFFFF, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.multiProcessorCount = kMultiprocessors;
  p.l2CacheSize = kCacheBytes;
  p.concurrentKernels = 1, p.unifiedAddressing = 1;
  // As the stand-in of NVML has it: "GPU-00000000-5057-4750-8000-000000000001" for the first device.
  const unsigned char uuid[] = {0, 0, 0, 0, 0x50, 0x57, 0x47, 0x50, 0x80};
  std::memcpy(p.uuid.bytes, uuid, sizeof uuid);
  p.uuid.bytes[15] = static_cast<char>(device.index + 1);
  return p;
}

}  // namespace

void set_devices(const std::vector<int>& architectures, uint64_t memory_bytes) {
  const std::lock_guard lock(runtime_mutex());
  for (const SoftwareDevice& device : devices()) {
    unload_modules(device.index);
    global_memory().release_all(device.index);
  }
  replace_devices(architectures, memory_bytes);
  device_of_thread() = 0;
  last_error() = cudaSuccess;
}

void set_detail(cudaError_t code, const std::string& text) { details()[code] = text; }

}  // namespace halfmark::kernels::software_gpu

using namespace halfmark::kernels::software_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return runtime_call("cudaGetDeviceCount", false, [&] {
    try {
      if (devices().empty()) throw CallError{cudaErrorNoDevice, "HALFMARK_SOFTWARE_GPU is not set"};
    } catch (const std::exception& error) {
      throw CallError{cudaErrorInitializationError, error.what()};
    }
    *count = static_cast<int>(devices().size());
  });
}
cudaError_t cudaSetDevice(int device) {
  return runtime_call("cudaSetDevice", false, [&] {
    select(device);
    // As CUDA does since version 12: selecting a device initialises it, and that fails after a fault.
    if (device_at(device).fault != cudaSuccess) throw CallError{device_at(device).fault, device_at(device).fault_text};
  });
}
cudaError_t cudaGetDevice(int* device) {
  return runtime_call("cudaGetDevice", false, [&] { *device = device_of_thread(); });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return runtime_call("cudaDeviceGetAttribute", false, [&] { *value = attribute_of(device_at(device), attribute); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return runtime_call("cudaGetDeviceProperties", false, [&] { *properties = properties_of(device_at(device)); });
}
cudaError_t cudaDeviceReset() {
  return runtime_call("cudaDeviceReset", false, [&] {
    SoftwareDevice& device = working_device();
    device.fault = cudaSuccess;
    forget_work(device);
    for (const cudaStream_t stream : device.streams) delete stream;
    for (const cudaEvent_t event : device.events) delete event;
    device.streams.clear(), device.events.clear();
    unload_modules(device.index);
    global_memory().release_all(device.index);
  });
}

// The versions of the toolkit that the sources are compiled with.
cudaError_t cudaDriverGetVersion(int* version) {
  return runtime_call("cudaDriverGetVersion", false, [&] { *version = CUDART_VERSION; });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return runtime_call("cudaRuntimeGetVersion", false, [&] { *version = CUDART_VERSION; });
}

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(runtime_mutex());
  const cudaError_t code = last_error();
  const auto current = static_cast<size_t>(device_of_thread());
  // A fault stays.
  last_error() = current < devices().size() ? devices()[current].fault : cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() { return last_error(); }

const char* cudaGetErrorName(cudaError_t code) {
  const ErrorRow* row = error_row(code);
  return row ? row->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t code) {
  const std::lock_guard lock(runtime_mutex());
  const ErrorRow* row = error_row(code);
  const auto detail = details().find(code);
  if (detail == details().end()) return row ? row->text : "unrecognized error code";
  static auto* texts = new std::set<std::string>;  // callers keep the pointer
  return texts->insert(std::string(row ? row->text : "unrecognized error code") + " (" + detail->second + ")")
      .first->c_str();
}

}  // extern "C"
