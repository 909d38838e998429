// The stand-in of cuDNN: convolutions against plain loops, algorithms, and what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_testing.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

constexpr cudnnStatus_t kRight = CUDNN_STATUS_SUCCESS, kWrong = CUDNN_STATUS_BAD_PARAM,
                        kNotThere = CUDNN_STATUS_NOT_SUPPORTED;

void expect_all_directions_right(Call& call) {
  const DType dtype = dtype_of(call.type);
  call.fill();
  ASSERT_EQ(call.forward(), kRight);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_EQ(from_device(call.y_memory, dtype, call.s.y()), call.expected_y());
  call.fill();
  ASSERT_EQ(call.backward_data(), kRight);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_EQ(from_device(call.x_memory, dtype, call.s.x()), call.expected_x());
  call.fill();
  ASSERT_EQ(call.backward_filter(), kRight);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_EQ(from_device(call.w_memory, dtype, call.s.filter()), call.expected_w());
}

TEST(CudnnConvolution, EveryConfigurationIsRight) {
  struct Configuration {
    cudnnDataType_t data, compute;
    int first;
  };
  for (const cudnnDataType_t data : {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16})
    for (const cudnnDataType_t compute : {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_INT32})
      for (const int architecture : {75, 80, 90}) {
        constexpr Configuration kListed[] = {{CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, 75},
                                             {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, 75},
                                             {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, 75},
                                             {CUDNN_DATA_HALF, CUDNN_DATA_HALF, 75},
                                             {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, 80}};
        const bool listed = std::any_of(std::begin(kListed), std::end(kListed), [&](const Configuration& one) {
          return one.data == data && one.compute == compute && one.first <= architecture;
        });
        SCOPED_TRACE(std::to_string(data) + " " + std::to_string(compute) + " sm_" + std::to_string(architecture));
        reset_device(architecture);
        Call call;
        call.type = data, call.compute = compute;
        call.describe();
        if (listed) {
          expect_all_directions_right(call);
          continue;
        }
        call.fill();
        EXPECT_EQ(call.forward(), kNotThere);
        EXPECT_EQ(call.backward_data(), kNotThere);
        EXPECT_EQ(call.backward_filter(), kNotThere);
      }
}

TEST(CudnnConvolution, LayoutsGroupsModesAndScalars) {
  for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC})
    for (const cudnnTensorFormat_t filter : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC})
      for (const int groups : {1, 2})
        for (const cudnnConvolutionMode_t mode : {CUDNN_CROSS_CORRELATION, CUDNN_CONVOLUTION}) {
          reset_device(90);
          Call call;
          call.format = format, call.filter_format = filter, call.mode = mode, call.s.groups = groups;
          call.alpha = 2, call.beta = 0.5f;
          call.describe(), call.fill();
          if (filter == CUDNN_TENSOR_NHWC && format == CUDNN_TENSOR_NCHW)
            EXPECT_EQ(call.forward(), kNotThere);
          else
            expect_all_directions_right(call);
        }
}

TEST(CudnnConvolution, ImagesWithStrides) {
  reset_device(90);
  Call call;  // rows of x are 4 elements longer than its width
  call.describe(), call.fill();
  const int row = call.s.w + 4;
  ASSERT_EQ(cudnnSetTensor4dDescriptorEx(call.x, call.type, call.s.n, call.s.c, call.s.h, call.s.w,
                                         call.s.c * call.s.h * row, call.s.h * row, row, 1),
            kRight);
  auto* memory = static_cast<float*>(allocate_on_device(static_cast<size_t>(call.s.n * call.s.c * call.s.h * row) * 4));
  for (int r = 0; r < call.s.n * call.s.c * call.s.h; ++r) {
    std::vector<float> values;
    for (int w = 0; w < call.s.w; ++w)
      values.push_back(static_cast<float>(call.x_values[static_cast<size_t>(r * call.s.w + w)]));
    copy_to_device(memory + r * row, values.data(), values.size() * sizeof(float));
  }
  call.x_memory = memory;
  ASSERT_EQ(call.forward(), kRight);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_EQ(from_device(call.y_memory, DType::f32, call.s.y()), call.expected_y());
}

