// The lists of cuDNN's algorithms for one convolution. Nothing is timed: the functions that find by running answer as
// those that guess.
#include <iterator>

#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

constexpr int kMathTypes = 3;  // at most so many entries an algorithm

int most(Direction direction) {
  int count = 0;
  for (const AlgorithmRow& row : algorithm_rows()) count += row.direction == direction ? kMathTypes : 0;
  return count;
}

cudnnStatus_t count_of(cudnnHandle_t handle, Direction direction, int* count) {
  if (!find(handle) || !count) return refuse(kBad, "not a live handle, or no place for the number");
  *count = most(direction);
  return kFine;
}

// Algorithms that work first, then those that do not, with the status that they would return.
template <class Result>
cudnnStatus_t list(cudnnHandle_t handle, Direction direction, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                   cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int wanted, int* found,
                   Result* results) {
  const auto owner = find(handle);
  if (!owner || !found || !results) return refuse(kBad, "not a live handle, or no place for the results");
  if (wanted < 1) return refuse(kBad, "less than one result is wanted");
  *found = 0;
  Problem problem;
  if (const cudnnStatus_t status =
          make_problem(direction, x, w, convolution, y, architecture_of(owner->device), problem);
      status != kFine)
    return status;
  for (const bool working : {true, false})
    for (const AlgorithmRow& row : algorithm_rows()) {
      if (row.direction != direction) continue;
      const cudnnStatus_t status = check_algorithm(problem, row.algorithm);
      if ((status == kFine) != working) continue;
      for (const cudnnMathType_t math : offered_math(problem)) {
        if (*found == wanted) return kFine;
        Result& result = results[(*found)++];
        result = {};
        result.algo = static_cast<decltype(result.algo)>(row.algorithm);
        result.status = status;
        result.time = working ? static_cast<float>(*found) : -1;
        result.memory = working ? workspace_of(problem, row.algorithm) : 0;
        result.determinism = row.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
        result.mathType = math;
      }
    }
  return kFine;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cudnn

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cudnn;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return refuse(static_cast<cudnnStatus_t>(*failure), "injected failure")

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  HM_CALLED("cudnnGetConvolutionForwardAlgorithmMaxCount");
  return count_of(handle, Direction::forward, count);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  HM_CALLED("cudnnGetConvolutionBackwardDataAlgorithmMaxCount");
  return count_of(handle, Direction::data, count);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  HM_CALLED("cudnnGetConvolutionBackwardFilterAlgorithmMaxCount");
  return count_of(handle, Direction::filter, count);
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t convolution,
                                                     const cudnnTensorDescriptor_t y, const int wanted, int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  HM_CALLED("cudnnGetConvolutionForwardAlgorithm_v7");
  return list(handle, Direction::forward, x, w, convolution, y, wanted, found, results);
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                   const cudnnFilterDescriptor_t w,
                                                   const cudnnConvolutionDescriptor_t convolution,
                                                   const cudnnTensorDescriptor_t y, const int wanted, int* found,
                                                   cudnnConvolutionFwdAlgoPerf_t* results) {
  HM_CALLED("cudnnFindConvolutionForwardAlgorithm");
  return list(handle, Direction::forward, x, w, convolution, y, wanted, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t convolution,
                                                          const cudnnTensorDescriptor_t dx, const int wanted,
                                                          int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  HM_CALLED("cudnnGetConvolutionBackwardDataAlgorithm_v7");
  return list(handle, Direction::data, dx, w, convolution, dy, wanted, found, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                        const cudnnTensorDescriptor_t dy,
                                                        const cudnnConvolutionDescriptor_t convolution,
                                                        const cudnnTensorDescriptor_t dx, const int wanted, int* found,
                                                        cudnnConvolutionBwdDataAlgoPerf_t* results) {
  HM_CALLED("cudnnFindConvolutionBackwardDataAlgorithm");
  return list(handle, Direction::data, dx, w, convolution, dy, wanted, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnFilterDescriptor_t dw, const int wanted,
                                                            int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  HM_CALLED("cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  return list(handle, Direction::filter, x, dw, convolution, dy, wanted, found, results);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t convolution,
                                                          const cudnnFilterDescriptor_t dw, const int wanted,
                                                          int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  HM_CALLED("cudnnFindConvolutionBackwardFilterAlgorithm");
  return list(handle, Direction::filter, x, dw, convolution, dy, wanted, found, results);
}

}  // extern "C"
