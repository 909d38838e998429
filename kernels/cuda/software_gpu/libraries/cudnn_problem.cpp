#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

// Data type, compute type, first architecture: DOUBLE_CONFIG, FLOAT_CONFIG, PSEUDO_HALF_CONFIG, TRUE_HALF_CONFIG,
// PSEUDO_BFLOAT16_CONFIG ("compute capability 8.0 and later").
struct Configuration {
  cudnnDataType_t data, compute;
  DType dtype;
  int architecture;
};
constexpr Configuration kConfigurations[] = {
    {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, DType::f64, 75},   {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, DType::f32, 75},
    {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, DType::f16, 75},      {CUDNN_DATA_HALF, CUDNN_DATA_HALF, DType::f16, 75},
    {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, DType::bf16, 80},
};

// Determinism: API reference at the algorithms of each direction ("The results are deterministic" or not), and the
// comments of cudnn_ops.h. cudnnConvolutionFwdAlgo_t DIRECT and BWD_FILTER_ALGO_WINOGRAD are "not implemented".
constexpr AlgorithmRow kRows[] = {
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, true},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, true, false},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true, false},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, true, false},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_FFT, true, false},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, true},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, true, true},
    {Direction::forward, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, true, true},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, true},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, true, false},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, true, false},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, true},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, true, false},
    {Direction::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, true, false},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, true},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, true},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, true, false},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, true},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING, true, false},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, true, false},
    {Direction::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD, true, false},
};

bool is_packed_as(const Image& image, cudnnTensorFormat_t format) {
  const std::array<int, 4> packed = packed_strides(image.extents, format);
  for (size_t i = 0; i < 4; ++i)  // the stride of an axis of one element is never used
    if (image.extents[i] > 1 && image.strides[i] != packed[i]) return false;
  return true;
}

bool plain_window(const Problem& p) {
  return p.convolution.stride == std::array{1, 1} && p.convolution.dilation == std::array{1, 1};
}
bool filter_is(const Problem& p, int extent) { return p.w.extents[2] == extent && p.w.extents[3] == extent; }

bool is_one_of(int algorithm, std::initializer_list<int> list) {
  return std::find(list.begin(), list.end(), algorithm) != list.end();
}
bool is_winograd(Direction direction, int algorithm) {
  return direction == Direction::forward ? algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
         : direction == Direction::data  ? algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD
                                         : false;
}
bool is_nonfused(Direction direction, int algorithm) {
  return direction == Direction::forward ? algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
         : direction == Direction::data  ? algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED
                                         : algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}
bool is_unwritten(Direction direction, int algorithm) {
  return direction == Direction::forward  ? algorithm == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT
         : direction == Direction::filter ? algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
                                          : false;
}
// What a filter in NHWC has: the implicit products of the forward direction, 0 and 1 of the others.
bool takes_nhwc_filter(Direction direction, int algorithm) {
  return direction == Direction::forward ? is_one_of(algorithm, {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                                 CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM})
                                         : is_one_of(algorithm, {0, 1});
}

}  // namespace

cudnnStatus_t output_extents(const Convolution& convolution, const Image& x, const Filter& w, std::array<int, 4>& y) {
  if (int64_t{w.extents[1]} * convolution.groups != x.extents[1])
    return refuse(kBad, "channels of the image differ from those of the filter times groups");
  y[0] = x.extents[0], y[1] = w.extents[0];
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t room = int64_t{x.extents[axis + 2]} + 2 * int64_t{convolution.pad[axis]} -
                         ((int64_t{w.extents[axis + 2]} - 1) * convolution.dilation[axis] + 1);
    if (room < 0) return refuse(kBad, "the filter is larger than the padded image");
    y[axis + 2] = static_cast<int>(1 + room / convolution.stride[axis]);
  }
  return kFine;
}

cudnnStatus_t make_problem(Direction direction, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                           cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int architecture,
                           Problem& problem) {
  const auto image = find(x), result = find(y);
  const auto filter = find(w);
  const auto described = find(convolution);
  if (!image || !result || !filter || !described) return refuse(kBad, "a descriptor is null, not set or not live");
  problem = {direction, *image, *result, *filter, *described, DType::f32, architecture};
  // "xDesc, wDesc, and yDesc have a non-matching data type"
  if (image->type != filter->type || image->type != result->type) return refuse(kBad, "data types differ");
  // "yDesc or wDesc indicate an output channel count that isn't a multiple of group count"; the function that only
  // computes extents does not look at this.
  if (filter->extents[0] % described->groups != 0) return refuse(kBad, "the filters are no multiple of the groups");
  std::array<int, 4> expected{};
  if (const cudnnStatus_t status = output_extents(*described, *image, *filter, expected); status != kFine)
    return status;
  // "yDesc's spatial sizes do not match with the expected size as determined by cudnnGetConvolutionNdForwardOutputDim"
  if (result->extents != expected) return refuse(kBad, "the result has other extents than the convolution gives");
  for (const Image* one : {&*image, &*result})
    for (const int stride : one->strides)
      if (stride < 0) return refuse(kUnsupported, "a stride is negative");
  const auto* found = std::find_if(std::begin(kConfigurations), std::end(kConfigurations), [&](const auto& row) {
    return row.data == image->type && row.compute == described->compute;
  });
  if (found == std::end(kConfigurations)) return refuse(kUnsupported, "no such data and compute type together");
  if (architecture < found->architecture) return refuse(kUnsupported, "this GPU does not have the data type");
  problem.dtype = found->dtype;
  if (filter->format == CUDNN_TENSOR_NHWC &&
      !(is_packed_as(*image, CUDNN_TENSOR_NHWC) && is_packed_as(*result, CUDNN_TENSOR_NHWC)))
    return refuse(kUnsupported, "a filter in NHWC needs packed images in NHWC");
  return kFine;
}

