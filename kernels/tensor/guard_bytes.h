// Sentinel bytes around the memory of every tensor, for tests. They detect writes outside a tensor, up to kMargin bytes
// from it, for any kernel and device. No cost while no GuardBytes object exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels {

// While this object exists, each tensor made on the device, including a kernel's scratch, lies between sentinels. Its
// memory also starts as sentinels. They are quiet NaNs, so an unwritten element and a read outside the tensor both show
// in the result. Under AddressSanitizer the sentinels outside are also poisoned.
//
// The sentinels of a tensor are codes of its dtype with random signs and payloads. If the dtype has no such NaNs, or the
// memory may hold another one (opaque layouts), they are words 0x7fff and 0xffff: NaNs as f64, f32, f16, bf16, e4m3 and
// e5m2.
//
// A kernel that reads and writes past the end often copies sentinels of an input behind an output, because relu and
// additions return the NaN that they are given. This shows only where the sentinels of both tensors differ. redraw()
// therefore chooses the signs of every second sentinel (the 1st, 3rd, 5th, ... from the tensor outwards). All written
// tensors of a dtype get the same signs there, and a tensor that is only read gets the opposite ones. Copying one
// element too many from an input is thus always detected. All other bits are random, and each case draws again.
//
// Probability that a wrong copy is missed (n/2 is rounded down):
// - one byte from an input: 1/256 for f16, f32 and f64, 1/64 for bf16;
// - n elements from another written tensor: 2^-(n/2) for e4m3 and 16-bit words, 2^-(n + n/2) for e5m2, at most 2^-(6 n)
//   for other dtypes.
class GuardBytes {
 public:
  static constexpr size_t kMargin = 4096;  // bytes on each side: a multiple of every alignment that libraries ask for

  explicit GuardBytes(Device& device);  // at most one per device at a time; equal calls give equal sentinels
  ~GuardBytes();                        // tensors may outlive it; they are no longer checked then
  GuardBytes(const GuardBytes&) = delete;
  GuardBytes& operator=(const GuardBytes&) = delete;

  struct Damage {
    const void* memory;  // where the tensor begins
    size_t bytes;        // its size
    int64_t offset;      // of the first damaged byte from `memory`: negative, or at least `bytes`
    size_t count;        // from the first damaged byte to the last one on that side
    bool released;       // the tensor was already freed when the damage was found
  };
  // Damage since the last call. The sentinels are restored afterwards.
  std::vector<Damage> take_damage();

  // Draws new sentinels outside every tensor. `read_only`: the memory of those that are not written until the next
  // redraw(). Tensors made later count as written. Call take_damage() first: this overwrites damaged bytes.
  void redraw(const std::set<const void*>& read_only);

  // Only for Tensor. `memory` is what allocate() returned, for this or an earlier GuardBytes of the device. Without a
  // dtype the memory may hold any.
  void* allocate(size_t bytes, std::optional<DType> dtype);
  static void release(Device& device, void* memory, size_t bytes) noexcept;

 private:
  struct Guarded {
    size_t bytes;
    uint64_t number;  // counts the tensors
    std::optional<DType> dtype;
    std::vector<unsigned char> before, after;  // the sentinels
  };
  void draw(void* memory, Guarded& guarded, bool read_only);
  void inspect(void* memory, const Guarded& guarded, bool released);

  Device& device_;
  uint64_t redraws_ = 0, tensors_ = 0;
  std::vector<uint64_t> signs_;  // of every second sentinel outside a written tensor, from the tensor outwards
  std::unordered_map<void*, Guarded> live_;
  std::vector<Damage> damage_;
};

}  // namespace halfmark::kernels
