// A CPU with a table of rows of its own, for tests.
#pragma once

#include <functional>

#include "kernels/cpu/cpu_device.h"

namespace halfmark::kernels {

class DeviceWithChosenRows : public CpuDevice {
 public:
  explicit DeviceWithChosenRows(const std::function<void(KernelTable&)>& change) { change(table_); }
  const KernelTable& kernels() const override { return table_; }

 private:
  KernelTable table_ = CpuDevice::kernels();
};

}  // namespace halfmark::kernels
