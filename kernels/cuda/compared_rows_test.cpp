// Rows that use cuDNN only if it agrees with halfmark's own: norms, pooling, and convolutions with bias and ReLU, on a cuDNN
// that computes otherwise.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"

namespace halfmark::kernels {
namespace {

class ComparedRows : public LibraryRows {
 protected:
  // Why the row refuses; "takes it" if it does not.
  template <class Op>
  std::string answer(const Op& op) {
    for (const Kernel<Op>& row : gpu().kernels().of<Op>())
      if (row.name == "cudnn") return row.refuses(gpu(), op).value_or("takes it");
    return "no such row";
  }
  bool has_batch_norm() { return architecture() != "sm_75"; }

  // The trials are kept by shape, so each test has widths, channels and heights of its own.
  std::string layer_norm(int64_t width, DType dtype = DType::f32, bool has_scale = true, bool centred = true) {
    const DType wide = dtype == DType::f64 ? dtype : DType::f32;
    const Tensor none, x = Tensor::zeros(gpu(), {4, width}, dtype),
                       scale = has_scale ? Tensor::zeros(gpu(), {width}, dtype) : none;
    Tensor out(gpu(), x.shape(), dtype), mean = centred ? Tensor(gpu(), {4}, wide) : none, inverse(gpu(), {4}, wide);
    return answer(NormalizeRows{.x = x,
                                .scale = scale,
                                .shift = none,
                                .out = out,
                                .mean = mean,
                                .inverse = inverse,
                                .width = width,
                                .centred = centred});
  }
  std::string batch_norm(int64_t channels, int64_t images = 4, const Format* accumulate = nullptr) {
    const Shape c{channels};
    const Tensor x = Tensor::zeros(gpu(), {images, channels, 1, 1}, DType::f32),
                 scale = Tensor::zeros(gpu(), c, DType::f32);
    Tensor out(gpu(), x.shape(), DType::f32), mean(gpu(), c, DType::f32), variance(gpu(), c, DType::f32),
        running_mean = Tensor::zeros(gpu(), c, DType::f32), running_variance = Tensor::zeros(gpu(), c, DType::f32);
    return answer(BatchNorm{.x = x,
                            .scale = scale,
                            .shift = scale,
                            .out = out,
                            .mean = mean,
                            .variance = variance,
                            .running_mean = running_mean,
                            .running_variance = running_variance,
                            .accumulate = accumulate});
  }
  std::string max_pool(int64_t height, int kernel = 2, bool has_indices = true) {
    const Shape result{2, 8, height - kernel + 1, 20 - kernel + 1};
    const Tensor x = Tensor::zeros(gpu(), {2, 8, height, 20}, DType::f16, Layout::nhwc);
    Tensor out(gpu(), result, DType::f16, Layout::nhwc),
        indices = has_indices ? Tensor(gpu(), result, DType::u8, Layout::nhwc) : Tensor();
    return answer(
        MaxPool2d{.x = x, .out = out, .indices = indices, .kernel_h = kernel, .kernel_w = kernel, .window = {}});
  }

