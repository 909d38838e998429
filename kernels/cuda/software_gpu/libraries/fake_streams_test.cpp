// The interface streams.h for these tests alone: one device, one queue, memory that knows what was written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/libraries/device_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct Allocation {
  std::vector<std::byte> bytes;
  std::vector<bool> written;
};
struct FailedCall {
  std::string function;
  uint64_t after;
  int status;
};

constexpr uintptr_t kFirst = 0x500000000000;  // no host memory is there, so an access without a check crashes
int architecture = 90;
uintptr_t next_address = kFirst;
std::map<uintptr_t, Allocation> allocations;
std::deque<std::function<void()>> queue;
std::map<std::string, uint64_t> counts;
std::vector<FailedCall> failed_calls;

Allocation* allocation_at(uintptr_t address, size_t& offset) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return nullptr;
  --found;
  offset = address - found->first;
  return offset < found->second.bytes.size() ? &found->second : nullptr;
}

}  // namespace

void reset_device(int which) {
  architecture = which;
  allocations.clear(), queue.clear(), failed_calls.clear();
}

void* allocate_on_device(size_t bytes) {
  const uintptr_t address = next_address;
  next_address += (bytes + 1023) / 512 * 512;  // a gap behind each
  allocations[address] = {std::vector<std::byte>(bytes), std::vector<bool>(bytes)};
  return reinterpret_cast<void*>(address);
}

void copy_to_device(void* address, const void* host, size_t bytes) {
  if (bytes) std::memcpy(check_access(address, bytes, Access::write), host, bytes);
}
void copy_from_device(void* host, const void* address, size_t bytes) {
  if (bytes) std::memcpy(host, check_access(address, bytes, Access::read), bytes);
}

cudaError_t run_enqueued() {
  while (!queue.empty()) {
    const std::function<void()> work = std::move(queue.front());
    queue.pop_front();
    try {
      work();
    } catch (const Fault& fault) {
      queue.clear();
      return fault.code;
    }
  }
  return cudaSuccess;
}

void enqueue(cudaStream_t, std::function<void()> work) { queue.push_back(std::move(work)); }

std::byte* check_access(const void* address, size_t bytes, Access access) {
  size_t offset = 0;
  Allocation* found = allocation_at(reinterpret_cast<uintptr_t>(address), offset);
  if (!found || bytes > found->bytes.size() - offset) throw Fault(cudaErrorIllegalAddress, "out of bounds");
  const auto first = found->written.begin() + static_cast<std::ptrdiff_t>(offset),
             last = first + static_cast<std::ptrdiff_t>(bytes);
  if (access == Access::write)
    std::fill(first, last, true);
  else if (std::find(first, last, false) != last)
    throw Fault(cudaErrorIllegalAddress, "read before it was written");
  return found->bytes.data() + offset;
}

size_t bytes_at(const void* address) {
  size_t offset = 0;
  const Allocation* found = allocation_at(reinterpret_cast<uintptr_t>(address), offset);
  return found ? found->bytes.size() - offset : 0;
}

int current_device() { return 0; }
int architecture_of(int) { return architecture; }
int device_of(cudaStream_t) { return 0; }

std::optional<int> called(const char* function) {
  const uint64_t count = ++counts[function];
  for (const FailedCall& one : failed_calls)
    if (one.function == function && one.after == count) return one.status;
  return std::nullopt;
}

void fail_call(const std::string& function, uint64_t nth, int status) {
  failed_calls.push_back({function, counts[function] + nth, status});
}
void fail_no_call() { failed_calls.clear(); }
std::vector<std::pair<std::string, uint64_t>> counted_calls() { return {counts.begin(), counts.end()}; }

}  // namespace halfmark::kernels::software_gpu
