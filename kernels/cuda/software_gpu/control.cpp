#include "kernels/cuda/software_gpu/control.h"

#include <bit>
#include <cstdint>
#include <string>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/handlers.h"

namespace halfmark::kernels::software_gpu {
namespace {

void branch(Warp& w, const Instruction& i) {
  const uint32_t stay = w.mask & ~w.active;
  if (w.active == 0) return;
  if (stay == 0) {
    w.pc = i.target;
    return;
  }
  // The lanes meet at i.reconverge. If those at hand wait there for others already, the entry exists.
  if (i.reconverge != w.reconverge) w.stack.push_back({w.mask, i.reconverge, w.reconverge});
  if (w.pc != i.reconverge) w.stack.push_back({stay, w.pc, i.reconverge});
  w.mask = w.active;
  w.pc = i.target;
  w.reconverge = i.reconverge;
}

void end(Warp& w, const Instruction&) {
  w.live &= ~w.active;
  w.mask &= ~w.active;
  for (Continuation& other : w.stack) other.mask &= ~w.active;
  if (w.mask == 0) continue_with_next(w);
}

void trap(Warp& w, const Instruction& i) {
  if (w.active) fault(w, i, std::countr_zero(w.active), cudaErrorLaunchFailure, "trap");
}

void nothing(Warp&, const Instruction&) {}

void barrier(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  require_convergence(w, i, "bar.sync");
  ++w.lane_syncs;
  w.state = Warp::State::waits;
  w.barrier = static_cast<int>(w.lane<uint32_t>(i.a, std::countr_zero(w.active)));
  w.barrier_count = i.b == kNoRegister ? 0 : w.lane<uint32_t>(i.b, std::countr_zero(w.active));
  if (w.barrier > 15) fault(w, i, -1, cudaErrorIllegalInstruction, "barrier " + std::to_string(w.barrier) + " of 16");
  if (w.barrier_count % kLanes)
    fault(w, i, -1, cudaErrorIllegalInstruction, "a barrier for a number of threads that is not a multiple of 32");
}

void barrier_arrive(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  require_convergence(w, i, "bar.arrive");
  const int first = std::countr_zero(w.active);
  w.block->arrive(w, static_cast<int>(w.lane<uint32_t>(i.a, first)), w.lane<uint32_t>(i.b, first));
}

bool decode_bra(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool uniform = m.accept("uni");
  if (s.operands.size() != 1 || s.operands[0].kind != Operand::Kind::label) return false;
  if (uniform && i.guard != kNoRegister) coder.fail("bra.uni with a guard is not supported");
  i.run = branch;
  return true;
}

bool decode_ret(Coder&, const Statement& s, Modifiers& m, Instruction& i) {
  m.accept("uni");
  i.run = end;
  return s.operands.empty();
}
bool decode_exit(Coder&, const Statement& s, Modifiers&, Instruction& i) {
  i.run = end;
  return s.operands.empty();
}
bool decode_trap(Coder&, const Statement& s, Modifiers&, Instruction& i) {
  i.run = trap;
  return s.operands.empty();
}
bool decode_nothing(Coder&, const Statement& s, Modifiers& m, Instruction& i) {
  i.run = nothing;
  if (m.opcode() == "nanosleep") m.accept("u32");
  return s.operands.size() <= 1;
}

// bar{.cta}.sync a{, b}; barrier{.cta}.sync.aligned; bar.arrive a, b
bool decode_bar(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  m.accept("cta");
  const bool whole_name = m.opcode() == "barrier";
  if (m.accept("sync")) {
    if (whole_name && !m.accept("aligned")) return false;  // the form that is not aligned
    if (s.operands.empty() || s.operands.size() > 2) return false;
    i.run = barrier;
    i.a = coder.source(s.operands[0], 32);
    if (s.operands.size() == 2) i.b = coder.source(s.operands[1], 32);
    return true;
  }
  if (m.accept("arrive") && s.operands.size() == 2) {
    if (whole_name && !m.accept("aligned")) return false;
    i.run = barrier_arrive;
    i.a = coder.source(s.operands[0], 32), i.b = coder.source(s.operands[1], 32);
    return true;
  }
  if (m.accept("warp")) return decode_warp_barrier(coder, s, m, i);
  return false;
}

}  // namespace

bool is_return(const Instruction& instruction) { return instruction.run == end; }
bool is_trap(const Instruction& instruction) { return instruction.run == trap; }

void continue_with_next(Warp& w) {
  do {
    if (w.stack.empty()) {
      w.mask = 0;
      if (w.live == 0) w.state = Warp::State::ended;
      return;
    }
    const Continuation next = w.stack.back();
    w.stack.pop_back();
    w.mask = next.mask, w.pc = next.pc, w.reconverge = next.reconverge;
  } while (w.mask == 0 || (w.pc == w.reconverge && w.pc != kNoPlace));
}

void require_convergence(const Warp& w, const Instruction& i, const char* name) {
  if (w.active == w.live) return;
  const uint32_t absent = w.live & ~w.active;
  fault(w, i, std::countr_zero(w.active), cudaErrorIllegalInstruction,
        std::string(name) + " in divergent code: thread " +
            std::to_string(w.index * kLanes + std::countr_zero(absent)) + " of the same warp does not execute it");
}

void add_control_decoders(Decoders& all) {
  all["bra"] = decode_bra;
  all["ret"] = decode_ret;
  all["exit"] = decode_exit;
  all["trap"] = decode_trap;
  all["bar"] = decode_bar;
  all["barrier"] = decode_bar;
  all["nanosleep"] = decode_nothing;
}

}  // namespace halfmark::kernels::software_gpu
