// NVIDIA's libraries beside the stand-ins, in what works without a GPU: descriptors, attributes, extents, texts. The same
// calls go to both, and every answer must be equal.
#include <cublasLt.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/device_testing.h"
#include "kernels/cuda/software_gpu/libraries/real_library_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

Answers descriptors_of_cublaslt(const Library& library) {
  Answers answers;
  const auto note = [&](auto value) { answers.push_back(static_cast<int64_t>(value)); };
  const auto create = HM_FUNCTION(library, cublasLtMatrixLayoutCreate);
  const auto destroy = HM_FUNCTION(library, cublasLtMatrixLayoutDestroy);
  cublasLtMatrixLayout_t layout = nullptr;
  note(create(nullptr, CUDA_R_32F, 8, 4, 8)), note(destroy(nullptr));
  for (const int64_t ld : {-8, 0, 2, 8}) note(create(&layout, CUDA_R_32F, 8, 4, ld)), note(destroy(layout));
  note(create(&layout, static_cast<cudaDataType>(999), 0, 4, 8));

  cublasLtMatmulDesc_t description = nullptr;
  const auto describe = HM_FUNCTION(library, cublasLtMatmulDescCreate);
  note(describe(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F)), note(describe(&description, CUBLAS_COMPUTE_64F, CUDA_R_32F));
  cublasLtMatmulPreference_t preference = nullptr;
  note(HM_FUNCTION(library, cublasLtMatmulPreferenceCreate)(nullptr));
  note(HM_FUNCTION(library, cublasLtMatmulPreferenceCreate)(&preference));

  // Attributes of every number: size, default, and which sizes may be set.
  const auto attributes = [&](auto* object, int count, auto get, auto set) {
    for (int attribute = 0; attribute < count; ++attribute) {
      size_t size = 0;
      note(get(object, attribute, nullptr, 0, &size)), note(size);
      note(get(object, attribute, nullptr, 0, nullptr));
      for (const size_t bytes : {1, 2, 4, 8, 16}) {
        std::array<uint64_t, 2> value{};
        size_t written = 0;
        const auto status = get(object, attribute, value.data(), bytes, &written);
        note(status), note(value[0]), note(written);
        note(set(object, attribute, nullptr, bytes)), note(set(object, attribute, value.data(), bytes));
        note(get(nullptr, attribute, value.data(), bytes, &written)),
            note(set(nullptr, attribute, value.data(), bytes));
      }
    }
  };
  const auto get_layout = [&](cublasLtMatrixLayout_t object, int attribute, void* into, size_t bytes, size_t* written) {
    return HM_FUNCTION(library, cublasLtMatrixLayoutGetAttribute)(
        object, static_cast<cublasLtMatrixLayoutAttribute_t>(attribute), into, bytes, written);
  };
  const auto set_layout = [&](cublasLtMatrixLayout_t object, int attribute, const void* from, size_t bytes) {
    return HM_FUNCTION(library, cublasLtMatrixLayoutSetAttribute)(
        object, static_cast<cublasLtMatrixLayoutAttribute_t>(attribute), from, bytes);
  };
  const auto get_description = [&](cublasLtMatmulDesc_t object, int attribute, void* into, size_t bytes,
                                   size_t* written) {
    return HM_FUNCTION(library, cublasLtMatmulDescGetAttribute)(
        object, static_cast<cublasLtMatmulDescAttributes_t>(attribute), into, bytes, written);
  };
  const auto set_description = [&](cublasLtMatmulDesc_t object, int attribute, const void* from, size_t bytes) {
    return HM_FUNCTION(library, cublasLtMatmulDescSetAttribute)(
        object, static_cast<cublasLtMatmulDescAttributes_t>(attribute), from, bytes);
  };
  const auto get_preference = [&](cublasLtMatmulPreference_t object, int attribute, void* into, size_t bytes,
                                  size_t* written) {
    return HM_FUNCTION(library, cublasLtMatmulPreferenceGetAttribute)(
        object, static_cast<cublasLtMatmulPreferenceAttributes_t>(attribute), into, bytes, written);
  };
  const auto set_preference = [&](cublasLtMatmulPreference_t object, int attribute, const void* from, size_t bytes) {
    return HM_FUNCTION(library, cublasLtMatmulPreferenceSetAttribute)(
        object, static_cast<cublasLtMatmulPreferenceAttributes_t>(attribute), from, bytes);
  };
  note(create(&layout, CUDA_R_16F, 8, 4, 8));
  attributes(layout, 12, get_layout, set_layout);
  attributes(preference, 20, get_preference, set_preference);
  attributes(description, 16, get_description, set_description);  // 16 is not in the header
  cublasLtMatrixLayoutOpaque_t own;
  const auto initialise = HM_FUNCTION(library, cublasLtMatrixLayoutInit_internal);
  note(initialise(&own, sizeof own, CUDA_R_32F, 8, 4, 8)), note(initialise(&own, 32, CUDA_R_32F, 8, 4, 8));
  note(initialise(nullptr, sizeof own, CUDA_R_32F, 8, 4, 8)), note(get_layout(&own, 2, &own.data[7], 8, nullptr));
  note(HM_FUNCTION(library, cublasLtCreate)(nullptr)), note(HM_FUNCTION(library, cublasLtDestroy)(nullptr));
  cublasLtMatmulAlgo_t none{};
  uint64_t flags = 0;
  note(HM_FUNCTION(library, cublasLtMatmulAlgoCapGetAttribute)(&none, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                                               sizeof flags, nullptr));
  note(HM_FUNCTION(library, cublasLtGetVersion)());
  for (const auto type : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL, static_cast<libraryPropertyType>(9)}) {
    int value = 0;
    note(HM_FUNCTION(library, cublasLtGetProperty)(type, &value)), note(value);
  }
  return answers;
}