TEST(CudnnConvolution, AlgorithmListsAgreeWithWhatRuns) {
  for (const int architecture : {75, 90})
    for (const bool plain : {true, false})
      for (const cudnnMathType_t math : {CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH}) {
        reset_device(architecture);
        Call call;
        call.math = math;
        if (plain) call.s.kh = call.s.kw = 3, call.s.stride_h = call.s.dilation_w = 1;
        call.describe(), call.fill();
        std::vector<cudnnConvolutionFwdAlgoPerf_t> results(24);
        int count = 0;
        ASSERT_EQ(cudnnGetConvolutionForwardAlgorithm_v7(call.handle, call.x, call.w, call.convolution, call.y, 24,
                                                         &count, results.data()),
                  kRight);
        bool winograd = false, tensor = false;
        for (int i = 0; i < count; ++i) {
          const auto& result = results[static_cast<size_t>(i)];
          winograd = winograd || (result.algo == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD && result.status == kRight);
          tensor = tensor || result.mathType == CUDNN_TENSOR_OP_MATH;
          EXPECT_EQ(call.forward(result.algo), result.status);
          size_t bytes = 0;
          EXPECT_EQ(cudnnGetConvolutionForwardWorkspaceSize(call.handle, call.x, call.w, call.convolution, call.y,
                                                            result.algo, &bytes),
                    result.status);
          if (result.status != kRight) continue;
          EXPECT_EQ(bytes, result.memory);
          ASSERT_EQ(run_enqueued(), cudaSuccess);
          if (bytes == 0) continue;
          call.workspace_bytes = bytes - 1;
          EXPECT_EQ(call.forward(result.algo), kWrong);
          call.workspace_bytes = 1 << 20;
        }
        EXPECT_EQ(winograd, plain);
        EXPECT_EQ(tensor, architecture >= 80 && math == CUDNN_DEFAULT_MATH);
        EXPECT_EQ(call.forward(99), kWrong);
      }
}

TEST(CudnnConvolution, SomeBackwardAlgorithmsAddInARandomOrder) {
  reset_device(90);
  Call call;
  call.describe();
  cudnnConvolutionBwdDataAlgoPerf_t data[18];
  cudnnConvolutionBwdFilterAlgoPerf_t filter[21];
  int count = 0;
  ASSERT_EQ(cudnnGetConvolutionBackwardDataAlgorithm_v7(call.handle, call.w, call.y, call.convolution, call.x, 18,
                                                        &count, data),
            kRight);
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(data[i].determinism == CUDNN_NON_DETERMINISTIC, data[i].algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0);
  ASSERT_EQ(cudnnGetConvolutionBackwardFilterAlgorithm_v7(call.handle, call.x, call.y, call.convolution, call.w, 21,
                                                          &count, filter),
            kRight);
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(
        filter[i].determinism == CUDNN_NON_DETERMINISTIC,
        filter[i].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 || filter[i].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3);
}

TEST(CudnnConvolution, MathTypesPermitNarrowerProducts) {
  const double fine = 1 + std::exp2(-12);
  for (const int architecture : {75, 80})
    for (const cudnnMathType_t math : {CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH}) {
      reset_device(architecture);
      Call call;
      call.math = math, call.s = {.n = 1, .c = 1, .h = 1, .w = 1, .k = 1, .kh = 1, .kw = 1, .pad_h = 0};
      call.s.stride_h = call.s.dilation_w = 1;
      call.describe(), call.fill();
      const double one = 1;
      call.x_memory = on_device(DType::f32, {&fine, 1}), call.w_memory = on_device(DType::f32, {&one, 1});
      ASSERT_EQ(call.forward(), kRight);
      ASSERT_EQ(run_enqueued(), cudaSuccess);
      EXPECT_EQ(from_device(call.y_memory, DType::f32, 1)[0],
                architecture == 80 && math == CUDNN_DEFAULT_MATH ? 1 : fine);
    }
}

void expect_refused(cudnnStatus_t status, const std::function<void(Call&)>& change) {
  reset_device(90);
  Call call;
  call.describe(), call.fill();
  ASSERT_EQ(call.forward(), kRight);
  change(call);
  char text[256] = "";
  cudnnGetLastErrorString(text, sizeof text);
  EXPECT_EQ(call.forward(), status);
  cudnnGetLastErrorString(text, sizeof text);
  EXPECT_EQ(text[0] == 0, status == kRight);
}

