#include "kernels/cuda/cuda_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/gpu_use.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recorded_graph.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/time_marks.h"
#include "kernels/cuda/value_reader.h"
#include "kernels/ops/norm_add.h"
#include "kernels/ops/packed_attention.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kSmall = size_t{1} << 20, kSmallStep = 512, kLargeStep = size_t{2} << 20;

size_t block_size(size_t bytes) {
  const size_t step = bytes <= kSmall ? kSmallStep : kLargeStep;
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

// 13000 -> "13.0"
std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string dotted(size_t version, size_t major, size_t minor) {
  return std::to_string(version / major) + "." + std::to_string(version % major / minor) + "." +
         std::to_string(version % minor);
}

// Only NVML reports the driver's own version ("580.82.07"); without
// NVML the CUDA version that the driver supports is reported.
std::string driver_text() {
  int driver = 0;
  ignore(cudaDriverGetVersion(&driver));
  if (driver == 0) return "no driver";
  std::string text = "CUDA " + cuda_version(driver);
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!nvml) return text;
  const auto start = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto version = reinterpret_cast<int (*)(char*, unsigned)>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
  const auto stop = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlShutdown"));
  if (start && version && stop && start() == 0) {
    char buffer[96] = "";
    if (version(buffer, sizeof buffer) == 0) text = std::string(buffer) + " (" + text + ")";
    stop();
  }
  dlclose(nvml);
  return text;
}

