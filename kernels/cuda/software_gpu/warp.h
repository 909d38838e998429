// A warp while it runs, and what handlers of instructions share.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/fault.h"
#include "kernels/cuda/software_gpu/program.h"

namespace halfmark::kernels::software_gpu {

class Block;

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// Lanes that continue at `pc` once the lanes above them on the stack have come to `reconverge` or ended.
struct Continuation {
  uint32_t mask;
  int32_t pc, reconverge;
};

// A register that wgmma writes once its group has been waited for.
struct PendingResult {
  uint32_t offset = 0;
  uint64_t group = 0;  // 0: not committed
  std::array<uint32_t, kLanes> lanes{};
};

struct Warp {
  enum class State : uint8_t { runs, waits, waits_for_phase, ended };

  std::byte* registers = nullptr;
  const Kernel* kernel = nullptr;
  Block* block = nullptr;
  int index = 0;
  State state = State::runs;
  uint32_t live = 0;    // lanes that have not ended
  uint32_t mask = 0;    // lanes at pc
  uint32_t active = 0;  // of these, the ones that the guard of the current instruction lets through
  int32_t pc = 0, reconverge = kNoPlace;
  std::vector<Continuation> stack;
  int barrier = 0;                              // waits: at which
  uint32_t barrier_count = 0;                   // waits: for how many threads; 0: all of the block
  uint64_t executed = 0;                        // instructions, in all blocks
  uint64_t limit = 0;                           // of `executed`: more is a kernel that does not end
  uint32_t lane_syncs = 1;                      // instructions so far that order the lanes of the warp
  std::array<uint32_t, kLanes> proxy_fences{};  // fence.proxy.async so far, of each lane
  uint64_t wgmma_count = 0;
  bool wgmma_fenced = false;
  uint64_t groups = 0;  // of wgmma, committed so far
  std::vector<PendingResult> pending;
  uint64_t mbarrier = 0;                          // waits_for_phase: its address in shared memory
  uint32_t parity = 0;                            // waits_for_phase: of which phase
  std::array<uint32_t, kLanes> products_there{};  // of tcgen05.mma: so many each lane knows to be there
  std::vector<PendingResult> tensor_loads;        // registers of tcgen05.ld, not waited for

  template <class T>
  void load(uint32_t offset, T (&to)[kLanes]) const {
    std::memcpy(to, registers + offset, sizeof to);
  }
  template <class T>
  void store(uint32_t offset, const T (&from)[kLanes]) {
    std::memcpy(registers + offset, from, sizeof from);
  }
  template <class T>
  T lane(uint32_t offset, int l) const {
    T value;
    std::memcpy(&value, registers + offset + static_cast<size_t>(l) * sizeof(T), sizeof value);
    return value;
  }
  template <class T>
  void set_lane(uint32_t offset, int l, T value) {
    std::memcpy(registers + offset + static_cast<size_t>(l) * sizeof(T), &value, sizeof value);
  }
  uint32_t predicate(uint32_t offset) const {
    uint32_t bits;
    std::memcpy(&bits, registers + offset, sizeof bits);
    return bits;
  }
  // The lanes that execute the current instruction get their bit of `bits`.
  void set_predicate(uint32_t offset, uint32_t bits) {
    bits = (bits & active) | (predicate(offset) & ~active);
    std::memcpy(registers + offset, &bits, sizeof bits);
  }
};

// Calls f(lane) for every lane of the mask.
template <class F>
inline void each_lane(uint32_t mask, F&& f) {
  for (; mask; mask &= mask - 1) f(std::countr_zero(mask));
}

// Throws Fault: "KERNEL, FILE:LINE: thread (x, y, z) of block (x, y, z): what". lane < 0: the warp's first thread.
[[noreturn]] void fault(const Warp& warp, const Instruction& instruction, int lane, cudaError_t code,
                        const std::string& what);

// An instruction that all threads of the warp must execute together: faults if some that have not ended do not.
void require_convergence(const Warp& warp, const Instruction& instruction, const char* name);

}  // namespace halfmark::kernels::software_gpu
