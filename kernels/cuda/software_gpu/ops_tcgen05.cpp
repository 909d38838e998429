// tcgen05 except its mma: section 9.7.16 of the PTX ISA 9.0. Tensor memory is allocated, loaded and stored by whole warps.
// Loads and stores have the shape .32x32b: a thread of a warp has its own lane, a register for each column.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/memory_access.h"
#include "kernels/cuda/software_gpu/tensor_code.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr uint32_t kNotLoaded = 0x7FF7DEADu;  // a NaN as f32 and, in its upper half, as f16

void require_whole_warp(Warp& w, const Instruction& i, const char* name) {
  require_convergence(w, i, name);
  if (w.active != kAllLanes)
    fault(w, i, -1, cudaErrorIllegalInstruction, std::string(name) + " in a warp of fewer than 32 threads");
}

// The value that all threads of the warp must give.
uint32_t same_in_all_lanes(Warp& w, const Instruction& i, uint32_t offset, const char* name) {
  const auto value = w.lane<uint32_t>(offset, 0);
  for (int lane = 1; lane < kLanes; ++lane)
    if (w.lane<uint32_t>(offset, lane) != value)
      fault(w, i, lane, cudaErrorIllegalInstruction,
            std::string(name) + ": the threads of the warp give different operands");
  return value;
}

void require_none_wrong(Warp& w, const Instruction& i, const std::string& wrong) {
  if (!wrong.empty()) fault(w, i, -1, cudaErrorLaunchFailure, wrong);
}

void allocate_columns(Warp& w, const Instruction& i) {
  require_whole_warp(w, i, "tcgen05.alloc");
  uint32_t address = 0;
  require_none_wrong(w, i, w.block->tensor().allocate(w.index, same_in_all_lanes(w, i, i.b, "tcgen05.alloc"), address));
  uint64_t place = address_of(w, i, 0);
  if (place - shared_window() < kWindowBytes) place -= shared_window();
  std::byte value[sizeof address];
  std::memcpy(value, &address, sizeof address);
  std::memcpy(access(w, i, 0, Space::shared, place, sizeof address, Use::write, value), value, sizeof address);
}

void release_columns(Warp& w, const Instruction& i) {
  require_whole_warp(w, i, "tcgen05.dealloc");
  TensorMemory& tensor = w.block->tensor();
  const uint32_t address = same_in_all_lanes(w, i, i.a, "tcgen05.dealloc"),
                 columns = same_in_all_lanes(w, i, i.b, "tcgen05.dealloc");
  require_none_wrong(w, i, tensor.release(w.index, tensor.after(w.index, w.active), address, columns));
}

void give_up_permit(Warp& w, const Instruction& i) {
  require_whole_warp(w, i, "tcgen05.relinquish_alloc_permit");
  w.block->tensor().give_up_permit();
}

// The first column; the lanes must be those of the warp (9.7.16.8.1).
uint32_t own_column(Warp& w, const Instruction& i, const char* name) {
  require_whole_warp(w, i, name);
  const uint32_t address = same_in_all_lanes(w, i, i.a, name);
  const uint32_t lane = address >> 16, own = static_cast<uint32_t>(w.index % TensorMemory::kQuarters) * kLanes;
  if (lane != own)
    fault(w, i, -1, cudaErrorIllegalAddress,
          std::string(name) + " of lanes from " + std::to_string(lane) +
              " of tensor memory; the warp may access those from " + std::to_string(own));
  return address & 0xFFFF;
}

void load_columns(Warp& w, const Instruction& i) {
  const uint32_t column = own_column(w, i, "tcgen05.ld");
  TensorMemory& tensor = w.block->tensor();
  const TensorMemory::After after = tensor.after(w.index, w.active);
  for (uint32_t n = 0; n < i.count; ++n) {
    PendingResult result;
    result.offset = w.kernel->lists[i.list + n];
    require_none_wrong(w, i, tensor.load(w.index, after, w.index % TensorMemory::kQuarters, column + n, result.lanes));
    if (result.offset == kNoRegister) continue;
    for (int lane = 0; lane < kLanes; ++lane) w.set_lane<uint32_t>(result.offset, lane, kNotLoaded);
    w.tensor_loads.push_back(result);
  }
}

void store_columns(Warp& w, const Instruction& i) {
  const uint32_t column = own_column(w, i, "tcgen05.st");
  TensorMemory& tensor = w.block->tensor();
  const TensorMemory::After after = tensor.after(w.index, w.active);
  for (uint32_t n = 0; n < i.count; ++n) {
    TensorMemory::Values values;
    for (int lane = 0; lane < kLanes; ++lane)
      values[static_cast<size_t>(lane)] = w.lane<uint32_t>(w.kernel->lists[i.list + n], lane);
    require_none_wrong(w, i, tensor.store(w.index, after, w.index % TensorMemory::kQuarters, column + n, values));
  }
}

