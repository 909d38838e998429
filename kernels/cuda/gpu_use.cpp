#include "kernels/cuda/gpu_use.h"

#include <map>

#include "kernels/tensor/device_state.h"

namespace halfmark::kernels::cuda {

GpuUse& GpuUse::of(int index) {
  static std::mutex mutex;
  static auto* all = new std::map<int, GpuUse>;  // devices may be closed while the program ends
  const std::lock_guard lock(mutex);
  return (*all)[index];
}

void GpuUse::opens(const Nvml& nvml) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) before_ = nvml.used_memory();
  is_open_ = true;
}

double GpuUse::beside_devices(const Nvml& nvml) {
  const std::lock_guard lock(mutex_);
  if (nvml.state().other_processes != 0) return DeviceState::kUnknown;
  const double beside = nvml.used_memory() - before_ - static_cast<double>(held_.load());
  return beside >= 0 ? beside : DeviceState::kUnknown;
}

}  // namespace halfmark::kernels::cuda
