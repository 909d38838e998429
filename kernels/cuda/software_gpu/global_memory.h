// Device memory: allocations with a record of which bytes have been written.
//
// Device addresses are in a range that is reserved and not accessible, so host code that dereferences one crashes. No
// address is given out twice in a process, and 512 bytes before and after every allocation belong to none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halfmark::kernels::software_gpu {

struct Allocation {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int device = 0;
  bool live = true;
  std::string what;              // "cudaMalloc" or the name of a variable
  std::byte* storage = nullptr;  // page-aligned host memory
  std::vector<uint8_t> written;  // a bit for each byte

  bool holds(uint64_t at, uint64_t size) const { return at - address < bytes && size <= bytes - (at - address); }
  bool is_written(uint64_t offset, uint64_t size) const {
    const uint64_t first = offset & 7;
    if (first + size > 8) return are_written(offset, size);
    const uint32_t mask = ((1u << size) - 1) << first;
    return (written[offset >> 3] & mask) == mask;
  }
  bool are_written(uint64_t offset, uint64_t size) const;  // any number
  void set_written(uint64_t offset, uint64_t size);
};

class GlobalMemory {
 public:
  GlobalMemory() = default;
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  // Null if the address range is used up. The alignment of an address is 512 bytes.
  Allocation* allocate(int device, uint64_t bytes, std::string what);
  bool release(uint64_t address);  // false unless it is the start of a live allocation
  void release_all(int device);
  Allocation* find(uint64_t address);  // live or released, that holds the address; else null
  uint64_t live_bytes(int device) const;

  // "64 bytes after the 1024 bytes of cudaMalloc at 0x7f...": where an address that no allocation holds is.
  std::string place_of(uint64_t address) const;

 private:
  uint64_t reserve(uint64_t bytes);

  uint64_t next_ = 0, end_ = 0;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;  // by address
  std::map<int, uint64_t> live_bytes_;
};

GlobalMemory& global_memory();  // of all devices of this process

// Addresses of shared and local memory in the generic address space.
uint64_t shared_window();
uint64_t local_window();
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 24;

}  // namespace halfmark::kernels::software_gpu
