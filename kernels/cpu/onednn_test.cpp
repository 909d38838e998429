// What the oneDNN rows guarantee besides accuracy (ops_test.cpp): layouts, packed weights, refusals and their reasons.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/ops/reorder_bytes.h"
#include "kernels/tensor/random.h"

#if HALFMARK_ONEDNN
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/onednn/plan.h"

namespace halfmark::kernels {
namespace {

Tensor random_tensor(Device& device, const Shape& shape, DType dtype, uint64_t seed, Layout layout = Layout::plain) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return Tensor::from(device, shape, dtype, values, layout);
}

template <class Op>
const Kernel<Op>& row(const Device& device, std::string_view name) {
  for (const Kernel<Op>& kernel : device.kernels().of<Op>())
    if (kernel.name == name) return kernel;
  throw Error("no such row");
}

constexpr Window kPadded{.pad_h = 1, .pad_w = 1};

void expect_near(const Tensor& a, const Tensor& b, double bound) {
  const std::vector<double> p = a.values(), q = b.values();
  ASSERT_EQ(p.size(), q.size());
  for (size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(p[i], q[i], bound) << "element " << i;
}

TEST(OneDnn, PacksAWeightOnceAndAgainWhenItIsWritten) {
  CpuDevice device;
  const Tensor x = random_tensor(device, {2, 32, 8, 8}, DType::f32, 1, Layout::nhwc);
  Tensor w = random_tensor(device, {32, 32, 3, 3}, DType::f32, 2);
  const auto convolve = [&] {
    Tensor y(device, {2, 32, 8, 8}, DType::f32, Layout::any);
    const Conv2d op{.x = x, .w = w, .out = y, .window = kPadded};
    row<Conv2d>(device, "onednn").run(device, op);
    return y;
  };
  const uint64_t start = onednn_reorders();
  const Tensor first = convolve();
  const uint64_t once = onednn_reorders() - start;
  convolve();
  const uint64_t twice = onednn_reorders() - start - once;
  EXPECT_EQ(once, twice + 1) << "the second run finds the weight packed";

  std::vector<double> doubled = w.values();
  for (double& value : doubled) value *= 2;
  w.set_values(doubled);
  const uint64_t before = onednn_reorders();
  const Tensor third = convolve();
  EXPECT_EQ(onednn_reorders() - before, once);
  const std::vector<double> old = first.values(), now = third.values();
  for (size_t i = 0; i < old.size(); ++i) ASSERT_EQ(now[i], 2 * old[i]);
}

TEST(OneDnn, CountsPackedWeightsAsWorkspaceAndForgetsThemWithTheWeight) {
  CpuDevice device;
  const auto workspace = [&] { return device.memory().live().by_purpose[static_cast<size_t>(Purpose::workspace)]; };
  const Tensor x = random_tensor(device, {2, 32, 8, 8}, DType::f32, 1, Layout::nhwc);
  const auto convolve_once = [&](uint64_t seed) {
    const Tensor w = random_tensor(device, {32, 32, 3, 3}, DType::f32, seed);
    Tensor y(device, {2, 32, 8, 8}, DType::f32, Layout::any);
    run(Conv2d{.x = x, .w = w, .out = y, .window = kPadded});
  };
  convolve_once(2);
  const size_t one = workspace();
  EXPECT_GE(one, 32u * 32 * 9 * 4);
  for (uint64_t seed = 3; seed < 10; ++seed) convolve_once(seed);
  EXPECT_EQ(workspace(), one);
}

TEST(OneDnn, AChainOfItsOwnLayoutsGivesWhatPlainTensorsGive) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CpuDevice device;
    const auto chain = [&](Layout layout) {
      const Shape image{2, 16, 8, 8}, vector{16};
      const Tensor x = random_tensor(device, image, dtype, 1), w = random_tensor(device, {16, 16, 3, 3}, dtype, 2);
      Tensor ones = Tensor::zeros(device, vector, DType::f32), zeros = Tensor::zeros(device, vector, DType::f32);
      ones.fill(1);
      Tensor conv(device, image, dtype, layout), norm(device, image, dtype, layout), y(device, image, dtype, layout);
      Tensor mean(device, vector, DType::f32), variance(device, vector, DType::f32);
      Tensor running_mean = Tensor::zeros(device, vector, DType::f32),
             running_variance = Tensor::zeros(device, vector, DType::f32);
      run(Conv2d{.x = x, .w = w, .out = conv, .window = kPadded, .math = {.multiply = format_of(dtype)}});
      run(BatchNorm{conv, ones, zeros, norm, mean, variance, running_mean, running_variance});
      run(Relu{norm, y});
      const Shape half{2, 16, 4, 4};
      Tensor pooled(device, half, dtype, layout), indices(device, half, DType::u8, layout),
          back(device, image, dtype, layout);
      const Window by_two{.stride_h = 2, .stride_w = 2};
      run(MaxPool2d{.x = y, .out = pooled, .indices = indices, .window = by_two});
      run(MaxPool2dBackward{.dy = pooled, .indices = indices, .dx = back, .window = by_two});
      Tensor gradient(device, image, dtype, layout);
      run(ReluBackward{y, back, gradient});
      return gradient;
    };
    // With different layouts, sums may be added in another order:
    // a few units in the last place of numbers of this size.
    expect_near(chain(Layout::any), chain(Layout::plain), 64 * 4 * format_of(dtype).unit_roundoff());
  }
}

