// A place where tensors live and kernels run: "cpu", "sim:hopper", "cuda:0".
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/memory.h"

namespace halfmark::kernels {

class GuardBytes;
class Tensor;
class KernelTable;  // kernels/ops/ops.h: the rows this device offers

// A device is used by one thread at a time; its kernels may use many threads inside.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;                                           // as on the command line
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;  // facts for the report, in order
  virtual const KernelTable& kernels() const = 0;

  // Empty for hardware. A simulated device says what its numbers promise ("instruction-exact"); its times mean nothing.
  virtual std::string numerics() const { return {}; }

  // 64-byte aligned memory, not cleared. allocate throws Error when there is none. Tensor is the only caller.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory, size_t bytes) noexcept = 0;

  virtual void copy_in(void* device_memory, const void* host, size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device_memory, size_t bytes) = 0;
  virtual void synchronize() {}
  virtual double time(
      const std::function<void()>& work) = 0;  // seconds, from the first kernel's start to the last one's end
  virtual void evict_caches() = 0;             // so that the next kernel reads from memory

  // An opaque tensor's elements in plain (row-major) order. `host` holds bytes_for(dtype, elements).
  virtual void copy_out_plain(void* host, const Tensor& opaque);

  MemoryLedger& memory() { return memory_; }
  const MemoryLedger& memory() const { return memory_; }

  // The dispatcher's cache of chosen rows (kernels/ops/kernel.h); lives and dies with the device.
  std::shared_ptr<void> dispatch;

  // Set while sentinel bytes surround every new tensor: tests only (guard_bytes.h).
  GuardBytes* guard_bytes = nullptr;

 private:
  MemoryLedger memory_;
};

}  // namespace halfmark::kernels
