#include "kernels/cuda/software_gpu/tensor_memory.h"

#include <algorithm>

namespace halfmark::kernels::software_gpu {

void TensorMemory::reset() {
  parts_.clear();
  owner_.fill(0);
  allocations_.clear(), shapes_.clear();
  permit_ = true;
  issuer_ = -1;
  for (WarpRecord& warp : warps_) warp = {};
}

// Columns are given from the end, so that code that takes them to begin at 0 is found.
// The rules: 9.7.16.7.1.
std::string TensorMemory::allocate(int warp, uint32_t columns, uint32_t& address) {
  if (columns < 32 || columns > kColumns || (columns & (columns - 1)))
    return "tcgen05.alloc of " + std::to_string(columns) + " columns: a power of two from 32 to 512 is allowed";
  if (!permit_) return "tcgen05.alloc after tcgen05.relinquish_alloc_permit";
  if (!allocations_.empty() && columns > allocations_.back().columns)
    return "tcgen05.alloc of more columns than the one before it";
  if (parts_.empty()) parts_.resize(size_t{kColumns} * kQuarters);
  for (uint32_t end = kColumns; end >= columns; end -= columns) {
    const auto first = owner_.begin() + (end - columns);
    if (std::any_of(first, first + columns, [](uint16_t owner) { return owner != 0; })) continue;
    allocations_.push_back({columns, warp});
    std::fill(first, first + columns, static_cast<uint16_t>(allocations_.size()));
    address = end - columns;
    return {};
  }
  return "tcgen05.alloc of " + std::to_string(columns) + " columns waits for ever: the block itself holds the others";
}

std::string TensorMemory::release(int warp, const After& after, uint32_t address, uint32_t columns) {
  const uint32_t column = address & 0xFFFF;
  const uint16_t owner = column < kColumns ? owner_[column] : 0;
  if (address >> 16 || owner == 0 || (column && owner_[column - 1] == owner) ||
      allocations_[owner - 1u].columns != columns)
    return "tcgen05.dealloc of " + std::to_string(columns) + " columns at " + std::to_string(address) +
           ", which tcgen05.alloc has not given like that";
  if (allocations_[owner - 1u].warp != warp)
    return "tcgen05.dealloc by warp " + std::to_string(warp) + " of what warp " +
           std::to_string(allocations_[owner - 1u].warp) + " has allocated";
  for (uint32_t c = column; c < column + columns; ++c) {
    owner_[c] = 0;
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      Part& p = part(quarter, c);
      for (const std::string& wrong :
           {unordered(p.store, "has stored", "st", warp, after), unordered(p.load, "has loaded", "ld", warp, after),
            unfinished(p.product, after), unfinished(p.reading_product, after)})
        if (!wrong.empty()) return "tcgen05.dealloc of " + wrong;
      p = {};
    }
  }
  allocations_[owner - 1u].released = true;
  return {};
}

std::string TensorMemory::not_released() const {
  for (const Allocation& one : allocations_)
    if (!one.released)
      return std::to_string(one.columns) + " columns of tensor memory have not been released by tcgen05.dealloc";
  return {};
}

void TensorMemory::fence_after(int warp, uint32_t lanes, const SharedMemory& shared,
                               const std::array<uint32_t, 32>& products) {
  After now;
  for (size_t other = 0; other < warps_.size(); ++other)
    now.barriers[other] = shared.seen(warp, static_cast<int>(other));
  for (size_t lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1) {
      now.products = products[lane];
      warps_[at(warp)].after[lane] = now;
    }
}

TensorMemory::After TensorMemory::after(int warp, uint32_t lanes) const {
  After all;
  all.barriers.fill(0xFFFFFFFF), all.products = 0xFFFFFFFF;
  for (size_t lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    const After& one = warps_[at(warp)].after[lane];
    all.products = std::min(all.products, one.products);
    for (size_t other = 0; other < warps_.size(); ++other)
      all.barriers[other] = std::min(all.barriers[other], one.barriers[other]);
  }
  return all;
}

void TensorMemory::wait(std::vector<size_t>& pending, Access Part::*access, int warp) {
  for (const size_t index : pending) {
    Access& one = parts_[index].*access;
    if (one.warp == warp && !one.waited)
      one.waited = true, one.fence = static_cast<uint32_t>(warps_[at(warp)].published.size());
  }
  pending.clear();
}

std::string TensorMemory::unallocated(uint32_t column) const {
  if (column < kColumns && owner_[column]) return {};
  return "column " + std::to_string(column) + " of tensor memory is not allocated";
}

