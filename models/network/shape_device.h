// A device for shapes: what is allocated on it has addresses and no memory, so that a model of any size is built and
// checked at once. It has no kernels, and a layer that reads or writes its memory ends the program.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/device.h"
#include "models/namespaces.h"

namespace halfmark::models {

class ShapeDevice final : public Device {
 public:
  std::string name() const override { return "shapes"; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  const kernels::KernelTable& kernels() const override;  // throws Error
  void* allocate(size_t bytes) override;                 // throws Error if no addresses are left
  void release(void* memory, size_t bytes) noexcept override;
  void copy_in(void* /*device_memory*/, const void* /*host*/, size_t /*bytes*/) override {}  // the numbers are dropped
  void clear(void* /*device_memory*/, size_t /*bytes*/) override {}
  void copy_out(void* host, const void* device_memory, size_t bytes) override;  // throws Error
  double time(const std::function<void()>& work) override;
  void evict_caches() override {}
};

}  // namespace halfmark::models