Math Problem::math() const {
  if (engine_math) return *engine_math;
  Math result;
  if (dtype == DType::f64) {
    result.multiply = result.accumulate = result.partial = kFp64;
    return result;
  }
  // TRUE_HALF_CONFIG: CUDNN_DATA_HALF permits FP16 sums and does not promise them; here they are FP16.
  if (convolution.compute == CUDNN_DATA_HALF) result.accumulate = result.partial = kFp16;
  if (dtype != DType::f32) return result;
  // CUDNN_DEFAULT_MATH: "Tensor Core operations are not used on pre-NVIDIA A100 GPU devices. On A100 GPU architecture
  // devices, Tensor Core TF32 operation is permitted."
  const bool permitted = convolution.math != CUDNN_FMA_MATH && architecture >= 80;
  if (permitted) result.multiply = kTf32;
  if (convolution.math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) result.multiply = kFp16;
  return result;
}

std::span<const AlgorithmRow> algorithm_rows() { return kRows; }

const AlgorithmRow* find_row(Direction direction, int algorithm) {
  for (const AlgorithmRow& row : kRows)
    if (row.direction == direction && row.algorithm == algorithm) return &row;
  return nullptr;
}

// Tables of algorithms: Winograd takes 3x3 filters (NONFUSED also 5x5 forward and for data), stride and dilation 1; FFT
// stride and dilation 1 and padded images of at most 256, FFT_TILING filters of at most 32. None of these has BFLOAT16;
// of the transforms only FFT_TILING has DOUBLE.
cudnnStatus_t check_algorithm(const Problem& p, int algorithm) {
  const AlgorithmRow* row = find_row(p.direction, algorithm);
  if (!row) return refuse(kBad, "no such algorithm");
  if (is_unwritten(p.direction, algorithm)) return refuse(kUnsupported, "cuDNN does not implement this algorithm");
  if (p.w.format == CUDNN_TENSOR_NHWC && !takes_nhwc_filter(p.direction, algorithm))
    return refuse(kUnsupported, "this algorithm takes no filter in NHWC");
  if (row->exact) return kFine;
  if (!plain_window(p)) return refuse(kUnsupported, "this algorithm takes only stride and dilation 1");
  if (p.dtype == DType::bf16) return refuse(kUnsupported, "this algorithm has no BFLOAT16");
  const bool winograd = is_winograd(p.direction, algorithm), nonfused = is_nonfused(p.direction, algorithm);
  if (winograd || nonfused) {
    const bool five = nonfused && p.direction != Direction::filter && filter_is(p, 5);
    if (p.dtype == DType::f64) return refuse(kUnsupported, "this algorithm has no DOUBLE");
    return filter_is(p, 3) || five ? kFine : refuse(kUnsupported, "this algorithm takes only small square filters");
  }
  const bool tiling = p.direction == Direction::forward ? algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING
                      : p.direction == Direction::data  ? algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING
                                                        : algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING;
  if (p.dtype == DType::f64 && !tiling) return refuse(kUnsupported, "this algorithm has no DOUBLE");
  for (size_t axis = 0; axis < 2; ++axis) {
    const int filter = p.w.extents[axis + 2];
    if (filter <= p.convolution.pad[axis]) return refuse(kUnsupported, "the filter is not larger than the padding");
    if (tiling ? filter > 32 : p.x.extents[axis + 2] + 2 * p.convolution.pad[axis] > 256)
      return refuse(kUnsupported, "too large for this algorithm");
  }
  return kFine;
}

// Of the sizes only the order of magnitude is that of cuDNN; what matters is that programs ask for them.
size_t workspace_of(const Problem& p, int algorithm) {
  const AlgorithmRow* row = find_row(p.direction, algorithm);
  const auto columns = static_cast<size_t>(p.w.extents[1]) * static_cast<size_t>(p.w.extents[2] * p.w.extents[3]);
  const auto places = static_cast<size_t>(p.y.extents[2]) * static_cast<size_t>(p.y.extents[3]);
  if (!row->exact) return is_winograd(p.direction, algorithm) ? 0 : 16 * columns * static_cast<size_t>(p.w.extents[0]);
  switch (p.direction) {
    case Direction::forward:
      if (algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM) return columns * places * size_of(p.dtype);
      return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ? 8 * columns : 0;
    case Direction::data:
      return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 ? 8 * columns : 0;
    case Direction::filter:
      return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ? 0 : 8 * columns;
  }
  return 0;
}

std::vector<cudnnMathType_t> offered_math(const Problem& p) {
  if (p.convolution.math == CUDNN_FMA_MATH || p.dtype == DType::f64) return {CUDNN_FMA_MATH};
  std::vector<cudnnMathType_t> types;
  if (p.convolution.math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION && p.dtype == DType::f32)
    types.push_back(CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
  if (p.dtype != DType::f32 || p.architecture >= 80) types.push_back(CUDNN_TENSOR_OP_MATH);
  types.push_back(CUDNN_FMA_MATH);
  return types;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