TEST(OneDnn, BatchNormUsesALayoutThatHasFastCode) {
  // The names are those that ONEDNN_VERBOSE=1 prints (oneDNN 2.6.3 and 3.7.2).
  for (const char* slow : {"ref:any", "bnorm_ref:any", "simple:any", "ncsp_bnorm:any", "nspc_bnorm:any"})
    EXPECT_TRUE(onednn::is_reference(slow)) << slow;
  for (const char* fast : {"bnorm_jit:avx2", "jit:avx512_core", "brgconv:avx512_core", "gemm:jit"})
    EXPECT_FALSE(onednn::is_reference(fast)) << fast;
}

TEST(OneDnn, SameInputsGiveSameBits) {
  CpuDevice device;
  const Tensor a = random_tensor(device, {37, 51}, DType::f32, 1), b = random_tensor(device, {51, 29}, DType::f32, 2);
  std::vector<unsigned char> first;
  for (int i = 0; i < 4; ++i) {
    Tensor out(device, {37, 29}, DType::f32);
    run(Matmul{.a = a, .b = b, .out = out});
    if (i == 0) first = out.codes();
    EXPECT_EQ(out.codes(), first);
  }
}

TEST(OneDnn, AReorderIsALineOfTheLog) {
  CpuDevice device;
  const Tensor x = random_tensor(device, {2, 32, 8, 8}, DType::f32, 1),
               w = random_tensor(device, {32, 32, 3, 3}, DType::f32, 2);
  Tensor y(device, {2, 32, 8, 8}, DType::f32, Layout::any);
  const KernelLog log;
  const uint64_t before = onednn_reorders();
  run(Conv2d{.x = x, .w = w, .out = y, .window = kPadded});
  uint64_t logged = 0;
  for (const LoggedKernel& entry : log.entries())
    if (entry.operation == "reorder") logged += entry.calls;
  EXPECT_EQ(logged, onednn_reorders() - before);
}

// All lines of one operation together: a row may widen its operands and run the operation in fp32.
LoggedKernel all_of(const KernelLog& log, std::string_view operation) {
  LoggedKernel all;
  for (const LoggedKernel& entry : log.entries())
    if (entry.operation == operation) all.calls += entry.calls, all.read += entry.read, all.written += entry.written;
  return all;
}

