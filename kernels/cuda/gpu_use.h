// What this process has taken of each GPU: by its devices, and beside them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/cuda/nvml.h"

namespace halfmark::kernels::cuda {

// Of one GPU, for all devices of the process on it: they share its context.
class GpuUse {
 public:
  static GpuUse& of(int index);

  void opens(const Nvml& nvml);  // a device, before it has a context; the first one counts
  void takes(size_t bytes) { held_ += static_cast<int64_t>(bytes); }
  void gives_back(size_t bytes) { held_ -= static_cast<int64_t>(bytes); }
  void loses_context() { is_lost_ = true; }

  // Bytes that came into use since no device was open, less what devices hold: context, code and libraries. NaN: NVML does not
  // tell, or other processes use the GPU too.
  double outside_pool(const Nvml& nvml);

 private:
  std::mutex mutex_;
  bool is_open_ = false;
  std::atomic<bool> is_lost_ = false;  // then its memory is given back, and nothing more is told
  double before_ = 0;                  // bytes in use; NaN: not known
  std::atomic<int64_t> held_ = 0;
};

}  // namespace halfmark::kernels::cuda
