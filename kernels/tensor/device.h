// Memory that tensors are allocated in, with the kernels that run on it: "cpu", "sim:hopper", "cuda:0".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/tensor/device_state.h"
#include "kernels/tensor/memory.h"

namespace halfmark::kernels {

class GuardBytes;
class Tensor;
enum class Layout : uint8_t;  // kernels/tensor/tensor.h
class KernelTable;            // kernels/ops/ops.h: the rows of this device

// How many of each a recorded work has. What libraries launch is among them.
struct RecordedCounts {
  int64_t kernels = 0, copies = 0, fills = 0;
};

// Work that a device has recorded.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  RecordedWork() = default;
  RecordedWork(const RecordedWork&) = delete;
  RecordedWork& operator=(const RecordedWork&) = delete;
  virtual void run() = 0;  // enqueues it once more
  virtual RecordedCounts counts() const = 0;
};

// Copies a value of a device to the host without waiting for what is enqueued after the copy.
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  ValueReader() = default;
  ValueReader(const ValueReader&) = delete;
  ValueReader& operator=(const ValueReader&) = delete;
  virtual void enqueue(const Tensor& value) = 0;  // f32 [1]
  virtual float wait() = 0;                       // for the last enqueued copy, then its value
};

// Points in the work of a device, between its kernels.
class TimeMarks {
 public:
  virtual ~TimeMarks() = default;
  TimeMarks() = default;
  TimeMarks(const TimeMarks&) = delete;
  TimeMarks& operator=(const TimeMarks&) = delete;
  virtual size_t mark() = 0;                           // behind what is enqueued; its number, from 0
  virtual double seconds(size_t from, size_t to) = 0;  // between two marks; waits for the later one
};

// What a process has on a GPU, in bytes.
struct ProcessMemory {
  double pool = 0;                              // allocated for tensors, blocks that are kept for reuse included
  double outside_pool = DeviceState::kUnknown;  // context, code and libraries; NaN: not known
};

// Not thread-safe: one thread at a time uses a device. Its kernels may use many threads internally.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;                                           // as on the command line
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;  // facts for the report, in this order
  virtual const KernelTable& kernels() const = 0;

  // Empty for hardware. A simulated device states its guarantee ("instruction-exact"); its times are not valid.
  virtual std::string numerics() const { return {}; }

  // 64-byte aligned memory, not cleared. allocate throws Error if there is not enough. Only Tensor calls these, and a
  // device itself for memory that is not measured.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory, size_t bytes) noexcept = 0;

  virtual void return_kept_memory() {}  // gives released memory that is kept for reuse back to the system

  // Empty while it can be used. Else the failed call after which nothing can run on it in this process any more, as
  // after a fault of device code on a GPU: every other call throws Error. Waits for enqueued work.
  virtual std::string lost() { return {}; }

  virtual void copy_in(void* device_memory, const void* host, size_t bytes) = 0;
  // Zeros in all bytes, after the kernels that are enqueued; does not wait for it.
  virtual void clear(void* device_memory, size_t bytes);
  virtual void copy_out(void* host, const void* device_memory, size_t bytes) = 0;
  // From its memory to its memory, after the kernels that are enqueued; need not wait for it.
  virtual void copy(void* to, const void* from, size_t bytes);
  virtual void synchronize() {}
  virtual double time(
      const std::function<void()>& work) = 0;  // seconds from the start of the first kernel to the end of the last one
  // The same without gaps for launches: the device first idles for `pause` seconds, a second at most. Nothing: the host did
  // not enqueue all of `work` meanwhile, or it runs the kernels itself, as on a CPU.
  virtual std::optional<double> time_after_pause(double pause, const std::function<void()>& work);
  virtual std::unique_ptr<TimeMarks> time_marks();  // destroyed before the device; not for work that is recorded
  virtual void evict_caches() = 0;                  // so that the next kernel reads from memory

  // Its clocks, temperature, power and what slows it down, now. Nothing: it does not tell, as a CPU or a GPU without NVML.
  virtual std::optional<DeviceState> state() { return std::nullopt; }

  // Nothing: its memory is the host's.
  virtual std::optional<ProcessMemory> process_memory() { return std::nullopt; }

  // Records the kernels that `work` enqueues, with their memory, instead of running them (CUDA graphs). They may then run
  // any number of times with one call; until the result is destroyed the memory that `work` releases is not reused. What
  // `work` copies from the host is copied again each time, as it was.
  // Throws Unsupported with a reason if the device cannot, or if `work` waits for a result of the device.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work);

  // Destroyed before the device. Not for work that is recorded. A device whose work the host does itself reads at once.
  virtual std::unique_ptr<ValueReader> value_reader();

  // The elements of an opaque tensor in plain (row-major) order. `host` holds bytes_for(dtype, elements).
  virtual void copy_out_plain(void* host, const Tensor& opaque);

  // The layout in which images of this dtype are best given to it: plain or nhwc.
  virtual Layout image_layout(DType dtype) const;

  MemoryLedger& memory() { return memory_; }
  const MemoryLedger& memory() const { return memory_; }

  // The dispatcher's cache of chosen rows (kernels/ops/dispatch.h); has the lifetime of the device.
  std::shared_ptr<void> dispatch;

  // Set while sentinel bytes surround every new tensor; only in tests (guard_bytes.h).
  GuardBytes* guard_bytes = nullptr;

 private:
  MemoryLedger memory_;
};

}  // namespace halfmark::kernels
