// mbarrier: section 9.7.13.15 of the PTX ISA. Only what products of tcgen05 need: init, inval, and waiting for a phase by
// its parity. Arrivals come from tcgen05.commit.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/memory_access.h"
#include "kernels/cuda/software_gpu/tensor_code.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr uint64_t kMbarrierBytes = 8;

// The place in shared memory of an address, which may be generic.
uint64_t shared_offset(uint64_t address) {
  return address - shared_window() < kWindowBytes ? address - shared_window() : address;
}

void start_phases(Warp& w, const Instruction& i) {
  each_lane(w.active, [&](int l) {
    const uint64_t address = shared_offset(address_of(w, i, l));
    const uint32_t count = w.lane<uint32_t>(i.b, l);
    if (count == 0 || count >= 1u << 20)
      fault(w, i, l, cudaErrorIllegalInstruction, "mbarrier.init for " + std::to_string(count) + " arrivals");
    const std::byte opaque[kMbarrierBytes] = {};
    access(w, i, l, Space::shared, address, kMbarrierBytes, Use::write, opaque);
    w.block->mbarriers()[address] = {count, count};
  });
}

void end_phases(Warp& w, const Instruction& i) {
  each_lane(w.active, [&](int l) {
    const uint64_t address = shared_offset(address_of(w, i, l));
    mbarrier_at(w, i, l, address);
    w.block->mbarriers().erase(address);
  });
}

// Waits for the end of the phase with the parity, and then says yes: a wait that ends early only makes code try again.
void try_wait(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  const int first = std::countr_zero(w.active);
  const uint64_t address = shared_offset(address_of(w, i, first));
  const uint32_t parity = w.lane<uint32_t>(i.b, first);
  each_lane(w.active, [&](int l) {
    if (shared_offset(address_of(w, i, l)) != address || w.lane<uint32_t>(i.b, l) != parity)
      fault(w, i, l, cudaErrorNotSupported, "the software GPU has no waits of one warp for different phases");
  });
  if (parity > 1) fault(w, i, first, cudaErrorIllegalInstruction, "the parity of a phase is 0 or 1");
  const Mbarrier* barrier = nullptr;
  each_lane(w.active, [&](int l) { barrier = &mbarrier_at(w, i, l, address); });
  if (!barrier->has_completed(parity)) {
    w.state = Warp::State::waits_for_phase;
    w.mbarrier = address, w.parity = parity;
    --w.pc;  // to be executed again
    return;
  }
  each_lane(w.active, [&](int l) {
    uint32_t& there = w.products_there[static_cast<size_t>(l)];
    there = std::max(there, barrier->completed);
  });
  w.set_predicate(i.d, kAllLanes);
}

void take_wait_semantics(Modifiers& m) {
  if (m.accept("acquire") || m.accept("relaxed")) (void)(m.accept("cta") || m.accept("cluster"));
}

bool decode_mbarrier(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto place = [&] { return (m.accept("shared::cta") || m.accept("shared") || true) && m.accept("b64"); };
  if (m.accept("init")) {
    if (!place() || s.operands.size() != 2) return false;
    i.run = start_phases;
    coder.address(s.operands[0], i);
    i.b = coder.source(s.operands[1], 32);
    return true;
  }
  if (m.accept("inval")) {
    if (!place() || s.operands.size() != 1) return false;
    i.run = end_phases;
    coder.address(s.operands[0], i);
    return true;
  }
  if (!m.accept("try_wait") || !m.accept("parity")) return false;
  take_wait_semantics(m);
  if (!place() || s.operands.size() != 3) return false;
  i.run = try_wait;
  i.d = coder.destination(s.operands[0], 1);
  coder.address(s.operands[1], i);
  i.b = coder.source(s.operands[2], 32);
  return i.d != kNoRegister;
}

}  // namespace

Mbarrier& mbarrier_at(Warp& w, const Instruction& i, int lane, uint64_t address) {
  access(w, i, lane, Space::shared, address, kMbarrierBytes, Use::read,
         nullptr);  // faults unless the init comes before
  const auto found = w.block->mbarriers().find(address);
  if (found == w.block->mbarriers().end())
    fault(w, i, lane, cudaErrorLaunchFailure,
          "no mbarrier has been initialised at byte " + std::to_string(address) + " of shared memory");
  return found->second;
}

void add_mbarrier_decoders(Decoders& all) { all["mbarrier"] = decode_mbarrier; }

}  // namespace halfmark::kernels::software_gpu
