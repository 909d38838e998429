// Which of the engines that keep to Math a plan uses: the library's first that runs, or one that is clearly faster.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_engines.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {

struct CudnnChoice {
  CudnnCandidate* best = nullptr;
  std::string refusal;  // why the last one failed, if none is left
  std::string failed;   // engines that failed when they were tried: "; number ..."
  std::string tried;    // ", the fastest of 3 tried"
};
// `run` executes a candidate on scratch memory. Throws Error for a fault that the device does not survive.
CudnnChoice choose_engine(const CudaDevice& device, Trial& trial, std::vector<CudnnCandidate>& found,
                          const std::function<cudnnStatus_t(const CudnnCandidate&)>& run);

}  // namespace halfmark::kernels::cuda