// Three channels become a block of 16, of which 13 are padding: 2x3x4x4 floats are read and 2x16x4x4 written.
TEST(OneDnn, TheBytesOfAReorderAreThoseOfBothLayouts) {
  CpuDevice device;
  const Tensor x = random_tensor(device, {2, 3, 4, 4}, DType::f32, 1);
  Tensor blocks(device, {2, 16, 4, 4}, DType::f32), back(device, x.shape(), DType::f32);
  const onednn::Desc given = onednn::desc_of(x),
                     wanted(onednn::dims_of(x.shape()), onednn::DataType::f32, onednn::Tag::nChw16c);
  const auto reorder_thrice = [&] {
    const RowScope row;
    for (int i = 0; i < 2; ++i) onednn::reorder(given, x.data(), wanted, blocks.data(), DType::f32);
    const PhaseScope phase("backward");
    onednn::reorder(wanted, blocks.data(), given, back.data(), DType::f32);
  };
  const KernelLog log;
  const ReorderBytes bytes;
  reorder_thrice();
  {
    const LogPause pause;
    reorder_thrice();  // of a reference
  }
  ASSERT_EQ(bytes.by_phase().size(), 2u);
  const ReorderBytes::Moved there = bytes.by_phase()[0], again = bytes.by_phase()[1];
  EXPECT_EQ(there.phase, "");
  EXPECT_EQ(there.calls, 2u);
  EXPECT_EQ(there.read, 2u * (2 * 3 * 16 * 4));
  EXPECT_EQ(there.written, 2u * (2 * 16 * 16 * 4));
  EXPECT_EQ(again.phase, "backward");
  EXPECT_EQ(again.read, 2u * 16 * 16 * 4);
  EXPECT_EQ(again.written, 2u * 3 * 16 * 4);
  EXPECT_EQ(all_of(log, "reorder").calls, 3u);
  EXPECT_EQ(all_of(log, "reorder").read, 0u) << "they are no operands of an operation";
}

// Images of 2x32x8x8 and a filter of 32x32x3x3, in floats and in bf16, each operation twice.
TEST(OneDnn, TheBytesOfABackwardPassAreThoseOfItsOperands) {
  CpuDevice device;
  constexpr uint64_t kPixels = 2 * 32 * 8 * 8, kWeights = 32 * 32 * 3 * 3;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const uint64_t size = dtype == DType::f32 ? 4 : 2;
    const Tensor x = random_tensor(device, {2, 32, 8, 8}, dtype, 1),
                 dy = random_tensor(device, {2, 32, 8, 8}, dtype, 3),
                 w = random_tensor(device, {32, 32, 3, 3}, dtype, 2);
    Tensor dx(device, {2, 32, 8, 8}, dtype, Layout::any), dw(device, {32, 32, 3, 3}, dtype, Layout::any),
        through(device, {2, 32, 8, 8}, dtype, Layout::any);
    const KernelLog log;
    const ReorderBytes bytes;
    for (int i = 0; i < 2; ++i) {
      run(Conv2dBackwardData{.dy = dy, .w = w, .dx = dx, .window = kPadded});
      run(Conv2dBackwardWeights{.x = x, .dy = dy, .dw = dw, .window = kPadded});
      run(ReluBackward{x, dy, through});
    }
    const auto expect = [&](std::string_view operation, uint64_t read, uint64_t written) {
      const LoggedKernel entry = all_of(log, operation);
      EXPECT_EQ(entry.read, 2 * size * read) << operation;
      EXPECT_EQ(entry.written, 2 * size * written) << operation;
    };
    expect(Conv2dBackwardData::name, kPixels + kWeights, kPixels);
    expect(Conv2dBackwardWeights::name, 2 * kPixels, kWeights);
    expect(ReluBackward::name, 2 * kPixels, kPixels);
    // 32 channels fill their blocks, so that a reorder reads as much as it writes: images or filters as a whole.
    for (const ReorderBytes::Moved& moved : bytes.by_phase()) {
      EXPECT_EQ(moved.calls, all_of(log, "reorder").calls);
      EXPECT_EQ(moved.read, moved.written);
      EXPECT_GE(moved.read, moved.calls * size * kPixels);
      EXPECT_LE(moved.read, moved.calls * 4 * kWeights);
    }
  }
}

TEST(OneDnn, RefusesTf32BecauseItIgnoresIt) {
  CpuDevice device;
  const Tensor a = random_tensor(device, {8, 8}, DType::f32, 1);
  Tensor out(device, {8, 8}, DType::f32);
  const Matmul op{.a = a, .b = a, .out = out, .math = {.multiply = kTf32}};
  const Refusal refusal = row<Matmul>(device, "onednn").refuses(device, op);
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->find("ignores"), std::string::npos);
  EXPECT_EQ(chosen(op).name, "upcast");
  EXPECT_EQ(chosen(op).speed, Speed::emulated);
}

