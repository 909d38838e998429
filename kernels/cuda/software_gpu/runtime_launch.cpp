// Launching kernels, and what the runtime says about them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/images.h"

namespace halfmark::kernels::software_gpu {
namespace {

// Of a warp. The longest kernels of the tests execute some hundred thousand.
constexpr uint64_t kInstructionLimit = uint64_t{1} << 27;

// cudaFuncSetAttribute, by device and kernel.
std::map<std::pair<int, std::string>, FunctionSettings>& settings() {
  static auto* all = new std::map<std::pair<int, std::string>, FunctionSettings>;
  return *all;
}
FunctionSettings& settings_of(const SoftwareDevice& device, const Symbol& symbol) {
  return settings()[{device.index, std::to_string(symbol.binary) + ":" + symbol.name}];
}

// Limits of every GPU: Programming Guide, "Technical Specifications per Compute Capability".
void check_limits(const Kernel& kernel, const Launch& launch, const FunctionSettings& allowed) {
  const Extent3 &grid = launch.grid, &block = launch.block;
  if (grid.count() == 0 || block.count() == 0) throw CallError{cudaErrorInvalidConfiguration, "an extent of 0"};
  if (grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535)
    throw CallError{cudaErrorInvalidConfiguration, "a grid of " + std::to_string(grid.x) + " x " +
                                                       std::to_string(grid.y) + " x " + std::to_string(grid.z) +
                                                       " blocks"};
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.count() > 1024)
    throw CallError{cudaErrorInvalidConfiguration, "a block of " + std::to_string(block.x) + " x " +
                                                       std::to_string(block.y) + " x " + std::to_string(block.z) +
                                                       " threads"};
  const uint64_t bound = uint64_t{kernel.max_threads[0]} * kernel.max_threads[1] * kernel.max_threads[2];
  if (bound && (block.count() > bound || (kernel.exact_threads && block.count() != bound)))
    throw CallError{cudaErrorLaunchOutOfResources, kernel.name + " was compiled for blocks of " +
                                                       std::to_string(bound) + " threads, not " +
                                                       std::to_string(block.count())};
  const uint64_t shared = kernel.shared_bytes + launch.dynamic_shared;
  if (shared > std::max<uint64_t>(48 * 1024, kernel.shared_bytes + static_cast<uint64_t>(allowed.dynamic_shared)) ||
      (launch.dynamic_shared && launch.dynamic_shared > static_cast<uint64_t>(allowed.dynamic_shared)))
    throw CallError{cudaErrorInvalidValue, kernel.name + ": " + std::to_string(shared) +
                                               " bytes of shared memory; more than 48 KiB need cudaFuncSetAttribute"};
}

void enqueue_launch(const void* handle, dim3 grid, dim3 block, void** arguments, size_t shared,
                    cudaStream_t stream_handle) {
  const Symbol& symbol = kernel_symbol(handle);
  const cudaStream_t stream = stream_of(stream_handle);
  const SoftwareDevice& device = devices()[static_cast<size_t>(stream->device)];
  if (stream->device != device_of_thread())
    throw CallError{cudaErrorInvalidResourceHandle, "a stream of another device than the current one"};
  LoadedModule& loaded = module_of(symbol.binary, device);
  const Kernel& kernel = kernel_of(loaded, symbol);
  Launch launch;
  launch.kernel = &kernel, launch.module = &loaded.module;
  launch.device = device.index, launch.architecture = device.architecture;
  launch.grid = {grid.x, grid.y, grid.z}, launch.block = {block.x, block.y, block.z};
  launch.dynamic_shared = shared;
  launch.symbol_addresses = loaded.symbol_addresses;
  launch.memory = &global_memory();
  launch.instruction_limit = kInstructionLimit;
  check_limits(kernel, launch, settings_of(device, symbol));
  launch.parameters.resize(kernel.parameter_bytes);
  for (size_t n = 0; n < kernel.parameters.size(); ++n)
    std::memcpy(launch.parameters.data() + kernel.parameters[n].offset, arguments[n], kernel.parameters[n].bytes);
  enqueue(stream, [launch = std::move(launch)] {
    if (const auto injected = called_from("kernel", nullptr))
      throw Fault(static_cast<cudaError_t>(*injected), launch.kernel->name + " fails because a test asks for it");
    if (!counts_work()) {
      run(launch);
      return;
    }
    WorkCounts work;
    Launch counted = launch;
    counted.work = &work;
    const uint64_t instructions = run(counted);
    write_work(launch.kernel->name, launch.grid.count(), launch.block.count(), instructions, work);
  });
  // As CUDA does under this variable: a launch waits for its end, so that it returns the error of its own kernel.
  static const bool waits = [] {
    const char* text = std::getenv("CUDA_LAUNCH_BLOCKING");
    return text && std::string_view(text) == "1";
  }();
  if (waits && !stream->captured) run_until(stream, stream->enqueued);
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
std::vector<Configuration>& configurations() {
  static thread_local std::vector<Configuration> stack;
  return stack;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu

using namespace halfmark::kernels::software_gpu;

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations().push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations().empty()) return cudaErrorMissingConfiguration;
  const Configuration top = configurations().back();
  configurations().pop_back();
  *grid = top.grid, *block = top.block, *shared = top.shared;
  std::memcpy(stream, &top.stream, sizeof top.stream);
  return cudaSuccess;
}

// The handle of a kernel is the address of its host function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return runtime_call("cudaLaunchKernel", true,
                      [&] { enqueue_launch(function, grid, block, arguments, shared, stream); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return runtime_call("cudaFuncGetAttributes", true, [&] {
    const Symbol& symbol = kernel_symbol(function);
    LoadedModule& loaded = module_of(symbol.binary, working_device());
    const Kernel& kernel = kernel_of(loaded, symbol);
    *attributes = {};
    attributes->sharedSizeBytes = kernel.shared_bytes;
    attributes->localSizeBytes = kernel.local_bytes;
    attributes->maxThreadsPerBlock =
        kernel.max_threads[0] ? static_cast<int>(kernel.max_threads[0] * kernel.max_threads[1] * kernel.max_threads[2])
                              : 1024;
    attributes->ptxVersion = attributes->binaryVersion = loaded.module.capability;
    attributes->maxDynamicSharedSizeBytes = settings_of(working_device(), symbol).dynamic_shared;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return runtime_call("cudaFuncSetAttribute", true, [&] {
    const Symbol& symbol = kernel_symbol(function);
    const Kernel& kernel = kernel_of(module_of(symbol.binary, working_device()), symbol);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
      throw CallError{cudaErrorInvalidValue, "an attribute that the software GPU does not know"};
    const int most = architecture_row(working_device().architecture)->shared_of_block;
    if (value < 0 || kernel.shared_bytes + static_cast<uint64_t>(value) > static_cast<uint64_t>(most))
      throw CallError{cudaErrorInvalidValue,
                      std::to_string(value) + " bytes of dynamic shared memory; a block has " + std::to_string(most)};
    settings_of(working_device(), symbol).dynamic_shared = value;
  });
}

}  // extern "C"