  // Of f16 with a filter of 3x3; why the row refuses, or what it chose.
  std::string fused_convolution(int64_t height, bool has_bias = true, Layout layout = Layout::nhwc,
                                DType of_bias = DType::f16) {
    const Tensor none, x = Tensor::zeros(gpu(), {2, 8, height, 9}, DType::f16, layout),
                       w = Tensor::zeros(gpu(), {16, 8, 3, 3}, DType::f16, layout),
                       bias = has_bias ? Tensor::zeros(gpu(), {16}, of_bias) : none;
    Tensor out(gpu(), {2, 16, height - 2, 7}, DType::f16, layout);
    const FusedConv2d op{.x = x, .w = w, .bias = bias, .out = out};
    const std::string said = answer(op);
    return said == "takes it" ? gpu().kernels().of<FusedConv2d>().front().choice(gpu(), op) : said;
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ComparedRows, TakeWhatCudnnHasAndSayWhyNot) {
  EXPECT_EQ(layer_norm(21), "takes it");
  EXPECT_EQ(layer_norm(21, DType::f16, true, false), "takes it");
  EXPECT_EQ(layer_norm(21, DType::f64), "takes f32, f16, bf16, not f64");
  EXPECT_EQ(layer_norm(21, DType::f32, false), "needs a scale");
  EXPECT_EQ(max_pool(21), "takes it");
  EXPECT_EQ(max_pool(21, 12), "keeps places up to 127 in a window");
  EXPECT_EQ(max_pool(21, 12, false), "takes it");
  if (!has_batch_norm()) {
    EXPECT_EQ(batch_norm(24), "no such row");
    return;
  }
  EXPECT_EQ(batch_norm(24), "takes it");
  EXPECT_EQ(batch_norm(25), "has no engine for this");
  EXPECT_EQ(batch_norm(24, 1), "needs two values of a channel");
  EXPECT_EQ(batch_norm(24, 4, &kFp16), "its sums are in fp32");
}

TEST_F(ComparedRows, RefuseACudnnThatComputesOtherwise) {
  {
    const Planted planted("norms-vary");
    const std::string said = layer_norm(31);
    EXPECT_TRUE(has(said, "has no engine that passes its trial; engine 11 gives other bits each time")) << said;
  }
  {
    const Planted planted("last-maximum-has-the-index");
    const std::string said = max_pool(31);
    EXPECT_TRUE(has(said, "engine 12 gives another index than the row cuda")) << said;
    EXPECT_EQ(max_pool(31, 2, false), "takes it");
  }
  if (!has_batch_norm()) return;
  const Planted planted("running-variance-is-biased");
  const std::string said = batch_norm(32);
  EXPECT_TRUE(has(said, "engine 11 gives another variance than the row cuda")) << said;
}

// The difference is one part of the values of a channel, here below the bounds of the other results.
TEST_F(ComparedRows, RefuseABiasedVarianceOfManyValues) {
  if (!has_batch_norm()) GTEST_SKIP() << "without batch norm";
  EXPECT_EQ(batch_norm(8, 150'001), "takes it");
  const Planted planted("running-variance-is-biased");
  for (const int64_t images : {150'002, 150'003}) {
    const std::string said = batch_norm(8, images);
    EXPECT_TRUE(has(said, "engine 11 gives another variance than the row cuda")) << images << ": " << said;
  }
}

TEST_F(ComparedRows, TakeAConvolutionWithBiasAndReluThatIsRoundedOnce) {
  EXPECT_TRUE(has(fused_convolution(21), "engine 16 (tensor cores); the library's number 2 of"));
  EXPECT_TRUE(has(fused_convolution(21, true, Layout::plain), "engine 16 (tensor cores)"));
  EXPECT_TRUE(has(fused_convolution(21, false), "engine 16 (tensor cores)"));
  EXPECT_EQ(fused_convolution(21, false, Layout::plain), "has no engine for this");
  EXPECT_EQ(fused_convolution(21, true, Layout::nhwc, DType::f32), "takes image, filter, bias and result of one dtype");
  for (const char* words : {"fusion-rounds-sums", "attention-loses-nan"}) {
    const Planted planted(words);
    const std::string said = fused_convolution(30 + static_cast<int64_t>(std::string(words).size()));
    EXPECT_TRUE(has(said, "engine 17; the library's number 3 of")) << words << ": " << said;
    EXPECT_TRUE(has(said, "; engine 16 gives ")) << words << ": " << said;
  }
}

// A parameter may begin anywhere in a larger one. Which row runs is decided once for a shape.
TEST_F(ComparedRows, OperandsOfAConvolutionMayBeginAnywhere) {
  const Kernel<FusedConv2d>& row = gpu().kernels().of<FusedConv2d>().front();
  ASSERT_EQ(row.name, "cudnn");
  std::vector<double> values(32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const Tensor all = Tensor::from(gpu(), {32}, DType::f16, values), w = Tensor::zeros(gpu(), {3, 1, 1, 1}, DType::f16),
               images = Tensor::zeros(gpu(), {4, 1, 3, 1}, DType::f16);
  Tensor results(gpu(), {4, 3, 3, 1}, DType::f16);
  for (const int64_t first : {0, 1, 3}) {
    const Tensor bias = all.slice(first, 3), x = images.slice(first == 3 ? 1 : first, 1);
    Tensor out = results.slice(first, 1);
    run_with(row, FusedConv2d{.x = x, .w = w, .bias = bias, .out = out});
    for (size_t i = 0; i < 9; ++i)
      EXPECT_EQ(out.values()[i], static_cast<double>(first) + static_cast<double>(i / 3)) << first;
  }
}

// The graphs promise where operands begin.
TEST_F(ComparedRows, AnOperandThatDoesNotBeginAtSixteenBytesIsAnError) {
  const Tensor none, all = Tensor::zeros(gpu(), {9, 6}, DType::f32), x = all.slice(1, 8),
                     scale = Tensor::zeros(gpu(), {6}, DType::f32);
  Tensor out(gpu(), x.shape(), DType::f32), inverse(gpu(), {8}, DType::f32), no_mean;
  const NormalizeRows op{.x = x,
                         .scale = scale,
                         .shift = none,
                         .out = out,
                         .mean = no_mean,
                         .inverse = inverse,
                         .width = 6,
                         .centred = false};
  for (const Kernel<NormalizeRows>& row : gpu().kernels().of<NormalizeRows>())
    if (row.name == "cudnn") {
      EXPECT_THROW(run_with(row, op), Error);
    }
}

TEST_F(ComparedRows, ACallThatFailsIsTheReasonOfARefusal) {
  {
    const Planted planted("cudnnBackendExecute");
    const std::string said = layer_norm(41);
    EXPECT_TRUE(has(said, "failed when it was tried: cudnnBackendExecute")) << said;
  }
  const Planted planted("cudnnBackendFinalize");
  EXPECT_TRUE(has(max_pool(41), "failed: cudnnBackendFinalize"));
  EXPECT_TRUE(has(fused_convolution(41), "failed: cudnnBackendFinalize"));
}

}  // namespace
}  // namespace halfmark::kernels