Answers descriptors_of_cudnn(const Library& library) {
  Answers answers;
  const auto note = [&](auto value) { answers.push_back(static_cast<int64_t>(value)); };
  cudnnTensorDescriptor_t x = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  const auto set = HM_FUNCTION(library, cudnnSetTensor4dDescriptor);
  const auto set_strides = HM_FUNCTION(library, cudnnSetTensor4dDescriptorEx);
  const auto get = HM_FUNCTION(library, cudnnGetTensor4dDescriptor);
  const auto set_filter = HM_FUNCTION(library, cudnnSetFilter4dDescriptor);
  const auto set_window = HM_FUNCTION(library, cudnnSetConvolution2dDescriptor);
  const auto output = HM_FUNCTION(library, cudnnGetConvolutionNdForwardOutputDim);
  note(HM_FUNCTION(library, cudnnCreateTensorDescriptor)(nullptr));
  note(HM_FUNCTION(library, cudnnCreateTensorDescriptor)(&x));
  note(HM_FUNCTION(library, cudnnCreateFilterDescriptor)(&w));
  note(HM_FUNCTION(library, cudnnCreateConvolutionDescriptor)(&convolution));
  std::array<int, 8> seen{};
  note(output(convolution, x, w, 4, seen.data()));

  constexpr cudnnTensorFormat_t kFormats[] = {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC,
                                              static_cast<cudnnTensorFormat_t>(7)};
  const auto note_image = [&] {
    cudnnDataType_t type{};
    note(get(x, &type, &seen[0], &seen[1], &seen[2], &seen[3], &seen[4], &seen[5], &seen[6], &seen[7])), note(type);
    for (const int value : seen) note(value);
  };
  for (const auto format : kFormats)
    for (int number = 0; number < 24; ++number)
      for (const int extent : {-1, 0, 1, 3, 65536})
        for (int axis = 0; axis < 4; ++axis) {
          const auto type = static_cast<cudnnDataType_t>(number);
          // Large in the batch alone: the real library computes strides that overflow before it refuses.
          std::array<int, 4> e{2, 40000, 5, 6};
          if (extent < 65536 || axis == 0) e[static_cast<size_t>(axis)] = extent;
          const cudnnStatus_t status = set(x, format, type, e[0], e[1], e[2], e[3]);
          note(status), note(set_filter(w, type, format, e[0], e[1], e[2], e[3]));
          if (status == CUDNN_STATUS_SUCCESS) note_image();
        }
  note(set(nullptr, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 4, 5));
  note(set(x, CUDNN_TENSOR_NCHW_VECT_C, CUDNN_DATA_FLOAT, 2, 4, 4, 5));
  for (const int stride : {-60, 0, 1, 60})
    if (note(set_strides(x, CUDNN_DATA_FLOAT, 2, 3, 4, 5, stride, 20, 5, 1)); stride != 0) note_image();

  for (const int pad : {-1, 0, 2})
    for (const int stride : {0, 1, 2})
      for (const int dilation : {0, 1, 3})
        for (const int mode : {0, 1, 5})
          for (int compute = 0; compute < 24; ++compute)
            note(set_window(convolution, pad, 1, stride, 1, dilation, 1, static_cast<cudnnConvolutionMode_t>(mode),
                            static_cast<cudnnDataType_t>(compute)));
  note(set(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 12, 13, 9));
  for (const int groups : {-1, 0, 1, 2, 3, 4})
    for (const int channels : {1, 3, 4, 6, 12})
      for (const int filters : {3, 8, 12})
        for (const int size : {1, 3, 5, 14})
          for (const int pad : {0, 2})
            for (const int stride : {1, 2, 3})
              for (const int dilation : {1, 2}) {
                note(HM_FUNCTION(library, cudnnSetConvolutionGroupCount)(convolution, groups));
                note(set_filter(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, filters, channels, size, 3));
                note(
                    set_window(convolution, pad, 1, stride, 2, dilation, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
                std::array<int, 4> extents{};
                const cudnnStatus_t status = output(convolution, x, w, 4, extents.data());
                note(status);
                for (const int extent : extents) note(status == CUDNN_STATUS_SUCCESS ? extent : 0);
              }
  for (const int count : {0, 3, 5}) note(output(convolution, x, w, count, seen.data()));
  note(output(convolution, nullptr, w, 4, seen.data())), note(output(convolution, x, w, 4, nullptr));
  for (int math = 0; math < 6; ++math) {
    cudnnMathType_t type{};
    note(HM_FUNCTION(library, cudnnSetConvolutionMathType)(convolution, static_cast<cudnnMathType_t>(math)));
    note(HM_FUNCTION(library, cudnnGetConvolutionMathType)(convolution, &type)), note(type);
  }
  note(HM_FUNCTION(library, cudnnDestroyTensorDescriptor)(nullptr));
  note(HM_FUNCTION(library, cudnnDestroyTensorDescriptor)(x));
  note(HM_FUNCTION(library, cudnnCreate)(nullptr)), note(HM_FUNCTION(library, cudnnDestroy)(nullptr));
  note(HM_FUNCTION(library, cudnnSetStream)(nullptr, nullptr));
  size_t bytes = 0;
  note(HM_FUNCTION(library, cudnnGetConvolutionForwardWorkspaceSize)(nullptr, x, w, convolution, x,
                                                                     CUDNN_CONVOLUTION_FWD_ALGO_GEMM, &bytes));
  note(HM_FUNCTION(library, cudnnGetVersion)());
  return answers;
}

TEST(RealLibraries, CublasLtAnswersAlike) {
  const Library real(HALFMARK_CUBLASLT), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUBLASLT;
  reset_device(90);
  EXPECT_EQ(first_difference(descriptors_of_cublaslt(real), descriptors_of_cublaslt(ours)), -1);
  for (int status = 0; status < 20; ++status) {
    const auto code = static_cast<cublasStatus_t>(status);
    EXPECT_STREQ(HM_FUNCTION(real, cublasLtGetStatusName)(code), cublasLtGetStatusName(code));
    EXPECT_STREQ(HM_FUNCTION(real, cublasLtGetStatusString)(code), cublasLtGetStatusString(code));
  }
}

TEST(RealLibraries, CudnnAnswersAlike) {
  const Library real(HALFMARK_CUDNN), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUDNN;
  reset_device(90);
  EXPECT_EQ(first_difference(descriptors_of_cudnn(real), descriptors_of_cudnn(ours)), -1);
  for (const int status : {0, 1001, 2000, 2002, 2003, 2006, 2008, 3000, 3007, 4000, 5000, 5003, 77}) {
    const auto code = static_cast<cudnnStatus_t>(status);
    EXPECT_STREQ(HM_FUNCTION(real, cudnnGetErrorString)(code), cudnnGetErrorString(code));
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
