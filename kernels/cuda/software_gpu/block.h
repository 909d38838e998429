// A block of threads while it runs: its warps, barriers, shared and local memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/shared_memory.h"
#include "kernels/cuda/software_gpu/tensor_memory.h"
#include "kernels/cuda/software_gpu/warp.h"
#include "kernels/cuda/software_gpu/work_counts.h"

namespace halfmark::kernels::software_gpu {

struct Extent3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// One launch of a kernel.
struct Launch {
  const Kernel* kernel = nullptr;
  const Module* module = nullptr;
  int device = 0, architecture = 0;
  Extent3 grid, block;
  uint64_t dynamic_shared = 0;
  std::vector<std::byte> parameters;       // as kernel->parameters says
  std::vector<uint64_t> symbol_addresses;  // of module->variables
  GlobalMemory* memory = nullptr;
  WorkCounts* work = nullptr;      // counts accesses to global memory; null: they are not counted
  uint64_t instruction_limit = 0;  // of a warp: more is a kernel that does not end; 0: no limit
};

// Runs all blocks, one after another. Throws Fault. Returns the instructions executed, counted per warp.
uint64_t run(const Launch& launch);

// An mbarrier in shared memory (PTX ISA 9.0, 9.7.13.15). Its bytes in memory are opaque; this is what they stand for.
struct Mbarrier {
  uint32_t count = 0, pending = 0;        // arrivals of a phase, and those still to come
  uint32_t phases = 0;                    // completed
  uint32_t products = 0, completed = 0;   // of tcgen05.mma: that the arrivals so far stand for; in completed phases
  void arrive(uint32_t products_before);  // as tcgen05.commit does
  bool has_completed(uint32_t parity) const { return phases % 2 != parity; }
};

class Block {
 public:
  explicit Block(const Launch& launch);

  void run(uint64_t index);  // of the grid

  const Launch& launch() const { return launch_; }
  Extent3 place() const { return place_; }  // of the block in the grid
  SharedMemory& shared() { return shared_; }
  TensorMemory& tensor() { return tensor_; }
  std::map<uint64_t, Mbarrier>& mbarriers() { return mbarriers_; }  // by address
  uint32_t threads() const { return threads_; }
  std::vector<Warp>& warps() { return warps_; }
  uint64_t executed() const;

  // Which allocation the instruction accessed last: the first guess next time.
  Allocation*& hint(int32_t pc) { return hints_[static_cast<size_t>(pc)]; }

  // Local memory of a thread, and which of its bytes have been written.
  std::byte* local(uint32_t thread) { return local_.data() + thread * launch_.kernel->local_bytes; }
  uint8_t* local_written(uint32_t thread) { return local_written_.data() + thread * launch_.kernel->local_bytes; }

  std::vector<uint32_t> proxy_fences() const;  // fence.proxy.async so far, of each thread

  // bar.arrive: threads that a barrier counts without their waiting for it.
  void arrive(Warp& warp, int barrier, uint32_t count);

 private:
  void start(uint64_t index);
  void fill(Warp& warp, bool first);
  bool release_barriers();  // whether any warp goes on
  [[noreturn]] void report_deadlock();
  void check_warpgroups();
  void check_tensor_memory();  // at the end

  const Launch& launch_;
  uint32_t threads_;
  Extent3 place_;
  std::vector<std::byte> registers_;
  std::vector<Warp> warps_;
  std::vector<Allocation*> hints_;
  SharedMemory shared_;
  TensorMemory tensor_;
  std::map<uint64_t, Mbarrier> mbarriers_;
  std::vector<std::byte> local_;
  std::vector<uint8_t> local_written_;
  bool filled_ = false;
  struct Arrival {
    uint32_t threads = 0;
    std::vector<int> warps;
  };
  Arrival arrived_[16];
};

}  // namespace halfmark::kernels::software_gpu