int attribute(int device, cudaDeviceAttr which) {
  int value = 0;
  HM_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

std::string absence(cudaError_t status, int driver) {
  int runtime = 0;
  ignore(cudaRuntimeGetVersion(&runtime));
  if (status == cudaErrorInsufficientDriver && driver == 0) return "no driver: install the NVIDIA driver";
  if (status == cudaErrorInsufficientDriver)
    return "the driver supports CUDA " + cuda_version(driver) + ", this build needs " + cuda_version(runtime) +
           ": update the driver";
  if (status == cudaErrorStubLibrary)
    return "the loader found the stub of libcuda.so, which is for linking: take folders ending in /stubs out of "
           "LD_LIBRARY_PATH";
  if (status == cudaErrorSystemNotReady)
    return "the GPUs are not ready: start the fabric manager (systemctl start nvidia-fabricmanager)";
  if (status == cudaErrorUnknown)
    return "the driver cannot be used: load its module nvidia-uvm (modprobe nvidia-uvm, or nvidia-modprobe -u)";
  if (status == cudaErrorNoDevice || status == cudaSuccess) return "no CUDA device (is CUDA_VISIBLE_DEVICES set?)";
  return failure_text(status, "cudaGetDeviceCount");
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  int runtime = 0;
  ignore(cudaRuntimeGetVersion(&runtime));
  // cublasLt: major * 10000 + minor * 100 + patch; cuDNN 9: major * 10000 + minor * 100 + patch.
  return {{"nvidia driver", driver_text()},
          {"cuda runtime", cuda_version(runtime)},
          {"cublasLt", dotted(cublasLtGetVersion(), 10000, 100)},
          {"cudnn", dotted(cudnnGetVersion(), 10000, 100)}};
}

CudaDevice::CudaDevice(int index) : index_(index) {
  try {
    open();
  } catch (...) {
    close();  // no destructor runs
    throw;
  }
}

void CudaDevice::open() {
  cudaDeviceProp properties;
  HM_CUDA(cudaGetDeviceProperties(&properties, index_));
  nvml_ = std::make_unique<Nvml>(uuid_text(properties.uuid.bytes));
  GpuUse::of(index_).opens(*nvml_);
  activate();
  compute_capability_ =
      10 * attribute(index_, cudaDevAttrComputeCapabilityMajor) + attribute(index_, cudaDevAttrComputeCapabilityMinor);
  if (const char* reason = code_for_device())
    throw Error("this build has no code for sm_" + std::to_string(compute_capability_) + " (" + reason +
                "); configure with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(compute_capability_));
  HM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  HM_CUDA(cudaEventCreate(&start_));
  HM_CUDA(cudaEventCreate(&stop_));
  nvml_->find_own_process();
  add_blaslt_rows(kernels_), add_blaslt_fused_rows(kernels_);
  add_cublas_rows(kernels_);
  add_scaled_rows(kernels_, *this);
  add_cudnn_rows(kernels_), add_cudnn_fused_convolution_row(kernels_), add_cudnn_attention_rows(kernels_, *this);
  add_own_rows(kernels_);
  add_cudnn_norm_rows(kernels_, *this), add_cudnn_pool_rows(kernels_);
  add_direct_rows(kernels_);
  add_packed_attention_rows(kernels_), add_norm_add_rows(kernels_);
  add_dot_rows(kernels_, *this);
}

CudaDevice::~CudaDevice() { close(); }

void CudaDevice::close() noexcept {
  // Without a context there is nothing to destroy, and the libraries' handles must not be used.
  if (!lost_.empty()) return;
  // No failure matters: a destructor cannot report, and the driver may be shutting down.
  ignore(cudaSetDevice(index_));
  blaslt_plans.reset(), cudnn_plans.reset(), cudnn_attention_plans.reset(), cudnn_graph_plans.reset();
  if (stream_) ignore(cudaStreamSynchronize(stream_));
  if (cublas) cublas->close();
  release_cached();
  if (eviction_) ignore(cudaFree(eviction_)), GpuUse::of(index_).gives_back(eviction_bytes_);
  if (cudnn_) cudnnDestroy(cudnn_);
  if (blaslt_) cublasLtDestroy(blaslt_);
  if (start_) ignore(cudaEventDestroy(start_));
  if (stop_) ignore(cudaEventDestroy(stop_));
  if (stream_) ignore(cudaStreamDestroy(stream_));
}

void CudaDevice::activate() const {
  HM_CHECK(lost_.empty(), name() + " is lost: " + lost_);
  HM_CUDA(cudaSetDevice(index_));
}

std::string CudaDevice::lost() {
  if (!lost_.empty() || recording_) return lost_;  // nothing runs while work is recorded
  const char* call = "cudaSetDevice";
  cudaError_t status = cudaSetDevice(index_);
  if (status == cudaSuccess) call = "cudaStreamSynchronize", status = cudaStreamSynchronize(stream_);
  if (status != cudaSuccess) end_context(failure_text(status, call));
  return lost_;
}

// A context in which device code failed returns the same error from every call, and NVIDIA promises a new one only to a
// new process. Its memory is given back for such processes.
void CudaDevice::end_context(const std::string& failure) {
  lost_ = failure;
  GpuUse::of(index_).loses_context();
  (void)cudaDeviceReset();
  (void)cudaGetLastError();
}

std::vector<std::pair<std::string, std::string>> CudaDevice::describe() const {
  cudaDeviceProp properties;
  HM_CUDA(cudaGetDeviceProperties(&properties, index_));
  std::vector<std::pair<std::string, std::string>> facts{
      {"name", properties.name},
      {"architecture", "sm_" + std::to_string(compute_capability_)},
      {"multiprocessors", std::to_string(properties.multiProcessorCount)},
      {"memory", std::to_string(properties.totalGlobalMem) + " B"},
      {"l2 cache", std::to_string(properties.l2CacheSize) + " B"},
      {"memory bus", std::to_string(properties.memoryBusWidth) + " bit"},
      {"peak clock", std::to_string(attribute(index_, cudaDevAttrClockRate)) + " kHz"},
      {"peak memory clock", std::to_string(attribute(index_, cudaDevAttrMemoryClockRate)) + " kHz"},
      {"ecc", properties.ECCEnabled ? "on" : "off"}};
  if (!hardware_described().empty()) facts.emplace_back("numerics", hardware_described());
  for (auto& fact : nvml_->facts()) facts.push_back(std::move(fact));
  for (auto& version : library_versions()) facts.push_back(std::move(version));
  return facts;
}

std::optional<DeviceState> CudaDevice::state() {
  if (!nvml_->absent().empty()) return {};
  return nvml_->state();
}

void* CudaDevice::allocate(size_t bytes) {
  activate();
  const size_t size = block_size(bytes);
  // A block that is slightly too large is better than a new one;
  // one that is far too large would be missing for larger requests.
  std::multimap<size_t, void*>& free = recording_ ? recording_->free : free_;
  const auto found = free.lower_bound(size);
  if (found != free.end() && found->first <= (size <= kSmall ? 2 * size : size + size / 8)) {
    void* memory = found->second;
    free.erase(found);
    return memory;
  }
  void* memory = new_block(size);
  if (!memory) {
    size_t available = 0, total = 0;
    ignore(cudaMemGetInfo(&available, &total));
    note_shortage();
    throw Error(name() + " is out of memory for " + std::to_string(bytes) + " B: " + std::to_string(available) +
                " of " + std::to_string(total) + " B are free");
  }
  block_sizes_.emplace(memory, size);
  if (recording_) graph_blocks_.emplace(memory, recording_);
  return memory;
}

size_t CudaDevice::bytes_available() const {
  if (recording_ || is_lost()) return 0;
  activate();
  size_t available = 0, total = 0;
  const cudaError_t status = cudaMemGetInfo(&available, &total);
  ignore(status);
  for (const auto& [size, memory] : free_) available += size;
  return available;
}

void* CudaDevice::new_block(size_t size) {
  void* memory = nullptr;
  cudaError_t status = cudaMalloc(&memory, size);
  if (status == cudaErrorMemoryAllocation && !recording_) {
    (void)cudaGetLastError();
    synchronize();
    release_cached();
    status = cudaMalloc(&memory, size);
  }
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc");
  GpuUse::of(index_).takes(size);
  return memory;
}

void CudaDevice::release(void* memory, size_t) noexcept {
  const auto block = block_sizes_.find(memory);
  if (block == block_sizes_.end()) return;
  // What recorded work releases it may use again, and no one else: each run writes it.
  if (recording_) graph_blocks_.emplace(memory, recording_);
  const auto owner = graph_blocks_.find(memory);
  std::multimap<size_t, void*>& free = owner == graph_blocks_.end() ? free_ : owner->second->free;
  // Before blocks of equal size: the one that was released last is used first, and may still be in the cache.
  free.emplace_hint(free.lower_bound(block->second), block->second, memory);
}

void CudaDevice::release_cached() noexcept {
  for (const auto& [size, memory] : free_) {
    ignore(cudaFree(memory));
    GpuUse::of(index_).gives_back(size);
    block_sizes_.erase(memory);
  }
  free_.clear();
}

void CudaDevice::return_kept_memory() {
  synchronize();
  release_cached();
}

// Copies are synchronous: the caller may use the host memory as soon as they return.
void CudaDevice::copy_in(void* device_memory, const void* host, size_t bytes) {
  if (bytes == 0) return;
  activate();
  if (recording_) host = recording_->keep(host, bytes);
  HM_CUDA(cudaMemcpyAsync(device_memory, host, bytes, cudaMemcpyHostToDevice, stream_));
  if (!recording_) synchronize();
}

void CudaDevice::clear(void* device_memory, size_t bytes) {
  if (bytes == 0) return;
  activate();
  HM_CUDA(cudaMemsetAsync(device_memory, 0, bytes, stream_));
}

void CudaDevice::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  activate();
  HM_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaDevice::copy_out(void* host, const void* device_memory, size_t bytes) {
  if (bytes == 0) return;
  refuse_while_recording();
  activate();
  const char* call = "cudaMemcpyAsync";
  cudaError_t status = cudaMemcpyAsync(host, device_memory, bytes, cudaMemcpyDeviceToHost, stream_);
  if (status == cudaSuccess) call = "cudaStreamSynchronize", status = cudaStreamSynchronize(stream_);
  if (status == cudaSuccess) return;
  const std::string failure = failure_text(status, call);
  (void)cudaGetLastError();
  // The copy may be still to come, and the caller frees `host`: wait for it once more, or end the context.
  (void)lost();
  throw Error(failure);
}

void CudaDevice::refuse_while_recording() const {
  if (recording_) throw Unsupported(name() + " cannot record this work: the host waits for the device in it");
}

void CudaDevice::synchronize() {
  refuse_while_recording();
  activate();
  HM_CUDA(cudaStreamSynchronize(stream_));
}

// The stream is kept busy while the host enqueues; otherwise the first launch's latency would be measured. Work that takes
// the host longer to enqueue than the pause is launch-bound, and its time includes that.
double CudaDevice::time(const std::function<void()>& work) { return timed(50e-6, work); }

std::optional<double> CudaDevice::time_after_pause(double pause, const std::function<void()>& work) {
  bool covers = false;
  const double seconds = timed(pause, [&] {
    work();
    const cudaError_t state = cudaEventQuery(start_);  // of the end of the pause
    covers = state == cudaErrorNotReady;
    if (covers)
      (void)cudaGetLastError();  // the next launch must not find it
    else
      check(state, "cudaEventQuery");
  });
  return covers ? std::optional(seconds) : std::nullopt;
}

double CudaDevice::timed(double pause, const std::function<void()>& work) {
  constexpr double kLongestPause = 1;
  synchronize();
  launch_pause(stream_, static_cast<uint32_t>(std::lround(std::min(pause, kLongestPause) * 1e6)));
  HM_CUDA(cudaEventRecord(start_, stream_));
  work();
  HM_CUDA(cudaEventRecord(stop_, stream_));
  HM_CUDA(cudaEventSynchronize(stop_));
  float milliseconds = 0;
  HM_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
  return static_cast<double>(milliseconds) * 1e-3;
}

std::unique_ptr<RecordedWork> CudaDevice::record(const std::function<void()>& work) {
  synchronize();
  release_cached();  // a graph has memory of its own, and the same step has just run with these blocks
  auto graph = std::make_unique<RecordedGraph>(
      RecordedGraph::Owner{stream_, [this] { activate(); }, [this](RecordedGraph& one) { return take_back(one); }});
  recording_ = graph.get();
  try {
    graph->capture(work);
  } catch (...) {
    recording_ = nullptr;
    throw;
  }
  recording_ = nullptr;
  return graph;
}

StreamOf CudaDevice::stream_of() {
  return {stream_, [this] { activate(); }, [this] { return !lost_.empty(); }};
}

std::unique_ptr<ValueReader> CudaDevice::value_reader() { return std::make_unique<CudaValueReader>(stream_of()); }

std::unique_ptr<TimeMarks> CudaDevice::time_marks() { return std::make_unique<CudaTimeMarks>(stream_of()); }

std::optional<ProcessMemory> CudaDevice::process_memory() {
  double pool = 0;
  for (const auto& [memory, bytes] : block_sizes_) pool += static_cast<double>(bytes);
  return ProcessMemory{pool, GpuUse::of(index_).outside_pool(*nvml_)};
}

bool CudaDevice::take_back(RecordedGraph& graph) noexcept {
  const bool usable = lost_.empty();
  if (usable) {
    ignore(cudaSetDevice(index_));
    ignore(cudaStreamSynchronize(stream_));
  }
  free_.merge(graph.free);
  std::erase_if(graph_blocks_, [&](const auto& block) { return block.second == &graph; });
  return usable;
}

// Tensor cores of half types take nhwc; convolutions of plain images are transposed around them (NVIDIA, Deep Learning
// Performance, Convolutional Layers, "Tensor Layouts in Memory: NCHW vs NHWC").
Layout CudaDevice::image_layout(DType dtype) const {
  return dtype == DType::f16 || dtype == DType::bf16 ? Layout::nhwc : Layout::plain;
}

void CudaDevice::evict_caches() {
  activate();
  if (!eviction_) {
    eviction_bytes_ = 2 * static_cast<size_t>(std::max(attribute(index_, cudaDevAttrL2CacheSize), 1 << 20));
    eviction_ = new_block(eviction_bytes_);
    if (!eviction_)
      throw Error(name() + " is out of memory for " + std::to_string(eviction_bytes_) + " B that evict its cache");
  }
  HM_CUDA(cudaMemsetAsync(eviction_, 0, eviction_bytes_, stream_));
}

cublasLtHandle_t CudaDevice::blaslt() const {
  if (!blaslt_) {
    activate();
    HM_CUBLAS(cublasLtCreate(&blaslt_));
  }
  return blaslt_;
}

cudnnHandle_t CudaDevice::cudnn() const {
  if (!cudnn_) {
    activate();
    cudnnHandle_t handle = nullptr;
    HM_CUDNN(cudnnCreate(&handle));
    if (const cudnnStatus_t status = cudnnSetStream(handle, stream_); status != CUDNN_STATUS_SUCCESS) {
      cudnnDestroy(handle);  // it would work on the default stream
      check(status, "cudnnSetStream");
    }
    cudnn_ = handle;
  }
  return cudnn_;
}

}  // namespace halfmark::kernels::cuda
