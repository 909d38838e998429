// A convolution as descriptors state it, checked against the documentation of cuDNN.
//
// Sources: API reference of cuDNN 9, cudnnConvolutionForward(), cudnnConvolutionBackwardData(),
// cudnnConvolutionBackwardFilter(): tables of configurations and of algorithms, lists of returned statuses;
// cudnnGetConvolutionNdForwardOutputDim(). Written from memory of them; cudnn_real_test.cpp compares what works without
// a GPU with cuDNN 9.19. The documented configurations of INT8 are left out: nothing in halfmark uses them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_objects.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::software_gpu::cudnn {

enum class Direction : uint8_t { forward, data, filter };

struct Problem {
  Direction direction = Direction::forward;
  Image x, y;  // the image and the result of the forward direction
  Filter w;
  Convolution convolution;
  DType dtype = DType::f32;
  int architecture = 0;
  std::optional<Math> engine_math{};  // of the graph API, where the engine decides
  Math math() const;                  // that, or with the math type of the descriptor
};

// A convolution with its memory. One of x, w and y is written: the image, the filter, the result of the forward direction.
struct Work {
  Problem problem;
  double alpha = 1, beta = 0;
  void *x = nullptr, *w = nullptr, *y = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};
// out = alpha * sums + beta * out, in FP32 (FP64 for DOUBLE); out is rounded once and not read if beta is 0. As enqueued
// work; throws Fault.
void compute(const Work& work);
// The sums of a convolution forward, in FP32 (FP64), of values in the order of n, c, h, w (k, c, h, w).
std::vector<double> convolution_sums(const Problem& problem, const std::vector<double>& image,
                                     std::vector<double> filter);

cudnnStatus_t make_problem(Direction direction, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                           cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int architecture,
                           Problem& problem);

// n, k, and for each spatial axis 1 + (input + 2 pad - ((filter - 1) dilation + 1)) / stride. BAD_PARAM: the channels do
// not fit, or the filter is larger than the padded image.
cudnnStatus_t output_extents(const Convolution& convolution, const Image& x, const Filter& w, std::array<int, 4>& y);

// An algorithm of one direction: cudnnConvolutionFwdAlgo_t, BwdDataAlgo_t or BwdFilterAlgo_t.
struct AlgorithmRow {
  Direction direction;
  int algorithm;
  bool deterministic;
  bool exact;  // sums the products as they are: no transform of the operands
};
std::span<const AlgorithmRow> algorithm_rows();
const AlgorithmRow* find_row(Direction direction, int algorithm);
// NOT_SUPPORTED: not for this problem. BAD_PARAM: no such algorithm.
cudnnStatus_t check_algorithm(const Problem& problem, int algorithm);
size_t workspace_of(const Problem& problem, int algorithm);

// The math types that the algorithm lists report, fastest first.
std::vector<cudnnMathType_t> offered_math(const Problem& problem);

}  // namespace halfmark::kernels::software_gpu::cudnn
