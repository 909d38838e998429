// The shared memory of a block, with a record of who accessed each byte last, from which races and reads of bytes that
// no one has written are found.
//
// Two accesses of different threads are ordered if a barrier lies between them: for threads of two warps a barrier in
// which both took part, for lanes of one warp also an instruction that synchronises lanes (bar.warp.sync, shfl.sync,
// ...). Two accesses that are not ordered and of which one writes are a race, unless both are atomic. Lanes that write
// in one instruction race only if they write different bytes to one address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace halfmark::kernels::software_gpu {

class SharedMemory {
 public:
  void resize(uint64_t bytes, int warps);
  void reset();  // nothing written, nobody has read

  uint64_t bytes() const { return data_.size(); }
  std::byte* data() { return data_.data(); }

  struct Accessor {
    int warp = 0, lane = 0;
    uint32_t lane_syncs = 0;    // of the warp, so far
    uint32_t proxy_fences = 0;  // of the thread, so far
    uint32_t instruction = 0;   // number of the instruction in the warp
    uint32_t products = 0;      // of tcgen05.mma: so many the thread knows to be there
  };
  // Each returns an empty text, or what is wrong. The bytes must be in range.
  std::string read(const Accessor& who, uint64_t offset, uint64_t size);
  std::string write(const Accessor& who, uint64_t offset, uint64_t size, const std::byte* value, bool atomic);
  // A read through the async proxy by wgmma: what other threads or this one wrote must also be behind a proxy fence of
  // the thread that wrote it.
  std::string read_async(const Accessor& who, uint64_t offset, uint64_t size,
                         const std::vector<uint32_t>& fences_of_threads);

  // The same for tcgen05.mma, whose reads end with begin_product_read, not with a barrier.
  std::string read_by_product(const Accessor& who, uint64_t offset, uint64_t size,
                              const std::vector<uint32_t>& fences_of_threads);

  // Between these, writes to the bytes are a race with the warp's matrix instruction.
  void begin_async_read(int warp, uint64_t offset, uint64_t size) { async_reads_.push_back({warp, offset, size}); }
  void end_async_reads(int warp);
  // By the number of the product: the read ends for each thread when that knows the product to be there.
  void begin_product_read(uint32_t product, uint64_t offset, uint64_t size);

  bool is_initialised(uint64_t offset, uint64_t size);
  void barrier(const std::vector<int>& warps);  // these warps have synchronised
  uint32_t time(int warp) const { return time_[static_cast<size_t>(warp)]; }
  // The last time of `other` that is before everything the warp does now.
  uint32_t seen(int warp, int other) const {
    return seen_[static_cast<size_t>(warp) * warps_ + static_cast<size_t>(other)];
  }

 private:
  struct Cell {
    uint32_t write_time = 0, read_time = 0;  // of the accessing warp
    uint32_t write_syncs = 0, read_syncs = 0;
    uint32_t write_instruction = 0, write_fences = 0;
    int16_t writer = -1, reader = -1;  // warps; -1: nobody
    int8_t writer_lane = 0, reader_lane = 0;
    bool many_lanes = false, many_warps = false;  // readers since the last write
    bool atomic = false, initialised = false;
    uint32_t block = 0;  // number of the block that the rest is about
  };
  // The cell of a byte, empty if only earlier blocks have used it.
  Cell& cell_at(uint64_t offset) {
    Cell& cell = cells_[offset];
    if (cell.block != block_) cell = Cell{}, cell.block = block_;
    return cell;
  }
  bool ordered(const Accessor& now, int warp, int lane, uint32_t time, uint32_t syncs) const;
  std::string unfenced(uint64_t offset, uint64_t size, const std::vector<uint32_t>& fences_of_threads);
  std::string race(const char* first, const Cell& cell, uint64_t offset, bool by_writer) const;

  struct AsyncRead {
    int warp;
    uint64_t offset, size;
    uint32_t product = 0;  // of tcgen05.mma; 0: of wgmma
  };
  std::vector<AsyncRead> async_reads_;
  std::vector<std::byte> data_;
  std::vector<Cell> cells_;
  uint32_t block_ = 0;
  size_t warps_ = 0;
  std::vector<uint32_t> time_;  // of each warp: barriers so far, plus one
  std::vector<uint32_t> seen_;  // [warp][other]: the last time of the other that is before everything the warp does now
};

}  // namespace halfmark::kernels::software_gpu
