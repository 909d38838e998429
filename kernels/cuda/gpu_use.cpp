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

namespace {
// NaN also where other processes compute on the GPU: what they take changes.
double used_by_us(const Nvml& nvml) {
  return nvml.state().other_processes == 0 ? nvml.used_memory() : DeviceState::kUnknown;
}
}  // namespace

void GpuUse::opens(const Nvml& nvml) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) before_ = used_by_us(nvml);
  is_open_ = true;
}

double GpuUse::outside_pool(const Nvml& nvml) {
  const std::lock_guard lock(mutex_);
  const double outside = used_by_us(nvml) - before_ - static_cast<double>(held_.load());
  return outside >= 0 && !is_lost_ ? outside : DeviceState::kUnknown;
}

}  // namespace halfmark::kernels::cuda