std::string TensorMemory::unordered(const Access& access, const char* what, const char* wait, int warp,
                                    const After& after) const {
  if (access.warp < 0) return {};
  const std::string text = std::string("tensor memory that warp ") + std::to_string(access.warp) + " " + what;
  if (!access.waited) return text + " with no tcgen05.wait::" + wait + " since";
  if (access.warp == warp) return {};
  const std::vector<uint32_t>& published = warps_[at(access.warp)].published;
  if (access.fence >= published.size()) return text + " with no tcgen05.fence::before_thread_sync since";
  if (after.barriers[at(access.warp)] < published[access.fence])
    return text + " with no barrier and tcgen05.fence::after_thread_sync since";
  return {};
}

std::string TensorMemory::unfinished(uint32_t product, const After& after) const {
  if (product <= after.products) return {};
  return "tensor memory of a tcgen05.mma that need not be done: its commit has not been waited for, or no "
         "tcgen05.fence::after_thread_sync follows the wait";
}

std::string TensorMemory::store(int warp, const After& after, int quarter, uint32_t column, const Values& values) {
  if (std::string wrong = unallocated(column); !wrong.empty()) return wrong;
  Part& p = part(quarter, column);
  for (const std::string& wrong :
       {unordered(p.store, "has stored", "st", warp, after), unordered(p.load, "has loaded", "ld", warp, after),
        unfinished(p.product, after), unfinished(p.reading_product, after)})
    if (!wrong.empty()) return "store to " + wrong;
  p.written = true, p.product = p.reading_product = 0;
  p.store = {static_cast<int16_t>(warp), false, 0}, p.load = {};
  p.values = values;
  warps_[at(warp)].stores.push_back(static_cast<size_t>(&p - parts_.data()));
  return {};
}

std::string TensorMemory::load(int warp, const After& after, int quarter, uint32_t column, Values& values) {
  if (std::string wrong = unallocated(column); !wrong.empty()) return wrong;
  Part& p = part(quarter, column);
  if (!p.written) return "column " + std::to_string(column) + " of tensor memory is read and has not been written";
  for (const std::string& wrong : {unordered(p.store, "has stored", "st", warp, after), unfinished(p.product, after)})
    if (!wrong.empty()) return "load from " + wrong;
  p.load = {static_cast<int16_t>(warp), false, 0};
  values = p.values;
  warps_[at(warp)].loads.push_back(static_cast<size_t>(&p - parts_.data()));
  return {};
}

std::string TensorMemory::begin_product(int thread, uint64_t shape) {
  if (issuer_ >= 0 && issuer_ != thread) return "the software GPU has tcgen05.mma of one thread of a block only";
  issuer_ = thread;
  shapes_.push_back(shape);
  return {};
}

std::string TensorMemory::product_reads(int warp, const After& after, int quarter, uint32_t column, bool is_sum,
                                        Values& values) {
  if (std::string wrong = unallocated(column); !wrong.empty()) return wrong;
  Part& p = part(quarter, column);
  if (!p.written) return "column " + std::to_string(column) + " of tensor memory is read and has not been written";
  // Products of one shape in one place follow each other without a wait.
  const bool in_order = is_sum && p.product && shapes_[p.product - 1] == shapes_.back();
  for (const std::string& wrong :
       {unordered(p.store, "has stored", "st", warp, after), in_order ? std::string() : unfinished(p.product, after)})
    if (!wrong.empty()) return "tcgen05.mma reads " + wrong;
  if (!is_sum) p.reading_product = products();
  values = p.values;
  return {};
}

std::string TensorMemory::product_writes(int warp, const After& after, int quarter, uint32_t column,
                                         const Values& values) {
  if (std::string wrong = unallocated(column); !wrong.empty()) return wrong;
  Part& p = part(quarter, column);
  const bool in_order = p.product && shapes_[p.product - 1] == shapes_.back();
  for (const std::string& wrong :
       {unordered(p.store, "has stored", "st", warp, after), unordered(p.load, "has loaded", "ld", warp, after),
        in_order ? std::string() : unfinished(p.product, after), unfinished(p.reading_product, after)})
    if (!wrong.empty()) return "tcgen05.mma writes " + wrong;
  p.written = true, p.product = products(), p.reading_product = 0;
  p.store = p.load = {};
  p.values = values;
  return {};
}

}  // namespace halfmark::kernels::software_gpu
