// Every engine of the row "fp16-fma" gives the bits of the reference row, which rounds to odd in fp64 and then once to fp16.
#include "kernels/cpu/half_fma.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/reference/contraction_paths.h"
#include "kernels/devices.h"

namespace halfmark::kernels::half_fma {
namespace {

using Random = std::mt19937_64;

constexpr Math kMath{
    .multiply = halfmark::kernels::kFp16, .accumulate = halfmark::kernels::kFp16, .partial = halfmark::kernels::kFp16};

enum class Data { normal, bits, close, subnormals, specials };

std::vector<double> draw(Data data, int64_t count, Random& random) {
  std::vector<double> values;
  std::normal_distribution<double> normal;
  while (static_cast<int64_t>(values.size()) < count) {
    switch (data) {
      case Data::normal:
        values.push_back(normal(random));
        break;
      case Data::bits: {  // any finite number, most sums overflow or underflow
        const double x = decode(DType::f16, random() & 0xFFFF);
        if (std::isfinite(x)) values.push_back(x);
        break;
      }
      case Data::close:  // significands of eleven bits, exponents close together: ties, and sums just beside them
        values.push_back(std::ldexp(1024 + static_cast<double>(random() % 1024), static_cast<int>(random() % 8) - 13) *
                         (random() % 2 ? 1 : -1));
        break;
      case Data::subnormals:
        values.push_back(std::ldexp(static_cast<double>(random() % 4096) - 2048, random() % 4 ? -24 : -14));
        break;
      case Data::specials:
        values.push_back(decode(DType::f16, random() % 40 ? random() & 0xBFFF : random() & 0xFFFF));
        break;
    }
  }
  return values;
}

// Equal codes, or two NaNs.
void expect_equal(const Tensor& got, const Tensor& want, std::string_view what) {
  const std::vector<double> x = got.values(), y = want.values();
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    ASSERT_TRUE(x[i] == y[i] && std::signbit(x[i]) == std::signbit(y[i]))
        << x[i] << " instead of " << y[i] << " at " << i << ", " << what;
  }
}

class HalfFma : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const auto list = engines();
    const auto found = std::ranges::find(list, GetParam(), &Engine::name);
    if (found == list.end()) GTEST_SKIP() << "this CPU does not have " << GetParam();
    engine_ = &*found;
  }

  template <class Op>
  void compare(const Op& op, Tensor& out) {
    const std::vector<double> before = out.values();
    Contraction work(op);
    reference::contract(work, reference::Path::generic);
    Tensor copy = Tensor::from(out.device(), out.shape(), out.dtype(), before);
    work.out = &copy;
    contract(work, *engine_);
    expect_equal(copy, out, GetParam());
  }

  const Engine* engine_ = nullptr;
  std::shared_ptr<Device> device_ = open_device("cpu");
};

TEST_P(HalfFma, GivesTheBitsOfTheReferenceRowForMatmul) {
  Random random(1);
  const int rounds = std::getenv("HALFMARK_LONG") ? 10'000 : 40;  // out of about a thousand dot products
  for (int round = 0; round < rounds; ++round)
    for (const Data data : {Data::normal, Data::bits, Data::close, Data::subnormals, Data::specials}) {
      const auto m = static_cast<int64_t>(1 + random() % 39), n = static_cast<int64_t>(1 + random() % 99),
                 k = static_cast<int64_t>(random() % 120);
      const bool transpose_a = random() % 2, transpose_b = random() % 2;
      const Tensor a = Tensor::from(*device_, transpose_a ? Shape{k, m} : Shape{m, k}, DType::f16,
                                    draw(data, m * k, random)),
                   b = Tensor::from(*device_, transpose_b ? Shape{n, k} : Shape{k, n}, DType::f16,
                                    draw(data, k * n, random));
      const DType out_type = random() % 3 ? DType::f16 : DType::f32;
      Tensor out = Tensor::from(*device_, {m, n}, out_type, draw(Data::normal, m * n, random));
      const double beta = random() % 2 ? 0 : random() % 2 ? 1 : 0.3;
      compare(Matmul{.a = a,
                     .b = b,
                     .out = out,
                     .transpose_a = transpose_a,
                     .transpose_b = transpose_b,
                     .math = kMath,
                     .beta = beta},
              out);
      if (HasFatalFailure()) return;
    }
}

