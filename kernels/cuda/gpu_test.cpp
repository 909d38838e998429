// What GPU rows guarantee: FP32 is FP32, TF32 is TF32, sums are as wide as requested, results are bit-reproducible,
// memory is counted, and times come from the device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/number/error.h"
#include "kernels/ops/operation_times.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

std::vector<double> uniform(int64_t count, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.uniform(i);
  return values;
}

std::vector<double> identity(int64_t n) {
  std::vector<double> values(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i * n + i)] = 1;
  return values;
}

// 1024.5 needs 11 fraction bits: FP32 keeps it, TF32 makes it 1024 or 1025.
constexpr double kProbe = 1024.5;
constexpr Math kTf32Math{.multiply = kTf32};

TEST_F(Gpu, MatmulInFp32IsNotTf32) {
  for (const int64_t n : {16, 48, 256, 1024}) {
    const Tensor a = Tensor::from(gpu(), {n, n}, DType::f32, std::vector<double>(static_cast<size_t>(n * n), kProbe));
    const Tensor b = Tensor::from(gpu(), {n, n}, DType::f32, identity(n));
    Tensor out(gpu(), {n, n}, DType::f32);
    run(Matmul{.a = a, .b = b, .out = out});
    for (const double value : out.values()) ASSERT_EQ(value, kProbe) << "n = " << n;
  }
}

TEST_F(Gpu, MatmulInTf32IsTf32) {
  if (architecture() < 80) GTEST_SKIP() << "TF32 needs compute capability 8.0";
  for (const int64_t n : {64, 256, 1024}) {
    const Tensor a = Tensor::from(gpu(), {n, n}, DType::f32, std::vector<double>(static_cast<size_t>(n * n), kProbe));
    const Tensor b = Tensor::from(gpu(), {n, n}, DType::f32, identity(n));
    Tensor out(gpu(), {n, n}, DType::f32);
    run(Matmul{.a = a, .b = b, .out = out, .math = kTf32Math});
    for (const double value : out.values()) ASSERT_TRUE(value == 1024 || value == 1025) << value << " for n = " << n;
  }
}

// A convolution that copies its input: 1x1 with the identity, 3x3 with it in the middle.
std::vector<double> copying_filter(int64_t channels, int64_t extent) {
  std::vector<double> values(static_cast<size_t>(channels * channels * extent * extent));
  for (int64_t c = 0; c < channels; ++c)
    values[static_cast<size_t>((c * channels + c) * extent * extent + extent * extent / 2)] = 1;
  return values;
}

TEST_F(Gpu, ConvolutionInFp32IsNotTf32AndInTf32IsTf32) {
  for (const Layout layout : {Layout::plain, Layout::nhwc})
    for (const int64_t extent : {1, 3})
      for (const bool tf32 : {false, true}) {
        if (tf32 && architecture() < 80) continue;
        const Shape shape{4, 32, 16, 16}, filter{32, 32, extent, extent};
        const Tensor x = Tensor::from(gpu(), shape, DType::f32,
                                      std::vector<double>(static_cast<size_t>(shape.elements()), kProbe), layout);
        const Tensor w = Tensor::from(gpu(), filter, DType::f32, copying_filter(32, extent), layout);
        Tensor out(gpu(), shape, DType::f32, Layout::any), dx(gpu(), shape, DType::f32, Layout::any);
        const int pad = static_cast<int>(extent / 2);
        const Window window{.pad_h = pad, .pad_w = pad};
        const Conv2d forward{.x = x, .w = w, .out = out, .window = window, .math = tf32 ? kTf32Math : Math{}};
        const Conv2dBackwardData backward{
            .dy = x, .w = w, .dx = dx, .window = window, .math = tf32 ? kTf32Math : Math{}};
        try {
          run(forward), run(backward);
        } catch (const Unsupported& error) {
          // cuDNN may have no such algorithm for TF32. FP32 always has one.
          ASSERT_TRUE(tf32) << error.what();
          std::printf("no TF32 convolution: %s\n", error.what());
          continue;
        }
        for (const Tensor& result : {out, dx})
          for (const double value : result.values()) {
            const bool right = tf32 ? value == 1024 || value == 1025 : value == kProbe;
            ASSERT_TRUE(right) << value << (tf32 ? " tf32 " : " fp32 ") << name_of(layout) << " " << extent;
          }
      }
}

