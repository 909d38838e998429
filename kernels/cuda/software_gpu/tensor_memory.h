// The tensor memory of a block: 128 lanes and 512 columns of 32 bits (PTX ISA 9.0, 9.7.16.1), with a record of who
// accessed each part last, from which missing waits and fences are found. A part is one column of 32 lanes, the quarter
// of a warp: every instruction here reads or writes whole parts.
//
// tcgen05.ld, st and mma are asynchronous (9.7.16.6). What a warp stores or loads is done when it has waited for it.
// For other warps it is done if after that wait it executed fence::before_thread_sync, a barrier follows, and after the
// barrier they executed fence::after_thread_sync. A product is there if its commit has been waited for, with
// fence::after_thread_sync behind that wait. Products of one shape and kind in one place follow each other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/shared_memory.h"

namespace halfmark::kernels::software_gpu {

class TensorMemory {
 public:
  static constexpr int kQuarterLanes = 32, kQuarters = 4;
  static constexpr uint32_t kColumns = 512;
  using Values = std::array<uint32_t, kQuarterLanes>;

  void resize(size_t warps) { warps_.resize(warps); }
  void reset();

  // What an operation comes after, from the last fence::after_thread_sync.
  struct After {
    std::array<uint32_t, 32> barriers{};  // of each warp: its time that the operation has seen
    uint32_t products = 0;                // so many are there
  };

  // Each that returns a text: it is empty, or what is wrong.
  std::string allocate(int warp, uint32_t columns, uint32_t& address);
  std::string release(int warp, const After& after, uint32_t address, uint32_t columns);
  void give_up_permit() { permit_ = false; }
  std::string not_released() const;

  void fence_before(int warp, const SharedMemory& shared) { warps_[at(warp)].published.push_back(shared.time(warp)); }
  // `products`: those that each lane knows to be there.
  void fence_after(int warp, uint32_t lanes, const SharedMemory& shared, const std::array<uint32_t, 32>& products);
  After after(int warp, uint32_t lanes) const;  // what holds for all of these lanes

  // An access of `warp` to a column of one quarter.
  std::string store(int warp, const After& after, int quarter, uint32_t column, const Values& values);
  std::string load(int warp, const After& after, int quarter, uint32_t column, Values& values);
  void wait_for_stores(int warp) { wait(warps_[at(warp)].stores, &Part::store, warp); }
  void wait_for_loads(int warp) { wait(warps_[at(warp)].loads, &Part::load, warp); }

  // A product issued by a thread of `warp`: first its number, then what it reads and writes. `shape`: place, kind and
  // instruction descriptor as one number.
  std::string begin_product(int thread, uint64_t shape);
  uint32_t products() const { return static_cast<uint32_t>(shapes_.size()); }
  uint32_t products_of(int thread) const { return thread == issuer_ ? products() : 0; }
  std::string product_reads(int warp, const After& after, int quarter, uint32_t column, bool is_sum, Values& values);
  std::string product_writes(int warp, const After& after, int quarter, uint32_t column, const Values& values);

 private:
  struct Access {
    int16_t warp = -1;  // -1: none
    bool waited = false;
    uint32_t fence = 0;  // the number of the warp's fence::before_thread_sync that publishes it
  };
  struct Part {
    bool written = false;
    uint32_t product = 0, reading_product = 0;  // that writes it, that reads it as scales; 0: none
    Access store, load;
    Values values{};
  };
  struct WarpRecord {
    std::vector<uint32_t> published;    // the time of each fence::before_thread_sync
    std::vector<size_t> stores, loads;  // parts, not waited for
    std::array<After, 32> after;        // of each lane
  };
  static size_t at(int warp) { return static_cast<size_t>(warp); }
  Part& part(int quarter, uint32_t column) { return parts_[column * kQuarters + static_cast<uint32_t>(quarter)]; }
  void wait(std::vector<size_t>& pending, Access Part::*access, int warp);
  std::string unallocated(uint32_t column) const;
  std::string unordered(const Access& access, const char* what, const char* wait, int warp, const After& after) const;
  std::string unfinished(uint32_t product, const After& after) const;

  std::vector<Part> parts_;
  std::array<uint16_t, kColumns> owner_{};  // of each column: the allocation, counted from 1; 0: free
  struct Allocation {
    uint32_t columns;
    int warp;
    bool released = false;
  };
  std::vector<Allocation> allocations_;
  bool permit_ = true;
  std::vector<WarpRecord> warps_;
  std::vector<uint64_t> shapes_;  // of each product
  int issuer_ = -1;               // the thread that issues them
};

}  // namespace halfmark::kernels::software_gpu
