// What kernels execute and how they access global memory, counted on request.
//
// HALFMARK_SOFTWARE_GPU_WORK=FILE: a line of CSV is appended for each launch when it has run. Columns: the kernel's name, blocks,
// threads of a block, instructions of PTX (of a warp, each once), and for reads and for writes the bytes that threads asked
// for, the sectors that the accesses of warps touch, and the sectors that are touched at all. Atomic operations are writes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace halfmark::kernels::software_gpu {

struct Warp;

class WorkCounts {
 public:
  // A GPU moves memory in sectors of 32 bytes (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory").
  static constexpr uint64_t kSectorBytes = 32;

  struct Direction {
    uint64_t bytes = 0;
    uint64_t sectors = 0;    // each once for each access of a warp
    uint64_t footprint = 0;  // each once
  };

  // An access of one lane. The lanes of a warp make the same access one after another.
  void access(const Warp& warp, uint64_t address, uint64_t bytes, bool writes);

  Direction reads() { return of(0); }
  Direction writes() { return of(1); }

 private:
  void finish_access();
  Direction of(size_t direction);

  int warp_ = -1;
  uint64_t instruction_ = 0;       // of the warp: the access that is being counted
  size_t direction_ = 0;           // 0 reads, 1 writes
  std::vector<uint64_t> touched_;  // sectors, by the lanes so far
  std::array<Direction, 2> counts_;
  std::array<std::unordered_set<uint64_t>, 2> footprints_;
};

void write_work_to(const std::string& file);  // in place of the variable; empty: nothing is counted
bool counts_work();
void write_work(const std::string& kernel, uint64_t blocks, uint64_t threads, uint64_t instructions, WorkCounts& work);

}  // namespace halfmark::kernels::software_gpu