TEST_F(Gpu, Fp16SumsAreNarrowerThanFp32Sums) {
  constexpr int64_t kRows = 64, kDepth = 4096;
  const Tensor a = Tensor::from(gpu(), {kRows, kDepth}, DType::f16, uniform(kRows * kDepth, 1));
  const Tensor b = Tensor::from(gpu(), {kDepth, kRows}, DType::f16, uniform(kRows * kDepth, 2));
  Tensor wide(gpu(), {kRows, kRows}, DType::f16), narrow(gpu(), {kRows, kRows}, DType::f16);
  run(Matmul{.a = a, .b = b, .out = wide});
  run(Matmul{.a = a, .b = b, .out = narrow, .math = {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}});
  const std::vector<double> av = a.values(), bv = b.values(), wv = wide.values(), nv = narrow.values();
  double wide_error = 0, narrow_error = 0;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kRows; ++j) {
      double exact = 0;
      for (int64_t k = 0; k < kDepth; ++k)
        exact += av[static_cast<size_t>(i * kDepth + k)] * bv[static_cast<size_t>(k * kRows + j)];
      const auto at = static_cast<size_t>(i * kRows + j);
      EXPECT_LE(std::fabs(wv[at] - exact), 2 * kFp16.unit_roundoff() * exact);
      wide_error += std::fabs(wv[at] - exact), narrow_error += std::fabs(nv[at] - exact);
    }
  EXPECT_GT(narrow_error, 2 * wide_error);
}

TEST_F(Gpu, OneBlockOfAMatmulIsTheSimulatorsBitForBit) {
  const char* same = architecture() == 90 ? "sim:hopper" : architecture() == 80 ? "sim:ampere" : nullptr;
  if (!same) GTEST_SKIP() << "no simulated device for sm_" << architecture();
  const auto rows = known_devices();
  if (std::none_of(rows.begin(), rows.end(), [&](const DeviceRow& row) { return row.name == same; }))
    GTEST_SKIP() << "no " << same;
  const std::shared_ptr<Device> sim = open_device(same);
  constexpr int64_t kSide = 128;
  const int64_t depth = architecture() == 90 ? 16 : 8;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // Magnitudes far apart, so that what the adder truncates shows.
    std::vector<double> av = uniform(kSide * depth, 3), bv = uniform(kSide * depth, 4);
    for (size_t i = 0; i < av.size(); ++i) av[i] = std::ldexp(av[i] - 0.5, static_cast<int>(i % 13) - 6), bv[i] -= 0.5;
    const auto codes_on = [&](Device& device) {
      const Tensor a = Tensor::from(device, {kSide, depth}, dtype, av),
                   b = Tensor::from(device, {depth, kSide}, dtype, bv);
      Tensor out(device, {kSide, kSide}, DType::f32);
      run(Matmul{.a = a, .b = b, .out = out});
      return out.codes();
    };
    EXPECT_EQ(codes_on(gpu()), codes_on(*sim)) << name_of(dtype);
  }
}

TEST_F(Gpu, TheSameWorkGivesTheSameBits) {
  // Fewer images on a software GPU, which is slow.
  const int64_t images = gpu().numerics().empty() ? 8 : 1, channels = gpu().numerics().empty() ? 32 : 4;
  const Shape shape{images, channels, 28, 28}, filter{2 * channels, channels, 3, 3};
  const Shape result{images, 2 * channels, 28, 28};
  const Tensor x = Tensor::from(gpu(), shape, DType::f16, uniform(shape.elements(), 5));
  const Tensor dy = Tensor::from(gpu(), result, DType::f16, uniform(result.elements(), 6));
  std::vector<unsigned char> first_weights, first_bias;
  for (int i = 0; i < 3; ++i) {
    Tensor dw(gpu(), filter, DType::f16), dbias(gpu(), {2 * channels}, DType::f32);
    run(Conv2dBackwardWeights{.x = x, .dy = dy, .dw = dw, .window = {.pad_h = 1, .pad_w = 1}});
    run(BiasGradient{.dy = dy, .dbias = dbias});
    if (i == 0) first_weights = dw.codes(), first_bias = dbias.codes();
    EXPECT_EQ(dw.codes(), first_weights);
    EXPECT_EQ(dbias.codes(), first_bias);
  }
}