TEST(CudnnConvolution, RefusedDescriptorsAndPointers) {
  const auto image = [](cudnnTensorDescriptor_t Call::*which, cudnnDataType_t type, int n, int c, int h, int w) {
    return [=](Call& call) {
      EXPECT_EQ(cudnnSetTensor4dDescriptor(call.*which, CUDNN_TENSOR_NCHW, type, n, c, h, w), kRight);
    };
  };
  const Sizes s;
  // The extents of the result are those of cudnnGetConvolutionNdForwardOutputDim.
  for (const int axis : {0, 1, 2, 3}) {
    int e[] = {s.n, s.k, s.oh(), s.ow()};
    ++e[axis];
    expect_refused(kWrong, image(&Call::y, CUDNN_DATA_FLOAT, e[0], e[1], e[2], e[3]));
  }
  expect_refused(kWrong, image(&Call::x, CUDNN_DATA_FLOAT, s.n, s.c + 1, s.h, s.w));
  expect_refused(kWrong, image(&Call::x, CUDNN_DATA_HALF, s.n, s.c, s.h, s.w));
  expect_refused(kWrong, [](Call& c) { cudnnSetConvolutionGroupCount(c.convolution, 2); });
  expect_refused(kWrong, [](Call& c) { c.x_memory = nullptr; });
  expect_refused(kWrong, [](Call& c) { c.y_memory = nullptr; });
  expect_refused(kWrong, [](Call& c) { c.w_memory = static_cast<std::byte*>(c.w_memory) + 2; });
  expect_refused(kWrong, [](Call& c) { cudnnDestroyTensorDescriptor(c.x); });
  expect_refused(kWrong, [](Call& c) { cudnnDestroyFilterDescriptor(c.w); });
  expect_refused(kWrong, [](Call& c) { cudnnDestroy(c.handle); });
  expect_refused(kWrong, [](Call& c) { c.w = reinterpret_cast<cudnnFilterDescriptor_t>(c.y); });
  expect_refused(kWrong, [](Call& c) { c.y = c.x; });
  expect_refused(kWrong, [](Call& c) {  // created and not set
    cudnnDestroyConvolutionDescriptor(c.convolution);
    EXPECT_EQ(cudnnCreateConvolutionDescriptor(&c.convolution), kRight);
  });
  expect_refused(kNotThere, [&](Call& c) {
    EXPECT_EQ(cudnnSetTensor4dDescriptorEx(c.x, c.type, s.n, s.c, s.h, s.w, s.c * s.h * s.w, s.h * s.w, -s.w, 1),
              kRight);
  });
}

TEST(CudnnConvolution, MistakesOfProgramsAreFound) {
  const auto faults_or_is_wrong = [](const std::function<void(Call&)>& change) {
    reset_device(90);
    Call call;
    call.format = call.filter_format = CUDNN_TENSOR_NHWC;
    call.describe(), call.fill();
    change(call);
    const cudnnStatus_t status = call.forward();
    if (status != kRight || run_enqueued() != cudaSuccess) return true;
    return from_device(call.y_memory, DType::f32, call.s.y()) != call.expected_y();
  };
  EXPECT_FALSE(faults_or_is_wrong([](Call&) {}));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) {  // strides of NCHW for images in NHWC
    cudnnSetTensor4dDescriptor(c.x, CUDNN_TENSOR_NCHW, c.type, c.s.n, c.s.c, c.s.h, c.s.w);
  }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) {  // w and c exchanged in the strides
    cudnnSetTensor4dDescriptorEx(c.x, c.type, c.s.n, c.s.c, c.s.h, c.s.w, c.s.c * c.s.h * c.s.w, c.s.w, c.s.c * c.s.w,
                                 1);
  }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) {  // a filter in NCHW described as NHWC
    cudnnSetFilter4dDescriptor(c.w, c.type, CUDNN_TENSOR_NCHW, c.s.k, c.s.c, c.s.kh, c.s.kw);
  }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) { std::swap(c.x_memory, c.y_memory); }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) { c.y_memory = c.x_memory; }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) { c.w_memory = allocate_on_device(c.s.filter() * 4); }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) { c.w_memory = static_cast<std::byte*>(c.w_memory) + 4; }));
  EXPECT_TRUE(faults_or_is_wrong([](Call& c) {  // convolution instead of cross-correlation
    cudnnSetConvolution2dDescriptor(c.convolution, c.s.pad_h, c.s.pad_w, c.s.stride_h, c.s.stride_w, c.s.dilation_h,
                                    c.s.dilation_w, CUDNN_CONVOLUTION, c.compute);
  }));
}

TEST(CudnnConvolution, WideScalarsAreReadAsDoubles) {
  reset_device(90);
  Call call;
  call.type = call.compute = CUDNN_DATA_DOUBLE;
  call.describe(), call.fill();
  const float one[2] = {1, 0}, zero[2] = {0, 0};
  ASSERT_EQ(cudnnConvolutionForward(call.handle, one, call.x, call.x_memory, call.w, call.w_memory, call.convolution,
                                    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, zero, call.y, call.y_memory),
            kRight);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_NE(from_device(call.y_memory, DType::f64, call.s.y()), call.expected_y());
}

TEST(CudnnConvolution, RequestedFailuresComeFirst) {
  reset_device(90);
  Call call;
  call.describe(), call.fill();
  fail_call("cudnnConvolutionForward", 1, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(call.forward(), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(call.forward(), kRight);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cudnn
