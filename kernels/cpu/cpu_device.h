// Host memory as a device, and the CPU: fast rows with meaningful times first, reference rows last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cpu/rows.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/device.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// A library's layout in host memory; only the layout itself can convert back.
class HostLayout : public OpaqueLayout {
 public:
  // The elements in plain (row-major) order.
  virtual void copy_out_plain(void* host, const void* memory) const = 0;
  // Of images [n, c / block, h, w, block], with c rounded up and zeros for the channels beyond it: the block. 0: others.
  virtual int64_t channel_block() const { return 0; }
};

// Everything about host memory. The derived device supplies the kernels.
class HostDevice : public Device {
 public:
  ~HostDevice() override;
  void* allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) noexcept override;
  void return_kept_memory() override;
  void copy_in(void* device_memory, const void* host, size_t bytes) override;
  void clear(void* device_memory, size_t bytes) override;
  void copy_out(void* host, const void* device_memory, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  double time(const std::function<void()>& work) override;
  void evict_caches() override;
  void copy_out_plain(void* host, const Tensor& opaque) override;

  // What a library keeps for this device between calls (packed weights, scratch). It may hold tensors of the device, so
  // it is destroyed before the device.
  std::shared_ptr<void> library;

 private:
  // Released blocks by size, for the next tensor of that size. Fresh memory from the system costs one page fault per 4
  // KiB, which takes longer than a kernel that writes it once. Every training step requests the same sizes.
  std::unordered_map<size_t, std::vector<void*>> released_;
};

class CpuDevice : public HostDevice {
 public:
  // Number of threads for every library and for halfmark's own kernels, for the whole process. 0 leaves it unchanged
  // (initially: all cores).
  explicit CpuDevice(int threads = 0);
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }
  Layout image_layout(DType dtype) const override;

 private:
  KernelTable kernels_;
};

}  // namespace halfmark::kernels
