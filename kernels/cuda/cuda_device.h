// One NVIDIA GPU: plain allocations from a caching pool, one stream, and the libraries' handles.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dot_table.h"
#include "kernels/cuda/hardware.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/stream_of.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels::cuda {

class Cublas;
class RecordedGraph;

// Everything runs on one stream, so released memory may be reused at once: later work runs later.
class CudaDevice : public Device {
 public:
  // Throws Error if the GPU cannot be used, in particular by this build.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  std::string name() const override { return "cuda:" + std::to_string(index_); }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }
  std::string numerics() const override { return hardware_numerics(); }
  void* allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) noexcept override;
  void return_kept_memory() override;
  void copy_in(void* device_memory, const void* host, size_t bytes) override;
  void clear(void* device_memory, size_t bytes) override;
  void copy_out(void* host, const void* device_memory, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void synchronize() override;
  double time(const std::function<void()>& work) override;
  std::optional<double> time_after_pause(double pause, const std::function<void()>& work) override;
  void evict_caches() override;
  Layout image_layout(DType dtype) const override;
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override;
  std::unique_ptr<ValueReader> value_reader() override;
  std::unique_ptr<TimeMarks> time_marks() override;
  std::optional<ProcessMemory> process_memory() override;
  std::string lost() override;
  std::optional<DeviceState> state() override;

  // Counts as lost: its work does not end, so nothing waits for it any more.
  void leave(const std::string& reason) { lost_ = reason; }
  bool is_lost() const { return !lost_.empty(); }  // as far as is known; lost() waits for the device

  // How often memory was missing. A library that has none for itself counts too.
  int shortages() const { return shortages_; }
  void note_shortage() const { ++shortages_; }
  size_t bytes_available() const;  // of the GPU and in free blocks; 0 while work is recorded

  // The current device is a property of the thread. Throws Error if the device is lost.
  void activate() const;
  cudaStream_t stream() const { return stream_; }
  int index() const { return index_; }                            // as CUDA numbers it in this process
  int compute_capability() const { return compute_capability_; }  // 90 for sm_90
  cublasLtHandle_t blaslt() const;                                // created on first use: cuDNN's takes long
  cudnnHandle_t cudnn() const;

  DotImage dot_code;  // what the code of dot.cu on this GPU was compiled for

  // Plans that the files of rows keep; they have the lifetime of the device.
  mutable std::shared_ptr<void> blaslt_plans, cudnn_plans, cudnn_attention_plans, cudnn_graph_plans;
  mutable std::shared_ptr<Cublas> cublas;  // opened on first use

 private:
  void open();
  void close() noexcept;
  void release_cached() noexcept;
  void end_context(const std::string& failure);
  StreamOf stream_of();
  void refuse_while_recording() const;
  double timed(double pause,
               const std::function<void()>& work);  // after a pause, whether it covers the launches or not
  bool take_back(RecordedGraph& graph) noexcept;    // its blocks, when it has ended; false: the device is lost
  void* new_block(size_t size);                     // null if the GPU has no memory left even without the free blocks

  int index_;
  std::unique_ptr<Nvml> nvml_;
  int compute_capability_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  mutable cublasLtHandle_t blaslt_ = nullptr;
  mutable cudnnHandle_t cudnn_ = nullptr;
  std::multimap<size_t, void*> free_;                       // by size
  std::unordered_map<void*, size_t> block_sizes_;           // of every block, free or not
  RecordedGraph* recording_ = nullptr;                      // what is being recorded
  std::unordered_map<void*, RecordedGraph*> graph_blocks_;  // blocks that only a graph uses, free or not
  void* eviction_ = nullptr;
  size_t eviction_bytes_ = 0;
  KernelTable kernels_;
  mutable int shortages_ = 0;
  std::string lost_;  // why there is no context any more; empty: there is one
};

// The line for a status of cudaGetDeviceCount that means that no GPU is usable; `driver` as returned by
// cudaDriverGetVersion.
std::string absence(cudaError_t status, int driver);

std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace halfmark::kernels::cuda
