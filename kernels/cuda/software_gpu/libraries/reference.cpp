#include "kernels/cuda/software_gpu/libraries/reference.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/software_gpu/streams.h"
#include "kernels/number/dtype.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

class ReferenceDevice : public HostDevice {
 public:
  ReferenceDevice() { add_reference_rows(kernels_); }
  std::string name() const override { return "reference rows"; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  KernelTable kernels_;
};

Overflow overflow_of(DType dtype) {
  return dtype == DType::e4m3 || dtype == DType::e5m2 ? Overflow::saturate : Overflow::format_default;
}

}  // namespace

void with_reference_rows(const std::function<void(Device&)>& work) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static ReferenceDevice device;
  const LogPause pause;
  try {
    work(device);
  } catch (const Error& error) {
    throw Fault(cudaErrorUnknown, std::string("stand-in of a library: ") + error.what());
  }
}

// Neighbouring runs are checked together, because a check costs more than a copy of a short run.
template <class Visit>
static void each_block(DType dtype, std::span<const int64_t> first, int64_t length, const Visit& visit) {
  for (size_t begin = 0; begin < first.size();) {
    size_t end = begin + 1;
    while (end < first.size() && first[end] == first[end - 1] + length) ++end;
    const int64_t elements = static_cast<int64_t>(end - begin) * length;
    visit(bytes_for(dtype, static_cast<size_t>(first[begin])), bytes_for(dtype, static_cast<size_t>(elements)),
          static_cast<size_t>(elements), begin * static_cast<size_t>(length));
    begin = end;
  }
}

std::vector<double> read_runs(const void* address, DType dtype, std::span<const int64_t> first, int64_t length) {
  std::vector<double> values(first.size() * static_cast<size_t>(length));
  each_block(dtype, first, length, [&](size_t offset, size_t bytes, size_t elements, size_t at) {
    const std::byte* memory =
        check_access(static_cast<const std::byte*>(address) + offset, bytes, software_gpu::Access::read);
    for (size_t i = 0; i < elements; ++i) values[at + i] = load(dtype, memory, i);
  });
  return values;
}

void write_runs(void* address, DType dtype, std::span<const int64_t> first, int64_t length,
                std::span<const double> values) {
  each_block(dtype, first, length, [&](size_t offset, size_t bytes, size_t elements, size_t at) {
    std::byte* memory = check_access(static_cast<std::byte*>(address) + offset, bytes, software_gpu::Access::write);
    for (size_t i = 0; i < elements; ++i)
      store(dtype, memory, i, values[at + i], Rounding::near_even, nullptr, 0, overflow_of(dtype));
  });
}

double read_one(const void* address, DType dtype) {
  const int64_t first = 0;
  return read_runs(address, dtype, {&first, 1}, 1)[0];
}

void check_apart(const Runs& operand, const Runs& result) {
  const auto intervals = [](const Runs& runs) {
    std::vector<std::pair<uintptr_t, uintptr_t>> bytes;
    const size_t length = bytes_for(runs.dtype, static_cast<size_t>(runs.length));
    for (const int64_t first : runs.first) {
      const uintptr_t begin =
          reinterpret_cast<uintptr_t>(runs.address) + bytes_for(runs.dtype, static_cast<size_t>(first));
      bytes.emplace_back(begin, begin + length);
    }
    std::sort(bytes.begin(), bytes.end());
    return bytes;
  };
  const auto read = intervals(operand), written = intervals(result);
  for (size_t i = 0, j = 0; i < read.size() && j < written.size();) {
    if (read[i].second <= written[j].first)
      ++i;
    else if (written[j].second <= read[i].first)
      ++j;
    else
      throw Fault(cudaErrorUnknown, "the result of a library's function overlaps an operand");
  }
}

void spoil(void* workspace, size_t bytes) {
  if (bytes) std::memset(check_access(workspace, bytes, software_gpu::Access::write), 0xFF, bytes);
}

}  // namespace halfmark::kernels::software_gpu