TEST_F(Gpu, RefusalsNameWhatCannotBeAskedOfTheLibrary) {
  const Tensor a = Tensor::zeros(gpu(), {32, 32}, DType::f16);
  Tensor out(gpu(), {32, 32}, DType::f16);
  try {
    run(Matmul{.a = a, .b = a, .out = out, .math = {.partial = kFp16, .split_k = 4}});
    FAIL() << "no row should support a given split-K";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("split"), std::string::npos) << error.what();
  }
}

TEST_F(Gpu, AnUnknownLabelMakesTheLossNaN) {
  const Tensor logits = Tensor::zeros(gpu(), {2, 4}, DType::f32);
  const Tensor labels = Tensor::from(gpu(), {2}, DType::i32, std::vector<double>{1, 7});
  Tensor loss(gpu(), {1}, DType::f32), log_probabilities(gpu(), {2, 4}, DType::f32);
  run(SoftmaxCrossEntropy{.logits = logits, .labels = labels, .loss = loss, .log_probabilities = log_probabilities});
  EXPECT_TRUE(std::isnan(loss.values()[0]));
  EXPECT_NEAR(log_probabilities.values()[0], std::log(0.25), 1e-6);
}

TEST_F(Gpu, RecordedWorkRunsWhenItIsRunAndOnlyThen) {
  Tensor sum = Tensor::zeros(gpu(), {1000}, DType::f32);
  const Tensor one = Tensor::from(gpu(), {1000}, DType::f32, std::vector<double>(1000, 1.0));
  run(Add{.a = sum, .b = one, .out = sum});
  const auto recorded = gpu().record([&] { run(Add{.a = sum, .b = one, .out = sum}); });
  EXPECT_EQ(sum.values(), std::vector<double>(1000, 1.0));
  for (int i = 0; i < 3; ++i) recorded->run();
  EXPECT_EQ(sum.values(), std::vector<double>(1000, 4.0));
}

TEST_F(Gpu, RecordedWorkCountsItsKernelsCopiesAndFills) {
  Tensor sum = Tensor::zeros(gpu(), {1000}, DType::f32);
  const Tensor one = Tensor::from(gpu(), {1000}, DType::f32, std::vector<double>(1000, 1.0));
  const auto recorded = gpu().record([&] {
    for (int i = 0; i < 3; ++i) run(Add{.a = sum, .b = one, .out = sum});
    const Tensor zeros = Tensor::zeros(gpu(), {1000}, DType::f32), more = Tensor::zeros(gpu(), {500}, DType::f32);
    const Tensor from_host = Tensor::from(gpu(), {1000}, DType::f32, std::vector<double>(1000, 2.0));
  });
  const auto outer = gpu().record([&] { recorded->run(), run(Add{.a = sum, .b = one, .out = sum}), recorded->run(); });
  EXPECT_EQ(outer->counts().kernels, 7) << "with those of the graphs in it";
  EXPECT_EQ(outer->counts().fills, 4);
  EXPECT_EQ(recorded->counts().kernels, 3);
  EXPECT_EQ(recorded->counts().fills, 2);
  EXPECT_EQ(recorded->counts().copies, 1);
}

