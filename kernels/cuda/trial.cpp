#include "kernels/cuda/trial.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/random_bytes.h"

namespace halfmark::kernels::cuda {

Trial::~Trial() {
  for (const auto& [memory, bytes] : blocks_) device_.release(memory, bytes);
  if (start_) ignore(cudaEventDestroy(start_));
  if (stop_) ignore(cudaEventDestroy(stop_));
}

void* Trial::memory(size_t bytes, int byte) {
  void* memory = device_.allocate(bytes);
  blocks_.emplace_back(memory, bytes);
  set(memory, bytes, byte);
  return memory;
}

void Trial::set(void* memory, size_t bytes, int byte) {
  HM_CUDA(cudaMemsetAsync(memory, byte, bytes, device_.stream()));
}

double number_of(DType dtype, int byte) {
  unsigned char bytes[8];
  for (unsigned char& one : bytes) one = static_cast<unsigned char>(byte);
  return load(dtype, bytes, 0);
}

void Trial::set_random(void* memory, DType dtype, size_t elements, uint64_t seed) {
  if (elements == 0) return;
  const std::vector<unsigned char> numbers = random_bytes(dtype, elements, seed);
  const size_t bytes = bytes_for(dtype, elements);
  device_.copy_in(memory, numbers.data(), numbers.size());
  // What is written is copied behind itself.
  auto* begin = static_cast<unsigned char*>(memory);
  for (size_t done = numbers.size(); done < bytes;) {
    const size_t more = std::min(done, bytes - done);
    HM_CUDA(cudaMemcpyAsync(begin + done, begin, more, cudaMemcpyDeviceToDevice, device_.stream()));
    done += more;
  }
}

double Trial::seconds(const std::function<void()>& work) {
  if (!start_) HM_CUDA(cudaEventCreate(&start_));
  if (!stop_) HM_CUDA(cudaEventCreate(&stop_));
  // Each of a few samples takes about a millisecond, and at most 16 runs.
  constexpr double kSample = 1e-3;
  constexpr int kSamples = 3, kMost = 16;
  int runs = 1;
  double shortest = 0;
  for (int sample = 0; sample <= kSamples; ++sample) {
    HM_CUDA(cudaEventRecord(start_, device_.stream()));
    for (int i = 0; i < runs; ++i) work();
    HM_CUDA(cudaEventRecord(stop_, device_.stream()));
    HM_CUDA(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    HM_CUDA(cudaEventElapsedTime(&milliseconds, start_, stop_));
    const double one = static_cast<double>(milliseconds) * 1e-3 / runs;
    if (sample == 0)  // only shows how many runs a sample takes
      runs = one > 0 ? std::clamp(static_cast<int>(kSample / one), 1, kMost) : kMost;
    else
      shortest = sample == 1 ? one : std::min(shortest, one);
  }
  return shortest;
}

void wait_for(const CudaDevice& device) {
  (void)cudaGetLastError();
  HM_CUDA(cudaStreamSynchronize(device.stream()));
}

void throw_if_lost(const CudaDevice& device, const Error& cause) {
  (void)cudaGetLastError();
  const cudaError_t status = cudaStreamSynchronize(device.stream());
  if (status == cudaSuccess) return;
  const std::string after = failure_text(status, "cudaStreamSynchronize");
  (void)cudaGetLastError();
  throw Error(std::string(cause.what()) + "; then " + after);
}

}  // namespace halfmark::kernels::cuda
