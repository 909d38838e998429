// What can be tested of the plugin without a GPU: it loads, its stamp, the absences it reports, and that the libraries
// it was linked with can create their descriptors.
#include "kernels/plugin.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/ops/ops.h"
#include "kernels/plugin_file.h"

namespace halfmark::kernels {
namespace {

const Plugin& plugin() {
  static const LoadedPlugin loaded = find_plugin();
  if (!loaded.plugin) throw std::runtime_error(loaded.absent);
  return *loaded.plugin;
}

// A function of a library that the plugin depends on: the tests themselves link none of them.
template <class Function>
Function* library_function(const char* name) {
  static void* handle = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}
#define HM_LIBRARY(function) library_function<decltype(function)>(#function)

TEST(CudaPlugin, LoadsAndIsOfThisBuild) {
  const LoadedPlugin loaded = find_plugin();
  ASSERT_TRUE(loaded.plugin) << loaded.absent;
  EXPECT_STREQ(loaded.plugin->stamp, HALFMARK_STAMP);
}

TEST(CudaPlugin, ShowsItsEntryAndNothingElseOfOurs) {
  EXPECT_TRUE(library_function<const Plugin*()>(kPluginEntry));
  EXPECT_FALSE(library_function<void()>("_ZN8halfmark7kernels4cuda10CudaDevice8allocateEm"));
}

TEST(CudaPlugin, KnowsTheVersionsOfItsLibrariesWithoutAGpu) {
  const auto versions = plugin().versions();
  const auto version_of = [&](const std::string& name) {
    const auto found = std::find_if(versions.begin(), versions.end(), [&](const auto& v) { return v.first == name; });
    return found == versions.end() ? std::string() : found->second;
  };
  EXPECT_EQ(version_of("cudnn").substr(0, 2), std::to_string(CUDNN_MAJOR) + ".");
  EXPECT_EQ(version_of("cublasLt").substr(0, version_of("cublasLt").find('.')), std::to_string(CUBLAS_VER_MAJOR));
  EXPECT_EQ(version_of("cuda runtime"),
            std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10));
  EXPECT_FALSE(version_of("nvidia driver").empty());
}

TEST(CudaPlugin, ListsDevicesOrSaysInOneLineWhyThereIsNone) {
  const std::vector<DeviceRow> rows = plugin().list();
  ASSERT_FALSE(rows.empty());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, "cuda:" + std::to_string(i));
    EXPECT_FALSE(rows[i].about.empty());
    EXPECT_EQ(rows[i].absent.find('\n'), std::string::npos) << rows[i].absent;
    RecordProperty("absent", rows[i].absent);
  }
}

TEST(CudaPlugin, CublasLtMakesItsDescriptors) {
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(HM_LIBRARY(cublasLtMatmulDescCreate)(&desc, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  EXPECT_EQ(
      HM_LIBRARY(cublasLtMatmulDescSetAttribute)(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(HM_LIBRARY(cublasLtMatmulDescDestroy)(desc), CUBLAS_STATUS_SUCCESS);
  for (const cudaDataType_t type : {CUDA_R_64F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF}) {
    cublasLtMatrixLayout_t layout = nullptr;
    ASSERT_EQ(HM_LIBRARY(cublasLtMatrixLayoutCreate)(&layout, type, 64, 32, 64), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(HM_LIBRARY(cublasLtMatrixLayoutDestroy)(layout), CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(HM_LIBRARY(cublasLtMatmulPreferenceCreate)(&preference), CUBLAS_STATUS_SUCCESS);
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  EXPECT_EQ(HM_LIBRARY(cublasLtMatmulPreferenceSetAttribute)(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                             &reductions, sizeof reductions),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(HM_LIBRARY(cublasLtMatmulPreferenceDestroy)(preference), CUBLAS_STATUS_SUCCESS);
}

TEST(CudaPlugin, CudnnMakesItsDescriptorsAndGivesTheConvolutionsResultShape) {
  cudnnTensorDescriptor_t x = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  ASSERT_EQ(HM_LIBRARY(cudnnCreateTensorDescriptor)(&x), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(HM_LIBRARY(cudnnCreateFilterDescriptor)(&w), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(HM_LIBRARY(cudnnCreateConvolutionDescriptor)(&conv), CUDNN_STATUS_SUCCESS);
  for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC})
    for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
      EXPECT_EQ(HM_LIBRARY(cudnnSetTensor4dDescriptor)(x, format, type, 2, 8, 9, 11), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(HM_LIBRARY(cudnnSetFilter4dDescriptor)(w, type, format, 16, 4, 3, 5), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(HM_LIBRARY(cudnnSetConvolution2dDescriptor)(conv, 1, 2, 2, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                                            CUDNN_DATA_FLOAT),
                CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(HM_LIBRARY(cudnnSetConvolutionGroupCount)(conv, 2), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(HM_LIBRARY(cudnnSetConvolutionMathType)(conv, CUDNN_FMA_MATH), CUDNN_STATUS_SUCCESS);
      cudnnMathType_t math = CUDNN_DEFAULT_MATH;
      EXPECT_EQ(HM_LIBRARY(cudnnGetConvolutionMathType)(conv, &math), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(math, CUDNN_FMA_MATH);
      // Pads and strides in the order height, width: the same numbers as window_extent gives.
      int n = 0, c = 0, height = 0, width = 0;
      EXPECT_EQ(HM_LIBRARY(cudnnGetConvolution2dForwardOutputDim)(conv, x, w, &n, &c, &height, &width),
                CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(n, 2);
      EXPECT_EQ(c, 16);
      EXPECT_EQ(height, window_extent(9, 3, 2, 1, 1));
      EXPECT_EQ(width, window_extent(11, 5, 1, 2, 1));
    }
  HM_LIBRARY(cudnnDestroyConvolutionDescriptor)(conv);
  HM_LIBRARY(cudnnDestroyFilterDescriptor)(w);
  HM_LIBRARY(cudnnDestroyTensorDescriptor)(x);
}

}  // namespace
}  // namespace halfmark::kernels