TEST_F(Gpu, AllGradientsAreUnscaledInOneKernelForEachArithmetic) {
  const auto halves = [&](int64_t n, DType dtype) {
    return Tensor::from(gpu(), {n}, dtype, std::vector<double>(static_cast<size_t>(n), 0.5));
  };
  std::vector<Tensor> gradients{halves(5000, DType::f32), halves(3, DType::f16), halves(7, DType::f64),
                                halves(4096, DType::bf16)};
  Tensor found = Tensor::zeros(gpu(), {1}, DType::f32);
  const auto recorded =
      gpu().record([&] { run(Unscale{.gradients = gradients, .found_inf = found, .inverse_scale = 2}); });
  EXPECT_EQ(recorded->counts().kernels, 2) << "one in fp32, one in fp64";
  recorded->run();
  for (const Tensor& gradient : gradients)
    EXPECT_EQ(gradient.values(), std::vector<double>(static_cast<size_t>(gradient.elements()), 1.0));
  EXPECT_EQ(found.values()[0], 0);
}

TEST_F(Gpu, NothingElseUsesTheMemoryOfRecordedWork) {
  constexpr int64_t kElements = 5000;
  const auto filled = [&](double value) {
    return Tensor::from(gpu(), {kElements}, DType::f32, std::vector<double>(kElements, value));
  };
  // Blocks that recorded work must not take.
  { const std::vector<Tensor> free = {filled(9), filled(9), filled(9), filled(9), filled(9), filled(9)}; }
  const Tensor x = filled(1);
  Tensor out = filled(0), before = filled(5);  // `before` is released in the recorded work
  const void* const place_before = before.data();
  Tensor kept;
  const void* place_within = nullptr;
  const auto work = [&] {
    before = {};
    Tensor within(gpu(), {kElements}, DType::f32);
    place_within = within.data();
    kept = Tensor(gpu(), {kElements}, DType::f32);
    run(Add{.a = x, .b = x, .out = within});
    run(Add{.a = within, .b = x, .out = kept});
    run(Add{.a = kept, .b = x, .out = out});
  };
  auto recorded = gpu().record(work);
  const void* const place_kept = kept.data();
  kept = {};
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(filled(7));
  recorded->run();
  EXPECT_EQ(out.values(), std::vector<double>(kElements, 4.0));
  for (const Tensor& other : others) {
    EXPECT_EQ(other.values(), std::vector<double>(kElements, 7.0));
    for (const void* place : {place_before, place_within, place_kept}) EXPECT_NE(other.data(), place);
  }
  recorded.reset();
  others.clear();
  std::vector<const void*> places;
  for (int i = 0; i < 12; ++i) others.push_back(filled(7)), places.push_back(others.back().data());
  for (const void* place : {place_before, place_within, place_kept})
    EXPECT_NE(std::find(places.begin(), places.end(), place), places.end()) << "its memory is used again";
}

TEST_F(Gpu, WorkThatWaitsForTheDeviceIsNotRecorded) {
  const Tensor x = Tensor::from(gpu(), {3}, DType::f32, std::vector<double>{1, 2, 3});
  Tensor out = Tensor::zeros(gpu(), {3}, DType::f32);
  const auto waiting = [&] {
    run(Add{.a = x, .b = x, .out = out});
    (void)out.values();
  };
  for (int i = 0; i < 2; ++i) try {
      gpu().record(waiting);
      FAIL() << "the host cannot read a result that is not computed";
    } catch (const Unsupported& reason) {
      EXPECT_NE(std::string(reason.what()).find("waits for the device"), std::string::npos) << reason.what();
    }
  EXPECT_EQ(gpu().lost(), "");
  EXPECT_EQ(out.values(), std::vector<double>(3, 0.0));
  run(Add{.a = x, .b = x, .out = out});
  EXPECT_EQ(out.values(), (std::vector<double>{2, 4, 6}));
}

TEST_F(Gpu, MemoryIsCountedAsAskedForAndUsedAgain) {
  const size_t before = gpu().memory().live().total;
  const void* where = nullptr;
  {
    const Tensor tensor(gpu(), {1000}, DType::f32);
    where = tensor.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(where) % 256, 0u);
    EXPECT_EQ(gpu().memory().live().total, before + 4000);
  }
  EXPECT_EQ(gpu().memory().live().total, before);
  const Tensor again(gpu(), {1000}, DType::f32);
  EXPECT_EQ(again.data(), where);
}

