// Sentinel bytes around the memory of every tensor, for tests. They detect writes outside a tensor, for any kernel and
// device. No cost while no GuardBytes object exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/tensor/device.h"

namespace halfmark::kernels {

// While this object exists, each tensor made on the device, including a kernel's scratch, lies between sentinels. Its
// memory also starts as sentinel bytes. They are NaNs in every floating dtype, so an unwritten element and a read
// outside the tensor both show in the result. Under AddressSanitizer the sentinels are also poisoned.
class GuardBytes {
 public:
  static constexpr size_t kMargin = 4096;  // bytes on each side: a multiple of every alignment that libraries ask for

  explicit GuardBytes(Device& device);  // at most one per device at a time
  ~GuardBytes();                        // tensors may outlive it; they are no longer checked then
  GuardBytes(const GuardBytes&) = delete;
  GuardBytes& operator=(const GuardBytes&) = delete;

  struct Damage {
    const void* memory;  // purpose of the tensor
    size_t bytes;        // its size
    int64_t offset;      // of the first damaged byte from `memory`: negative, or at least `bytes`
    size_t count;        // from the first damaged byte to the last one on that side
    bool released;       // the tensor was already freed when the damage was found
  };
  // Damage since the last call. The sentinels are restored afterwards.
  std::vector<Damage> take_damage();

  // Only for Tensor. `memory` is what allocate() returned, for this or an earlier GuardBytes of the device.
  void* allocate(size_t bytes);
  static void release(Device& device, void* memory, size_t bytes) noexcept;

 private:
  void inspect(void* memory, size_t bytes, bool released);

  Device& device_;
  std::unordered_map<void*, size_t> live_;
  std::vector<Damage> damage_;
};

}  // namespace halfmark::kernels