void wait_for_loads(Warp& w, const Instruction& i) {
  require_whole_warp(w, i, "tcgen05.wait::ld");
  w.block->tensor().wait_for_loads(w.index);
  for (const PendingResult& p : w.tensor_loads)
    for (int lane = 0; lane < kLanes; ++lane) w.set_lane<uint32_t>(p.offset, lane, p.lanes[static_cast<size_t>(lane)]);
  w.tensor_loads.clear();
}
void wait_for_stores(Warp& w, const Instruction& i) {
  require_whole_warp(w, i, "tcgen05.wait::st");
  w.block->tensor().wait_for_stores(w.index);
}

// Stores and loads are those of whole warps, so that what only some lanes fence is not fenced.
void fence_before(Warp& w, const Instruction&) {
  if (w.active == w.live) w.block->tensor().fence_before(w.index, w.block->shared());
}
void fence_after(Warp& w, const Instruction&) {
  w.block->tensor().fence_after(w.index, w.active, w.block->shared(), w.products_there);
}

// The products of the thread so far are done at once; who has not waited for the phase does not know it.
void commit_products(Warp& w, const Instruction& i) {
  each_lane(w.active, [&](int l) {
    uint64_t place = address_of(w, i, l);
    if (place - shared_window() < kWindowBytes) place -= shared_window();
    mbarrier_at(w, i, l, place).arrive(w.block->tensor().products_of(w.index * kLanes + l));
  });
}

bool take_group(Coder& coder, Modifiers& m) {
  if (m.accept("cta_group::1")) return true;
  if (m.accept("cta_group::2")) coder.fail("the software GPU has no pairs of CTAs");
  return false;
}
bool take_aligned(Modifiers& m) { return m.accept("sync") && m.accept("aligned"); }

bool decode_allocation(Coder& coder, const Statement& s, Modifiers& m, Instruction& i, bool allocates) {
  if (!take_group(coder, m) || !take_aligned(m)) return false;
  if (allocates) m.accept("shared::cta");
  if (!m.accept("b32") || s.operands.size() != 2) return false;
  i.run = allocates ? allocate_columns : release_columns;
  if (allocates)
    coder.address(s.operands[0], i);
  else
    i.a = coder.source(s.operands[0], 32);
  i.b = coder.source(s.operands[1], 32);
  return true;
}

bool decode_movement(Coder& coder, const Statement& s, Modifiers& m, Instruction& i, bool loads) {
  constexpr std::pair<const char*, int> kCounts[] = {{"x1", 1},   {"x2", 2},   {"x4", 4},   {"x8", 8},
                                                     {"x16", 16}, {"x32", 32}, {"x64", 64}, {"x128", 128}};
  if (!take_aligned(m)) return false;
  if (!m.accept("32x32b")) coder.fail("the software GPU has only the shape .32x32b of tcgen05.ld and st");
  for (const auto& [name, count] : kCounts)
    if (i.count == 0 && m.accept(name)) i.count = static_cast<uint16_t>(count);
  if (i.count == 0 || !m.accept("b32") || s.operands.size() != 2) return false;
  const Operand& values = s.operands[loads ? 0 : 1];
  if (values.kind != Operand::Kind::vector || values.parts.size() != i.count) return false;
  i.run = loads ? load_columns : store_columns;
  i.a = tensor_address(coder, s.operands[loads ? 1 : 0]);
  auto& lists = coder.kernel().lists;
  i.list = static_cast<uint32_t>(lists.size());
  for (const Operand& one : values.parts) lists.push_back(loads ? coder.destination(one, 32) : coder.source(one, 32));
  return true;
}

bool decode_commit(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!take_group(coder, m) || !m.accept("mbarrier::arrive::one")) return false;
  m.accept("shared::cluster");
  if (!m.accept("b64") || s.operands.size() != 1) return false;
  i.run = commit_products;
  coder.address(s.operands[0], i);
  return true;
}

bool decode_tcgen05(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const int capability = coder.module().capability;
  if (capability < 100 || capability >= 120 || coder.module().suffix == 0)
    coder.fail("tcgen05 exists on sm_100a to sm_110a only");
  if (m.accept("alloc")) return decode_allocation(coder, s, m, i, true);
  if (m.accept("dealloc")) return decode_allocation(coder, s, m, i, false);
  if (m.accept("ld")) return decode_movement(coder, s, m, i, true);
  if (m.accept("st")) return decode_movement(coder, s, m, i, false);
  if (m.accept("commit")) return decode_commit(coder, s, m, i);
  if (m.accept("mma")) return take_group(coder, m) && decode_tensor_product(coder, s, m, i);
  if (m.accept("relinquish_alloc_permit")) {
    i.run = give_up_permit;
    return take_group(coder, m) && take_aligned(m) && s.operands.empty();
  }
  if (!s.operands.empty()) return false;
  if (m.accept("wait::ld")) return i.run = wait_for_loads, take_aligned(m);
  if (m.accept("wait::st")) return i.run = wait_for_stores, take_aligned(m);
  if (m.accept("fence::before_thread_sync")) return i.run = fence_before, true;
  if (m.accept("fence::after_thread_sync")) return i.run = fence_after, true;
  return false;
}

}  // namespace

void add_tensor_decoders(Decoders& all) { all["tcgen05"] = decode_tcgen05; }

}  // namespace halfmark::kernels::software_gpu
