#include "kernels/cuda/software_gpu/work_counts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

void WorkCounts::access(const Warp& warp, uint64_t address, uint64_t bytes, bool writes) {
  const size_t direction = writes ? 1 : 0;
  if (warp.index != warp_ || warp.executed != instruction_ || direction != direction_) finish_access();
  warp_ = warp.index, instruction_ = warp.executed, direction_ = direction;
  counts_[direction].bytes += bytes;
  for (uint64_t sector = address / kSectorBytes; sector <= (address + bytes - 1) / kSectorBytes; ++sector)
    touched_.push_back(sector);
}

void WorkCounts::finish_access() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  counts_[direction_].sectors += touched_.size();
  footprints_[direction_].insert(touched_.begin(), touched_.end());
  touched_.clear();
}

WorkCounts::Direction WorkCounts::of(size_t direction) {
  finish_access();
  counts_[direction].footprint = footprints_[direction].size();
  return counts_[direction];
}

namespace {

struct WorkFile {
  std::mutex mutex;
  std::string name;
};
WorkFile& work_file() {
  static WorkFile* const file = [] {
    auto* made = new WorkFile;  // never destroyed: streams may run at the end of the process
    if (const char* name = std::getenv("HALFMARK_SOFTWARE_GPU_WORK")) made->name = name;
    return made;
  }();
  return *file;
}

}  // namespace

void write_work_to(const std::string& file) {
  const std::lock_guard lock(work_file().mutex);
  work_file().name = file;
}

bool counts_work() {
  const std::lock_guard lock(work_file().mutex);
  return !work_file().name.empty();
}

void write_work(const std::string& kernel, uint64_t blocks, uint64_t threads, uint64_t instructions, WorkCounts& work) {
  const std::lock_guard lock(work_file().mutex);
  std::ofstream file(work_file().name, std::ios::app);
  const WorkCounts::Direction reads = work.reads(), writes = work.writes();
  file << kernel << ',' << blocks << ',' << threads << ',' << instructions << ',' << reads.bytes << ',' << reads.sectors
       << ',' << reads.footprint << ',' << writes.bytes << ',' << writes.sectors << ',' << writes.footprint
       << std::endl;
  if (file) return;
  std::fprintf(stderr, "HALFMARK_SOFTWARE_GPU_WORK=%s: cannot be written; nothing is counted\n",
               work_file().name.c_str());
  work_file().name.clear();
}

}  // namespace halfmark::kernels::software_gpu
