#include "kernels/cuda/software_gpu/block.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/control.h"

namespace halfmark::kernels::software_gpu {
namespace {

std::string text_of(uint64_t x, uint64_t y, uint64_t z) {
  return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

uint32_t warps_of(const Launch& launch) { return static_cast<uint32_t>((launch.block.count() + kLanes - 1) / kLanes); }

// Until the warp waits or ends.
void run_warp(Warp& w) {
  const Instruction* code = w.kernel->code.data();
  while (w.state == Warp::State::runs) {
    if (w.pc == w.reconverge) {
      continue_with_next(w);
      continue;
    }
    const Instruction& i = code[w.pc];
    w.active = w.mask;
    if (i.guard != kNoRegister) w.active &= i.guard_negated ? ~w.predicate(i.guard) : w.predicate(i.guard);
    ++w.pc;
    if (++w.executed == w.limit)
      fault(w, i, -1, cudaErrorLaunchTimeout,
            "no end after " + std::to_string(w.block->launch().instruction_limit) + " instructions of a warp");
    i.run(w, i);
  }
}

uint64_t value_of(Special special, const Block& block, const Warp& w, int lane) {
  const Launch& launch = block.launch();
  const uint64_t thread = static_cast<uint64_t>(w.index) * kLanes + static_cast<uint64_t>(lane);
  switch (special) {
    case Special::tid_x:
      return thread % launch.block.x;
    case Special::tid_y:
      return thread / launch.block.x % launch.block.y;
    case Special::tid_z:
      return thread / launch.block.x / launch.block.y;
    case Special::ntid_x:
      return launch.block.x;
    case Special::ntid_y:
      return launch.block.y;
    case Special::ntid_z:
      return launch.block.z;
    case Special::ctaid_x:
      return block.place().x;
    case Special::ctaid_y:
      return block.place().y;
    case Special::ctaid_z:
      return block.place().z;
    case Special::nctaid_x:
      return launch.grid.x;
    case Special::nctaid_y:
      return launch.grid.y;
    case Special::nctaid_z:
      return launch.grid.z;
    case Special::laneid:
      return static_cast<uint64_t>(lane);
    case Special::warpid:
      return static_cast<uint64_t>(w.index);
    case Special::lanemask_eq:
      return uint64_t{1} << lane;
    case Special::lanemask_le:
      return (uint64_t{2} << lane) - 1;
    case Special::lanemask_lt:
      return (uint64_t{1} << lane) - 1;
    case Special::lanemask_ge:
      return kAllLanes - ((uint64_t{1} << lane) - 1);
    case Special::lanemask_gt:
      return kAllLanes - ((uint64_t{2} << lane) - 1);
    case Special::dynamic_smem_size:
      return launch.dynamic_shared;
    case Special::total_smem_size:
      return launch.kernel->shared_bytes + launch.dynamic_shared;
    case Special::smid:
      return (block.place().x +
              uint64_t{launch.grid.x} * (block.place().y + uint64_t{launch.grid.y} * block.place().z)) %
             kMultiprocessors;
    case Special::nsmid:
      return kMultiprocessors;
    case Special::warpsize:
      return kLanes;
    case Special::clock:
    case Special::clock64:
    case Special::globaltimer:
      return 0;  // never filled before the start
  }
  return 0;
}

void fill_lane(Warp& w, const Filled& what, int lane, uint64_t value) {
  if (what.bits == 16) w.set_lane<uint16_t>(what.offset, lane, static_cast<uint16_t>(value));
  if (what.bits == 32) w.set_lane<uint32_t>(what.offset, lane, static_cast<uint32_t>(value));
  if (what.bits == 64) w.set_lane<uint64_t>(what.offset, lane, value);
}

}  // namespace

void fault(const Warp& w, const Instruction& i, int lane, cudaError_t code, const std::string& what) {
  const Block& block = *w.block;
  const Extent3& shape = block.launch().block;
  const uint64_t thread = static_cast<uint64_t>(w.index) * kLanes + static_cast<uint64_t>(std::max(lane, 0));
  throw Fault(code, w.kernel->name + ", " + w.kernel->module + ":" + std::to_string(i.line) + ": thread " +
                        text_of(thread % shape.x, thread / shape.x % shape.y, thread / shape.x / shape.y) +
                        " of block " + text_of(block.place().x, block.place().y, block.place().z) + ": " + what);
}

Block::Block(const Launch& launch) : launch_(launch), threads_(static_cast<uint32_t>(launch.block.count())) {
  const Kernel& kernel = *launch.kernel;
  const uint32_t count = warps_of(launch);
  registers_.resize(size_t{count} * kernel.register_bytes + 64);
  warps_.resize(count);
  hints_.resize(kernel.code.size());
  const uint64_t shared = std::max(kernel.shared_bytes, launch.dynamic_shared ? kernel.dynamic_offset : 0);
  shared_.resize(shared + launch.dynamic_shared, static_cast<int>(count));
  tensor_.resize(count);
  local_.resize(threads_ * kernel.local_bytes);
  local_written_.resize(local_.size());
}

uint64_t Block::executed() const {
  uint64_t sum = 0;
  for (const Warp& warp : warps_) sum += warp.executed;
  return sum;
}

std::vector<uint32_t> Block::proxy_fences() const {
  std::vector<uint32_t> all;
  for (const Warp& warp : warps_) all.insert(all.end(), warp.proxy_fences.begin(), warp.proxy_fences.end());
  return all;
}

void Block::fill(Warp& w, bool first) {
  for (const Filled& what : launch_.kernel->filled) {
    if (what.with == Filled::With::special) {
      const bool of_place =
          what.special == Special::ctaid_x || what.special == Special::ctaid_y || what.special == Special::ctaid_z;
      if (!first && !of_place) continue;
      for (int lane = 0; lane < kLanes; ++lane) fill_lane(w, what, lane, value_of(what.special, *this, w, lane));
      continue;
    }
    if (!first) continue;
    uint64_t value = what.value;
    if (what.with == Filled::With::symbol) value += launch_.symbol_addresses[static_cast<size_t>(what.symbol)];
    if (what.bits == 1) {
      const uint32_t all = value ? kAllLanes : 0;
      std::memcpy(w.registers + what.offset, &all, sizeof all);
    }
    for (int lane = 0; lane < kLanes; ++lane) fill_lane(w, what, lane, value);
  }
}

void Block::start(uint64_t index) {
  const Extent3& grid = launch_.grid;
  place_ = {static_cast<uint32_t>(index % grid.x), static_cast<uint32_t>(index / grid.x % grid.y),
            static_cast<uint32_t>(index / grid.x / grid.y)};
  for (size_t n = 0; n < warps_.size(); ++n) {
    Warp& w = warps_[n];
    const uint64_t executed = w.executed;
    std::vector<Continuation> stack = std::move(w.stack);
    w = Warp{};
    stack.clear();
    w.stack = std::move(stack);
    w.executed = executed;
    if (launch_.instruction_limit) w.limit = executed + launch_.instruction_limit;
    w.registers = registers_.data() + n * launch_.kernel->register_bytes;
    w.kernel = launch_.kernel, w.block = this, w.index = static_cast<int>(n);
    const auto rest = threads_ - static_cast<uint32_t>(n) * kLanes;
    w.live = w.mask = rest >= kLanes ? kAllLanes : (1u << rest) - 1;
    fill(w, !filled_);
  }
  filled_ = true;
  for (Arrival& arrival : arrived_) arrival = {};
  if (shared_.bytes()) shared_.reset();
  tensor_.reset();
  mbarriers_.clear();
  std::fill(local_written_.begin(), local_written_.end(), uint8_t{0});
}

void Block::arrive(Warp& w, int barrier, uint32_t count) {
  Arrival& arrival = arrived_[barrier & 15];
  arrival.threads += kLanes;
  arrival.warps.push_back(w.index);
  (void)count;
}

bool Block::release_barriers() {
  bool released = false;
  for (Warp& w : warps_)
    if (w.state == Warp::State::waits_for_phase && mbarriers_[w.mbarrier].has_completed(w.parity))
      w.state = Warp::State::runs, released = true;
  for (int b = 0; b < 16; ++b) {
    uint32_t waiting = arrived_[b].threads, wanted = 0, live_warps = 0, whole = 0;
    std::vector<int> warps = arrived_[b].warps;
    for (const Warp& w : warps_) {
      live_warps += w.state != Warp::State::ended ? 1 : 0;
      if (w.state != Warp::State::waits || w.barrier != b) continue;
      waiting += kLanes, ++whole;
      wanted = std::max(wanted, w.barrier_count);
      warps.push_back(w.index);
    }
    if (whole == 0) continue;
    // Without a count the barrier is for all threads that have not ended.
    if (wanted ? waiting < wanted : whole < live_warps) continue;
    for (const int index : warps)
      if (warps_[static_cast<size_t>(index)].state == Warp::State::waits)
        warps_[static_cast<size_t>(index)].state = Warp::State::runs;
    if (shared_.bytes()) shared_.barrier(warps);
    uint32_t products = 0;
    for (const int index : warps)
      for (const uint32_t there : warps_[static_cast<size_t>(index)].products_there)
        products = std::max(products, there);
    for (const int index : warps) warps_[static_cast<size_t>(index)].products_there.fill(products);
    arrived_[b] = {};
    released = true;
  }
  return released;
}

void Block::report_deadlock() {
  for (const Warp& w : warps_)
    if (w.state == Warp::State::waits_for_phase)
      fault(w, w.kernel->code[static_cast<size_t>(w.pc)], -1, cudaErrorLaunchTimeout,
            "waits for a phase of the mbarrier at byte " + std::to_string(w.mbarrier) +
                " of shared memory that never completes");
  for (const Warp& w : warps_) {
    if (w.state != Warp::State::waits) continue;
    const Instruction& i = w.kernel->code[static_cast<size_t>(w.pc) - 1];
    fault(w, i, -1, cudaErrorLaunchTimeout,
          "waits at barrier " + std::to_string(w.barrier) + " for threads that never come");
  }
  throw Fault(cudaErrorLaunchFailure, launch_.kernel->name + ": no warp can go on");
}

void Block::check_warpgroups() {
  for (const Warp& w : warps_)
    if (w.state == Warp::State::ended && !w.pending.empty())
      fault(w, w.kernel->code[static_cast<size_t>(w.pc) - 1], -1, cudaErrorLaunchFailure,
            "the warp ends before its wgmma.mma_async has been waited for");
  for (size_t first = 0; first < warps_.size(); first += 4)
    for (size_t n = first + 1; n < std::min(first + 4, warps_.size()); ++n)
      if (warps_[n].wgmma_count != warps_[first].wgmma_count)
        fault(warps_[n], warps_[n].kernel->code.front(), -1, cudaErrorIllegalInstruction,
              "the warps of a warpgroup executed different numbers of wgmma.mma_async");
}

void Block::check_tensor_memory() {
  const Warp& last = warps_.front();
  const Instruction& i = last.kernel->code[static_cast<size_t>(last.pc) - 1];
  if (const std::string wrong = tensor_.not_released(); !wrong.empty())
    fault(last, i, -1, cudaErrorLaunchFailure, "the block ends, but " + wrong);
  uint32_t there = 0;
  for (const Warp& w : warps_)
    for (const uint32_t products : w.products_there) there = std::max(there, products);
  if (there < tensor_.products())
    fault(last, i, -1, cudaErrorLaunchFailure,
          "the block ends before the commit of its tcgen05.mma has been waited for");
}

void Mbarrier::arrive(uint32_t products_before) {
  products = std::max(products, products_before);
  if (--pending) return;
  ++phases, pending = count, completed = products;
}

void Block::run(uint64_t index) {
  start(index);
  for (;;) {
    for (Warp& w : warps_)
      if (w.state == Warp::State::runs) run_warp(w);
    check_warpgroups();
    if (std::all_of(warps_.begin(), warps_.end(), [](const Warp& w) { return w.state == Warp::State::ended; }))
      return check_tensor_memory();
    if (!release_barriers()) report_deadlock();
  }
}

uint64_t run(const Launch& launch) {
  Block block(launch);
  for (uint64_t index = 0; index < launch.grid.count(); ++index) block.run(index);
  return block.executed();
}

}  // namespace halfmark::kernels::software_gpu
