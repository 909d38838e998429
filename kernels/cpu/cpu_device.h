// Host memory as a device, and the CPU: real fast rows first, reference rows last.
#pragma once

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

// A library's layout in host memory, which alone knows how to undo itself.
class HostLayout : public OpaqueLayout {
 public:
  // The elements in plain (row-major) order.
  virtual void copy_out_plain(void* host, const void* memory) const = 0;
};

// Everything about host memory; what kernels there are is up to the device built on it.
class HostDevice : public Device {
 public:
  ~HostDevice() override;
  void* allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) noexcept override;
  void copy_in(void* device_memory, const void* host, size_t bytes) override;
  void copy_out(void* host, const void* device_memory, size_t bytes) override;
  double time(const std::function<void()>& work) override;
  void evict_caches() override;
  void copy_out_plain(void* host, const Tensor& opaque) override;

  // What a library keeps for this device between calls (packed weights, scratch). It may hold tensors of the device, so
  // it goes before the device does.
  std::shared_ptr<void> library;

 private:
  // Released blocks by size, for the next tensor of that size: memory fresh from the system costs a page fault for
  // every 4 KiB, more than a kernel that writes it once. A training step asks for the same sizes again and again.
  std::unordered_map<size_t, std::vector<void*>> released_;
};

class CpuDevice : public HostDevice {
 public:
  // Threads for every library and for our own kernels, in the whole process; 0 leaves them as they are (at first: all
  // cores).
  explicit CpuDevice(int threads = 0);
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }

 private:
  KernelTable kernels_;
};

}  // namespace halfmark::kernels
