// A convolution by cuDNN's graph API as it is prepared once for a shape. The heuristics list engines, each with numerical
// notes; those whose notes say that they compute otherwise than Math are left out, and the rest are tried and timed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/cuda_device.h"

namespace halfmark::kernels::cuda {

enum class TensorCores : uint8_t {
  allowed,  // operands are in a half type: products are exact
  needed,   // TF32
  excluded  // FP32: tensor cores would round operands to TF32
};

enum class Direction : uint8_t { forward, backward_data, backward_weights };

struct ConvolutionProblem {
  Direction direction = Direction::forward;
  DType dtype = DType::f32;  // of all three; sums are fp32, of f64 fp64
  TensorCores tensor_cores = TensorCores::excluded;
  Shape x, w, y;      // image, filter, result of the forward direction
  bool last = false;  // all three with the channels last
  Window window{};
  uint32_t alignment_x = 256, alignment_w = 256, alignment_y = 256;  // bytes
};

// What an engine with these notes would compute otherwise; empty: nothing. Winograd and FFT transform the operands first
// and lose digits there; other engines convert operands down, keep partial sums in a narrow format or add in a random
// order. A note that is not known here counts as one of these.
std::string unwanted_note(TensorCores tensor_cores, std::span<const cudnnBackendNumericalNote_t> notes);

class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  const std::string& refusal() const { return refusal_; }  // empty if there is an engine
  const std::string& choice() const { return choice_; }    // Kernel::choice
  size_t workspace_bytes() const { return workspace_; }
  // One of x, w and y is the output.
  virtual void run(const CudaDevice& device, const void* x, const void* w, const void* y, void* workspace) const = 0;

 protected:
  std::string refusal_, choice_;
  size_t workspace_ = 0;
};

// A failure of a call is the reason of a refusal; a fault that the device does not survive is thrown as Error.
std::unique_ptr<ConvolutionPlan> make_convolution_plan(CudaDevice& device, const ConvolutionProblem& problem);

}  // namespace halfmark::kernels::cuda
