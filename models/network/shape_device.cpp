#include "models/network/shape_device.h"

#include <sys/mman.h>

#include <algorithm>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error("a device for shapes has no " + what); }

size_t mapped(size_t bytes) { return std::max<size_t>(bytes, 1); }

}  // namespace

const kernels::KernelTable& ShapeDevice::kernels() const { refuse("kernels"); }

void* ShapeDevice::allocate(size_t bytes) {
  void* memory = mmap(nullptr, mapped(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("its parameters take more addresses than a process has: one of them " + std::to_string(bytes) +
                " bytes");
  return memory;
}

void ShapeDevice::release(void* memory, size_t bytes) noexcept { munmap(memory, mapped(bytes)); }

void ShapeDevice::copy_out(void*, const void*, size_t) { refuse("memory"); }

double ShapeDevice::time(const std::function<void()>&) { refuse("clock"); }

}  // namespace halfmark::models