TEST_F(Gpu, TooMuchMemoryIsAnErrorThatSaysHowMuchThereIs) {
  try {
    const Tensor tensor(gpu(), {int64_t{1} << 45}, DType::f32);
    FAIL() << "128 TiB were allocated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos) << error.what();
  }
  // The failure does not affect later work.
  const Tensor x = Tensor::from(gpu(), {3}, DType::f32, std::vector<double>{-1, 0, 2});
  Tensor out(gpu(), {3}, DType::f32);
  run(Relu{.x = x, .out = out});
  EXPECT_EQ(out.values(), (std::vector<double>{0, 0, 2}));
}

TEST_F(Gpu, WorkAfterAPauseHasATimeOnlyIfItWasEnqueuedMeanwhile) {
  const Tensor x = Tensor::zeros(gpu(), {64}, DType::f32);
  Tensor out(gpu(), {64}, DType::f32);
  const Relu relu{.x = x, .out = out};
  run(relu);  // loads the kernel
  EXPECT_TRUE(gpu().time_after_pause(0.002, [&] { run(relu); }));
  run(relu);  // finds no error of the pause
  EXPECT_FALSE(gpu().time_after_pause(0.0001, [&] { run(relu), gpu().synchronize(); }));
  run(relu);
  EXPECT_EQ(out.values(), std::vector<double>(64, 0.0));
}

// An operation's kernels lie between its marks, and the marks of another one behind them.
TEST_F(Gpu, EachOperationOfAPieceOfWorkHasATime) {
  const Tensor x = Tensor::zeros(gpu(), {64, 64}, DType::f32);
  Tensor out(gpu(), {64, 64}, DType::f32), narrow(gpu(), {64, 64}, DType::f16);
  const auto work = [&] {
    run(Matmul{.a = x, .b = x, .out = out});
    for (int i = 0; i < 3; ++i) run(Cast{.x = out, .out = narrow});
  };
  work();
  const OperationTimes times(gpu());
  const double all = gpu().time(work);
  const std::vector<OperationTimes::Time> found = times.times();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].operation, "matmul");
  EXPECT_EQ(found[0].calls, 1u);
  EXPECT_EQ(found[1].operation, "cast");
  EXPECT_EQ(found[1].calls, 3u);
  EXPECT_GE(found[0].seconds, 0);
  EXPECT_GE(found[1].seconds, 0);
  EXPECT_LE(found[0].seconds + found[1].seconds, all * (1 + 1e-6));
}

TEST_F(Gpu, BlocksOfAllTensorsAreInThePool) {
  const std::optional<ProcessMemory> before = gpu().process_memory();
  ASSERT_TRUE(before);
  {
    const Tensor x = Tensor::zeros(gpu(), {int64_t{3} << 20}, DType::f32);
    EXPECT_GE(gpu().process_memory()->pool, before->pool + 12e6);
  }
  EXPECT_GE(gpu().process_memory()->pool, before->pool + 12e6) << "kept for reuse";
}

TEST_F(Gpu, TimeGrowsWithTheWork) {
  if (!gpu().numerics().empty()) GTEST_SKIP() << "times of this device are not valid: " << gpu().numerics();
  const int64_t n = 1 << 24;
  const Tensor x = Tensor::zeros(gpu(), {n}, DType::f32);
  Tensor out(gpu(), {n}, DType::f32);
  const auto times = [&](int count) {
    return gpu().time([&] {
      for (int i = 0; i < count; ++i) run(Relu{.x = x, .out = out});
    });
  };
  // An idle GPU needs some tenths of a second of work to raise the clock of its memory.
  for (double work = 0; work < 0.5;) work += times(100);
  gpu().evict_caches();
  const double one = times(1), twenty = times(20);
  EXPECT_GT(one, 0);
  EXPECT_LT(one, 0.1) << "64 MiB take milliseconds at most";
  EXPECT_GT(twenty, 5 * one);
}

}  // namespace
}  // namespace halfmark::kernels