TEST(OneDnn, SaysWhichOfItsKernelsRuns) {
  CpuDevice device;
  const Tensor a = random_tensor(device, {8, 8}, DType::f32, 1);
  Tensor out(device, {8, 8}, DType::f32);
  const Matmul op{.a = a, .b = a, .out = out};
  run(op);
  EXPECT_FALSE(onednn_implementation(op).empty());
}

// The output's root mean square error relative to that of exact batch norm, for channels with this mean and variance 1.
double error_of_batch_norm(const char* row_name, double mean) {
  CpuDevice device;
  const Shape shape{16, 8, 28, 28}, vector{shape[1]};
  Tensor x = random_tensor(device, shape, DType::f32, 1);
  std::vector<double> values = x.values();
  for (double& value : values) value = static_cast<double>(static_cast<float>(value + mean));
  x.set_values(values);
  Tensor ones = Tensor::zeros(device, vector, DType::f32), zeros = Tensor::zeros(device, vector, DType::f32);
  ones.fill(1);
  Tensor out(device, shape, DType::f32), means(device, vector, DType::f32), variances(device, vector, DType::f32);
  Tensor running_mean = Tensor::zeros(device, vector, DType::f32),
         running_variance = Tensor::zeros(device, vector, DType::f32);
  const BatchNorm op{x, ones, zeros, out, means, variances, running_mean, running_variance};
  row<BatchNorm>(device, row_name).run(device, op);
  const std::vector<double> found = out.values();
  const auto pixels = static_cast<size_t>(shape[2] * shape[3]), channels = static_cast<size_t>(shape[1]);
  const auto count = static_cast<double>(found.size() / channels);
  std::vector<double> exact_mean(channels), exact_variance(channels);
  for (size_t i = 0; i < values.size(); ++i) exact_mean[i / pixels % channels] += values[i] / count;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = values[i] - exact_mean[i / pixels % channels];
    exact_variance[i / pixels % channels] += difference * difference / count;
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = i / pixels % channels;
    const double exact = (values[i] - exact_mean[c]) / std::sqrt(exact_variance[c] + op.epsilon);
    error += (found[i] - exact) * (found[i] - exact), norm += exact * exact;
  }
  return std::sqrt(error / norm);
}

TEST(OneDnn, BatchNormLosesDigitsFarFromZeroAndTheHostRowDoesNot) {
  constexpr double kMean = 100, kCount = 16 * 28 * 28;
  const double u = kFp32.unit_roundoff();
  // The mean is stored in fp32, and so is the difference from it; neither error exceeds u * 100. The variance is 1.
  EXPECT_LE(error_of_batch_norm("host", kMean), 2 * u * kMean);
  // A sum of n values in fp32 in any order has an error of at most n u times the sum of magnitudes.
  const double library = error_of_batch_norm("onednn", kMean);
  EXPECT_LE(library, kCount * u * kMean + 2 * u * kMean);
  // What kernels/cpu/README.md says. If a library is better than this, its table has to be measured again.
  EXPECT_GE(library, 4 * error_of_batch_norm("host", kMean));
}

TEST(OneDnn, LosesNoNaNAndNoInfinityInReluAndMaxPool) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CpuDevice device;
    std::vector<double> values(16 * 16, 1.0);
    values[0] = kNan;                                            // one NaN in a window
    values[2] = values[3] = values[6] = values[7] = -kInfinity;  // a window of only NaN
    const Tensor x = Tensor::from(device, {1, 16, 4, 4}, dtype, values, Layout::nhwc);
    Tensor y(device, x.shape(), dtype, Layout::any), pooled(device, {1, 16, 2, 2}, dtype, Layout::any), indices;
    run(Relu{x, y});
    EXPECT_TRUE(std::isnan(y.values()[0]));
    EXPECT_EQ(y.values()[2], 0);
    run(MaxPool2d{.x = x, .out = pooled, .indices = indices, .window = {.stride_h = 2, .stride_w = 2}});
    EXPECT_TRUE(std::isnan(pooled.values()[0]));
    EXPECT_EQ(pooled.values()[1], -kInfinity);
    EXPECT_EQ(pooled.values()[2], 1);
  }
}

}  // namespace
}  // namespace halfmark::kernels
#endif
