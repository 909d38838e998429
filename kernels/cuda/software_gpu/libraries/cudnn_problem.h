// A convolution as descriptors state it, checked against the documentation of cuDNN.
//
// Sources: API reference of cuDNN 9, cudnnConvolutionForward(), cudnnConvolutionBackwardData(),
// cudnnConvolutionBackwardFilter(): tables of configurations and of algorithms, lists of returned statuses;
// cudnnGetConvolutionNdForwardOutputDim(). Written from memory of them; cudnn_real_test.cpp compares what works without
// a GPU with cuDNN 9.19. The documented configurations of INT8 are left out: nothing in halfmark uses them.
#pragma once

#include <array>
#include <cstdint>
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
  Math math() const;  // with the math type of the descriptor
};

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
