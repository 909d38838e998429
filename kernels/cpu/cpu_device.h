// Host memory as a device, and the CPU: real fast rows first, reference rows last.
#pragma once

#include "kernels/ops/ops.h"
#include "kernels/tensor/device.h"

namespace halfmark {

// Everything about host memory; what kernels there are is up to the device built on it.
class HostDevice : public Device {
 public:
  void* allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) noexcept override;
  void copy_in(void* device_memory, const void* host, size_t bytes) override;
  void copy_out(void* host, const void* device_memory, size_t bytes) override;
  double time(const std::function<void()>& work) override;
  void evict_caches() override;
  void copy_out_plain(void* host, const Tensor& opaque) override;
};

class CpuDevice : public HostDevice {
 public:
  // Threads for every library and for our own kernels; 0 = all cores.
  explicit CpuDevice(int threads = 0);
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }

 private:
  KernelTable kernels_;
};

// The slow, exact rows: any dtype, any Math. The last rows of every host device.
void add_reference_rows(KernelTable& table);

}  // namespace halfmark
