// A convolution by cuDNN's graph API as it is prepared once for a shape: the engines that keep to Math (cudnn_engines.h)
// are tried and timed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cudnn_convolution_graph.h"

namespace halfmark::kernels::cuda {

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

// Which engines keep to Math with image, filter and result of this dtype, or why none does.
Refusal convolution_arithmetic(const CudaDevice& device, DType dtype, const Math& math, TensorCores& tensor_cores);

}  // namespace halfmark::kernels::cuda
