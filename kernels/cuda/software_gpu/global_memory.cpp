#include "kernels/cuda/software_gpu/global_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr uint64_t kRange = uint64_t{1} << 40;  // of addresses
constexpr uint64_t kAlignment = 512, kRedZone = 512;

uint64_t reserved_range() {
  static const uint64_t start = [] {
    void* found =
        mmap(nullptr, kRange + 2 * kWindowBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw Error("software GPU: no range of addresses can be reserved");
    return (reinterpret_cast<uint64_t>(found) + kWindowBytes - 1) / kWindowBytes * kWindowBytes;
  }();
  return start;
}

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

uint64_t shared_window() { return reserved_range(); }
uint64_t local_window() { return reserved_range() + kWindowBytes; }

bool Allocation::are_written(uint64_t offset, uint64_t size) const {
  for (uint64_t i = offset; i < offset + size;) {
    if ((i & 7) == 0 && offset + size - i >= 8) {
      if (written[i >> 3] != 0xFF) return false;
      i += 8;
    } else {
      if (!(written[i >> 3] >> (i & 7) & 1)) return false;
      ++i;
    }
  }
  return true;
}

void Allocation::set_written(uint64_t offset, uint64_t size) {
  if (size <= 8 && (offset & 7) + size <= 8) {
    written[offset >> 3] = static_cast<uint8_t>(written[offset >> 3] | ((1u << size) - 1) << (offset & 7));
    return;
  }
  for (uint64_t i = offset; i < offset + size;) {
    if ((i & 7) == 0 && offset + size - i >= 8) {
      const uint64_t whole = (offset + size - i) / 8;
      std::fill_n(written.begin() + static_cast<int64_t>(i >> 3), whole, uint8_t{0xFF});
      i += 8 * whole;
    } else {
      written[i >> 3] = static_cast<uint8_t>(written[i >> 3] | 1u << (i & 7));
      ++i;
    }
  }
}

GlobalMemory::~GlobalMemory() {
  for (auto& [address, allocation] : allocations_)
    if (allocation->storage) munmap(allocation->storage, std::max<uint64_t>(allocation->bytes, 1));
}

uint64_t GlobalMemory::reserve(uint64_t bytes) {
  if (next_ == 0) {
    next_ = reserved_range() + 2 * kWindowBytes;
    end_ = reserved_range() + kRange;
  }
  const uint64_t size = (bytes + 2 * kRedZone + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > kRange || size > end_ - next_) return 0;
  const uint64_t address = next_ + kRedZone;
  next_ += size;
  return address;
}

Allocation* GlobalMemory::allocate(int device, uint64_t bytes, std::string what) {
  const uint64_t address = reserve(bytes);
  if (address == 0) return nullptr;
  void* storage = mmap(nullptr, std::max<uint64_t>(bytes, 1), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (storage == MAP_FAILED) return nullptr;
  auto made = std::make_unique<Allocation>();
  made->address = address, made->bytes = bytes, made->device = device, made->what = std::move(what);
  made->storage = static_cast<std::byte*>(storage);
  made->written.resize(bytes / 8 + 2);
  live_bytes_[device] += bytes;
  return (allocations_[address] = std::move(made)).get();
}

bool GlobalMemory::release(uint64_t address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second->live) return false;
  Allocation& allocation = *found->second;
  munmap(allocation.storage, std::max<uint64_t>(allocation.bytes, 1));
  allocation.storage = nullptr, allocation.live = false;
  allocation.written = {};
  live_bytes_[allocation.device] -= allocation.bytes;
  return true;
}

void GlobalMemory::release_all(int device) {
  for (auto& [address, allocation] : allocations_)
    if (allocation->device == device && allocation->live) release(address);
}

Allocation* GlobalMemory::find(uint64_t address) {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation& before = *std::prev(after)->second;
  return address - before.address < before.bytes ? &before : nullptr;
}

uint64_t GlobalMemory::live_bytes(int device) const {
  const auto found = live_bytes_.find(device);
  return found == live_bytes_.end() ? 0 : found->second;
}

std::string GlobalMemory::place_of(uint64_t address) const {
  const auto describe = [](const Allocation& a) {
    return "the " + std::to_string(a.bytes) + " bytes of " + a.what + " at " + hexadecimal(a.address) +
           (a.live ? "" : ", which has been freed");
  };
  constexpr uint64_t kFar = uint64_t{1} << 20;
  const std::string text = "address " + hexadecimal(address);
  const auto after = allocations_.upper_bound(address);
  const Allocation* next = after == allocations_.end() ? nullptr : after->second.get();
  const Allocation* last = after == allocations_.begin() ? nullptr : std::prev(after)->second.get();
  const uint64_t to_next = next ? next->address - address : kFar;
  if (last && address - last->address < last->bytes)
    return text + ": byte " + std::to_string(address - last->address) + " of " + describe(*last);
  const uint64_t to_last = last ? address - last->address - last->bytes : kFar;
  if (to_last <= to_next && to_last < kFar)
    return text + ": " + std::to_string(to_last) + " bytes after " + describe(*last);
  if (to_next < kFar) return text + ": " + std::to_string(to_next) + " bytes before " + describe(*next);
  return text + ": in no allocation";
}

GlobalMemory& global_memory() {
  static auto* memory = new GlobalMemory;  // never destroyed: devices are used until the process ends
  return *memory;
}

}  // namespace halfmark::kernels::software_gpu