TEST_P(HalfFma, LeavesOutPaddingAsTheReferenceRowDoes) {
  Random random(2);
  const Window window{.stride_h = 2, .pad_h = 2, .pad_w = 1, .dilation_w = 2};
  for (const Data data : {Data::normal, Data::subnormals, Data::specials}) {
    // Infinite weights at padding would give NaN if they were multiplied; sums of -0 would lose their sign.
    const Tensor x = Tensor::from(*device_, {2, 6, 7, 9}, DType::f16, draw(data, 756, random)),
                 w = Tensor::from(*device_, {8, 3, 3, 3}, DType::f16, draw(data, 216, random));
    Tensor y(*device_, {2, 8, 5, 7}, DType::f16);
    y.fill(0);
    compare(Conv2d{.x = x, .w = w, .out = y, .window = window, .groups = 2, .math = kMath}, y);
    const Tensor dy = Tensor::from(*device_, y.shape(), DType::f16, draw(data, y.elements(), random));
    Tensor dx(*device_, x.shape(), DType::f16), dw(*device_, w.shape(), DType::f16);
    dx.fill(0), dw.fill(0);
    compare(Conv2dBackwardData{.dy = dy, .w = w, .dx = dx, .window = window, .groups = 2, .math = kMath}, dx);
    compare(Conv2dBackwardWeights{.x = x, .dy = dy, .dw = dw, .window = window, .groups = 2, .math = kMath}, dw);
  }
}

TEST_P(HalfFma, RoundsASumOnceWhereFp32WouldRoundItTwice) {
  // (1 + 2^-10)(1 - 2^-10) + 2050 = 2051 - 2^-20: through fp32 it becomes the tie 2051 and then 2052.
  const Tensor a = Tensor::from(*device_, {1, 2}, DType::f16, std::vector<double>{2050, 1 + 0x1p-10}),
               b = Tensor::from(*device_, {2, 1}, DType::f16, std::vector<double>{1, 1 - 0x1p-10});
  Tensor out(*device_, {1, 1}, DType::f16);
  contract(Contraction(Matmul{.a = a, .b = b, .out = out, .math = kMath}), *engine_);
  EXPECT_EQ(out.values()[0], 2050);
}

INSTANTIATE_TEST_SUITE_P(Engines, HalfFma, testing::Values("avx2", "avx512", "avx512fp16"),
                         [](const auto& engine) { return std::string(engine.param); });

TEST(HalfFmaRow, TakesChainsInFp16AndSaysWhyNotOthers) {
  const auto device = open_device("cpu");
  const Tensor a(*device, {4, 4}, DType::f16), wide(*device, {4, 4}, DType::f32);
  Tensor out(*device, {4, 4}, DType::f16);
  const auto refusal = [&](const Tensor& left, const Math& math) {
    for (const auto& kernel : device->kernels().of<Matmul>())
      if (kernel.name == "fp16-fma")
        return kernel.refuses(*device, Matmul{.a = left, .b = a, .out = out, .math = math}).value_or("");
    return std::string("no such row");
  };
  if (engines().empty()) GTEST_SKIP() << "this CPU has no engine for fp16-fma";
  EXPECT_EQ(refusal(a, kMath), "");
  Math math = kMath;
  math.multiply = kFp32;
  EXPECT_EQ(refusal(a, math), "");
  EXPECT_EQ(refusal(wide, kMath), "multiplies only f16, not f32");
  math = kMath, math.accumulate = kFp32;
  EXPECT_EQ(refusal(a, math), "sums only in fp16, not fp32");
  math = kMath, math.multiply = kBf16;
  EXPECT_EQ(refusal(a, math), "multiplies fp16 as stored, not rounded to bf16");
  math = kMath, math.split_k = 2;
  EXPECT_EQ(refusal(a, math), "sums one chain over k; split_k must be 1");
}

}  // namespace
}  // namespace halfmark::kernels::half_fma
