// Host memory, its clock, and the facts about the CPU for the report.
#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <utility>

#if HALFMARK_ONEDNN
#include "kernels/cpu/blas_room.h"
#include "kernels/cpu/onednn/onednn.h"
#endif
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"
#include "kernels/ops/batched.h"
#include "kernels/ops/norm_add.h"
#include "kernels/ops/packed_attention.h"

namespace halfmark::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector

// Sizes of blocks kept for reuse. malloc itself keeps smaller ones; larger ones are rare, and their page faults are few
// compared with the work done on them.
constexpr size_t kSmallestKept = size_t{64} << 10, kLargestKept = size_t{256} << 20;
#if HALFMARK_SANITIZED
constexpr bool kKeepsBlocks = false;  // so that use after release is seen
#else
constexpr bool kKeepsBlocks = true;
#endif

size_t last_level_cache() {
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE), level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return static_cast<size_t>(std::max({level3, level2, 0L}));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

}  // namespace

HostDevice::~HostDevice() {
  library.reset();  // puts released tensors into the block lists below
  HostDevice::return_kept_memory();
}

void HostDevice::return_kept_memory() {
  for (const auto& [bytes, blocks] : released_)
    for (void* block : blocks) ::operator delete(block, kAlignment);
  released_.clear();
}

void* HostDevice::allocate(size_t bytes) {
  if (const auto found = released_.find(bytes); found != released_.end() && !found->second.empty()) {
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }
  try {
    return ::operator new(std::max<size_t>(bytes, 1), kAlignment);
  } catch (const std::bad_alloc&) {
    throw Error(name() + ": no memory for " + std::to_string(bytes) + " bytes (" +
                std::to_string(memory().live().total) + " bytes are in use)" +
                (memory_is_limited() ? "; raise the limit (ulimit -v or -d)" : ""));
  }
}

void HostDevice::release(void* memory, size_t bytes) noexcept {
  if (kKeepsBlocks && bytes >= kSmallestKept && bytes <= kLargestKept) {
    try {
      return released_[bytes].push_back(memory);
    } catch (const std::bad_alloc&) {  // returned to the system
    }
  }
  ::operator delete(memory, kAlignment);
}

void HostDevice::copy_in(void* device_memory, const void* host, size_t bytes) {
  if (bytes) std::memcpy(device_memory, host, bytes);
}

void HostDevice::clear(void* device_memory, size_t bytes) {
  if (bytes) std::memset(device_memory, 0, bytes);
}

void HostDevice::copy_out(void* host, const void* device_memory, size_t bytes) {
  if (bytes) std::memcpy(host, device_memory, bytes);
}

void HostDevice::copy(void* to, const void* from, size_t bytes) { copy_in(to, from, bytes); }

double HostDevice::time(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void HostDevice::evict_caches() {
  // Writes every line of a buffer a quarter larger than the last-level cache, so that nothing else stays in the cache.
  // The buffer is kept for the next call and uses large pages, because the first pass over small ones takes seconds. At
  // most 1 GiB, because a virtual machine may report a cache that it shares.
  constexpr size_t kPage = size_t{2} << 20;
  static const size_t bytes = std::clamp(last_level_cache() / 4 * 5, size_t{64} << 20, size_t{1} << 30) / kPage * kPage;
  static unsigned char* const buffer = [] {
    auto* memory = static_cast<unsigned char*>(::operator new (bytes, std::align_val_t{kPage}));
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  }();
  static unsigned char round = 0;
  ++round;
  parallel_for(static_cast<int64_t>(bytes), int64_t{1} << 22, [](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 64) buffer[i] = round;
  });
}

void HostDevice::copy_out_plain(void* host, const Tensor& opaque) {
  const auto* layout = dynamic_cast<const HostLayout*>(opaque.opaque_layout().get());
  if (!layout) return Device::copy_out_plain(host, opaque);
  layout->copy_out_plain(host, opaque.data());
}

CpuDevice::CpuDevice(int threads) {
  if (threads) set_host_threads(threads);
#if HALFMARK_ONEDNN
  add_onednn_rows(kernels_);
#endif
  add_blas_rows(kernels_);
  add_host_rows(kernels_);
  add_upcast_rows(kernels_);
  add_half_fma_rows(kernels_);
  add_fused_rows(kernels_), add_fused_convolution_rows(kernels_), add_fused_norm_rows(kernels_);
  add_reference_rows(kernels_);
  add_batched_rows(kernels_), add_packed_attention_rows(kernels_), add_norm_add_rows(kernels_);
}

// oneDNN reads nhwc where it computes; the fp64 and fp16 rows are made for plain images.
Layout CpuDevice::image_layout(DType dtype) const {
#if HALFMARK_ONEDNN
  if (onednn_computes_in(dtype)) return Layout::nhwc;
#endif
  return HostDevice::image_layout(dtype);
}

std::vector<std::pair<std::string, std::string>> CpuDevice::describe() const {
  return {{"processor", processor_name()},
          {"threads", std::to_string(host_threads())},
          {"cores", std::to_string(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)))},
          {"last_level_cache_bytes", std::to_string(last_level_cache())},
          {"memory_bytes", std::to_string(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                          static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)))},
          {"conversions", std::string(convert_instructions())}};
}

}  // namespace halfmark::kernels
