#include "kernels/cuda/software_gpu/shared_memory.h"

#include <algorithm>

namespace halfmark::kernels::software_gpu {

void SharedMemory::resize(uint64_t bytes, int warps) {
  data_.resize(bytes);
  cells_.resize(bytes);
  warps_ = static_cast<size_t>(warps);
  time_.resize(warps_);
  seen_.resize(warps_ * warps_);
}

void SharedMemory::reset() {
  ++block_;
  async_reads_.clear();
  std::fill(time_.begin(), time_.end(), 1);
  std::fill(seen_.begin(), seen_.end(), 0);
}

bool SharedMemory::ordered(const Accessor& now, int warp, int lane, uint32_t time, uint32_t syncs) const {
  if (warp == now.warp) return lane == now.lane || syncs < now.lane_syncs;
  return seen_[static_cast<size_t>(now.warp) * warps_ + static_cast<size_t>(warp)] >= time;
}

std::string SharedMemory::race(const char* first, const Cell& cell, uint64_t offset, bool by_writer) const {
  const int warp = by_writer ? cell.writer : cell.reader, lane = by_writer ? cell.writer_lane : cell.reader_lane;
  return "race on byte " + std::to_string(offset) + " of shared memory: thread " + std::to_string(warp * 32 + lane) +
         " " + first + " it and no barrier lies between";
}

std::string SharedMemory::read(const Accessor& who, uint64_t offset, uint64_t size) {
  for (uint64_t at = offset; at < offset + size; ++at) {
    Cell& cell = cell_at(at);
    if (!cell.initialised)
      return "read of byte " + std::to_string(at) + " of shared memory, which no thread of the block has written";
    if (cell.writer >= 0 && !ordered(who, cell.writer, cell.writer_lane, cell.write_time, cell.write_syncs))
      return race("wrote", cell, at, true);
    if (cell.reader >= 0) {
      // Readers before the last barrier no longer count: the barrier orders them all.
      if (time_[static_cast<size_t>(cell.reader)] > cell.read_time &&
          ordered(who, cell.reader, cell.reader_lane, cell.read_time, cell.read_syncs))
        cell.many_lanes = cell.many_warps = false, cell.reader = -1;
      else if (cell.reader != who.warp)
        cell.many_warps = true;
      else if (cell.read_syncs < who.lane_syncs)
        cell.many_lanes = false;
      else if (cell.reader_lane != who.lane)
        cell.many_lanes = true;
    }
    cell.reader = static_cast<int16_t>(who.warp), cell.reader_lane = static_cast<int8_t>(who.lane);
    cell.read_time = time_[static_cast<size_t>(who.warp)], cell.read_syncs = who.lane_syncs;
  }
  return {};
}

std::string SharedMemory::unfenced(uint64_t offset, uint64_t size, const std::vector<uint32_t>& fences_of_threads) {
  for (uint64_t at = offset; at < offset + size; ++at) {
    const Cell& cell = cell_at(at);
    if (cell.writer >= 0 &&
        cell.write_fences >= fences_of_threads[static_cast<size_t>(cell.writer * 32 + cell.writer_lane)])
      return "byte " + std::to_string(at) + " of shared memory was written by thread " +
             std::to_string(cell.writer * 32 + cell.writer_lane) +
             ", which has executed no fence.proxy.async since: the matrix instruction may read an older value";
  }
  return {};
}

std::string SharedMemory::read_async(const Accessor& who, uint64_t offset, uint64_t size,
                                     const std::vector<uint32_t>& fences_of_threads) {
  const std::string wrong = unfenced(offset, size, fences_of_threads);
  return wrong.empty() ? read(who, offset, size) : wrong;
}

std::string SharedMemory::read_by_product(const Accessor& who, uint64_t offset, uint64_t size,
                                          const std::vector<uint32_t>& fences_of_threads) {
  for (uint64_t at = offset; at < offset + size; ++at) {
    const Cell& cell = cell_at(at);
    if (!cell.initialised)
      return "read of byte " + std::to_string(at) + " of shared memory, which no thread of the block has written";
    if (cell.writer >= 0 && !ordered(who, cell.writer, cell.writer_lane, cell.write_time, cell.write_syncs))
      return race("wrote", cell, at, true);
  }
  return unfenced(offset, size, fences_of_threads);
}

std::string SharedMemory::write(const Accessor& who, uint64_t offset, uint64_t size, const std::byte* value,
                                bool atomic) {
  for (const AsyncRead& pending : async_reads_)
    if (pending.offset < offset + size && offset < pending.offset + pending.size && pending.product == 0)
      return "race on byte " + std::to_string(offset) + " of shared memory: a matrix instruction of warp " +
             std::to_string(pending.warp) + " that has not been waited for reads it";
    else if (pending.offset < offset + size && offset < pending.offset + pending.size && pending.product > who.products)
      return "race on byte " + std::to_string(offset) +
             " of shared memory: a tcgen05.mma whose commit has not been waited for reads it";
  for (uint64_t at = offset; at < offset + size; ++at) {
    Cell& cell = cell_at(at);
    if (cell.writer >= 0 && !(atomic && cell.atomic) &&
        !ordered(who, cell.writer, cell.writer_lane, cell.write_time, cell.write_syncs)) {
      const bool together = cell.writer == who.warp && cell.write_instruction == who.instruction;
      if (!together || data_[at] != value[at - offset]) return race("wrote", cell, at, true);
    }
    if (cell.reader >= 0) {
      // Several readers: the last one stands for all, since an earlier barrier would order them all alike; unless the
      // last one is the writer itself.
      const bool same_warp_only = !cell.many_warps;
      const bool self = cell.reader == who.warp && cell.reader_lane == who.lane;
      if (!self && !ordered(who, cell.reader, cell.reader_lane, cell.read_time, cell.read_syncs))
        return race("read", cell, at, false);
      if (self && cell.many_lanes && same_warp_only && cell.read_syncs >= who.lane_syncs)
        return "race on byte " + std::to_string(at) +
               " of shared memory: another thread of the warp read it and "
               "nothing that synchronises the warp lies between";
      if (cell.many_warps && cell.reader == who.warp && cell.read_time == time_[static_cast<size_t>(who.warp)])
        return "race on byte " + std::to_string(at) +
               " of shared memory: threads of other warps read it and no "
               "barrier lies between";
    }
    cell.writer = static_cast<int16_t>(who.warp), cell.writer_lane = static_cast<int8_t>(who.lane);
    cell.write_time = time_[static_cast<size_t>(who.warp)], cell.write_syncs = who.lane_syncs;
    cell.write_instruction = who.instruction, cell.write_fences = who.proxy_fences;
    cell.atomic = atomic, cell.initialised = true;
    cell.reader = -1, cell.many_lanes = cell.many_warps = false;
  }
  return {};
}

bool SharedMemory::is_initialised(uint64_t offset, uint64_t size) {
  for (uint64_t at = offset; at < offset + size; ++at)
    if (!cell_at(at).initialised) return false;
  return true;
}

void SharedMemory::end_async_reads(int warp) {
  std::erase_if(async_reads_, [&](const AsyncRead& read) { return read.product == 0 && read.warp == warp; });
}

void SharedMemory::begin_product_read(uint32_t product, uint64_t offset, uint64_t size) {
  for (AsyncRead& read : async_reads_)
    if (read.product && read.offset == offset && read.size == size) {
      read.product = product;
      return;
    }
  async_reads_.push_back({0, offset, size, product});
}

void SharedMemory::barrier(const std::vector<int>& warps) {
  std::vector<uint32_t> merged(warps_, 0);
  for (const int warp : warps) {
    const auto w = static_cast<size_t>(warp);
    for (size_t other = 0; other < warps_; ++other) merged[other] = std::max(merged[other], seen_[w * warps_ + other]);
    merged[w] = std::max(merged[w], time_[w]);
  }
  for (const int warp : warps) {
    const auto w = static_cast<size_t>(warp);
    std::copy(merged.begin(), merged.end(), seen_.begin() + static_cast<int64_t>(w * warps_));
    ++time_[w];
  }
}

}  // namespace halfmark::kernels::software_gpu
