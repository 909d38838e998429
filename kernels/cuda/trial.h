// Running what a library plans once, on scratch memory and before its first use: whether it works, and how fast it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.h"

namespace halfmark::kernels::cuda {

// An algorithm replaces one that the library prefers if it takes less than this share of its time.
inline constexpr double kClearlyFaster = 0.98;
// Seconds. In shorter work the differences are those of launches; the library's first is kept, so that every run of the
// program adds alike.
inline constexpr double kWorthComparing = 20e-6;

// Bytes of elements whose product is near 1 in every dtype. As f32 neither is a tf32 number, and tf32 rounds both in the same
// direction. As bf16 they are 9e11 and 6e-13, of which fp16 holds neither.
inline constexpr int kTriedByte = 0x53, kSecondByte = 0x2b;
double number_of(DType dtype, int byte);  // all of whose bytes are this one

// Scratch and a clock. Not part of the memory that is measured: the same operation does not need it again.
class Trial {
 public:
  explicit Trial(CudaDevice& device) : device_(device) {}
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  void* memory(size_t bytes, int byte);  // every byte has this value; throws Error if there is not enough memory
  void set(void* memory, size_t bytes, int byte);
  // Numbers of mean 0 and variance 1, the same for the same seed. Long arrays repeat them.
  void set_random(void* memory, DType dtype, size_t elements, uint64_t seed);
  double seconds(const std::function<void()>& work);  // of one run, the shortest of a few; `work` has run before

 private:
  CudaDevice& device_;
  std::vector<std::pair<void*, size_t>> blocks_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;  // the device's own may be in use
};

// Waits for all work and forgets errors that the device survives. Throws Error for a fault that it does not.
void wait_for(const CudaDevice& device);

// After an error: forgets it if the device survives it, else throws it again, so that the call that failed first is named.
void throw_if_lost(const CudaDevice& device, const Error& cause);

}  // namespace halfmark::kernels::cuda
