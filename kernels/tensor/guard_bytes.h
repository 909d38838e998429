// Sentinel bytes around the memory of every tensor, for tests: a kernel that writes outside its tensors is found,
// whatever the kernel and the device. Costs nothing where no GuardBytes lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/tensor/device.h"

namespace halfmark::kernels {

// While it lives, each tensor made on the device, a kernel's scratch included, lies between sentinels. All of its
// memory starts as sentinel bytes as well: they are NaNs in every floating dtype, so an element that nobody writes
// shows in the result, and so does one that is read outside. Under the address sanitizer the sentinels are also
// poisoned.
class GuardBytes {
 public:
  static constexpr size_t kMargin = 4096;  // bytes on each side: a multiple of every alignment that libraries ask for

  explicit GuardBytes(Device& device);  // at most one on a device at a time
  ~GuardBytes();                        // tensors may outlive it; they are no longer checked then
  GuardBytes(const GuardBytes&) = delete;
  GuardBytes& operator=(const GuardBytes&) = delete;

  struct Damage {
    const void* memory;  // of the tensor
    size_t bytes;        // its size
    int64_t offset;      // of the first damaged byte from `memory`: negative, or at least `bytes`
    size_t count;        // from the first damaged byte to the last one on that side
    bool released;       // the tensor was gone when it was found
  };
  // What was damaged since the last call. The sentinels are whole again afterwards.
  std::vector<Damage> take_damage();

  // For Tensor alone. `memory` is what allocate() gave, on this or an earlier GuardBytes of the device.
  void* allocate(size_t bytes);
  static void release(Device& device, void* memory, size_t bytes) noexcept;

 private:
  void inspect(void* memory, size_t bytes, bool released);

  Device& device_;
  std::unordered_map<void*, size_t> live_;
  std::vector<Damage> damage_;
};

}  // namespace halfmark::kernels
