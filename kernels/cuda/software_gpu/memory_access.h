// Checked access of one thread to memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

enum class Use : uint8_t { read, write, atomic };

// Where the `bytes` bytes of an address are in host memory. Faults if they are misaligned, out of bounds, freed, of
// another device, not yet written (read, atomic), or accessed in a race (shared memory). For `write` and `atomic` the
// bytes count as written; `value` is what will be there, for writes to shared memory.
std::byte* access(Warp& warp, const Instruction& instruction, int lane, Space space, uint64_t address, uint64_t bytes,
                  Use use, const std::byte* value);

// The address of a lane: its base register and the instruction's offset.
inline uint64_t address_of(const Warp& w, const Instruction& i, int lane) {
  const uint64_t base = i.flags & 1 ? w.lane<uint64_t>(i.a, lane) : w.lane<uint32_t>(i.a, lane);
  return base + static_cast<uint64_t>(i.immediate);
}

inline SharedMemory::Accessor accessor(const Warp& w, int lane) {
  const auto l = static_cast<size_t>(lane);
  return {w.index, lane, w.lane_syncs, w.proxy_fences[l], static_cast<uint32_t>(w.executed), w.products_there[l]};
}

}  // namespace halfmark::kernels::software_gpu
