// Products with bias and activation beside the separate operations, on the host's devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

std::vector<double> drawn(int64_t count, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return values;
}

constexpr Math kWideMath{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};

// A layer of f64, whose roundings are far below those of its numbers.
struct Layer {
  static constexpr int64_t kBatch = 7, kIn = 11, kOut = 13;
  Device& device;
  Tensor x = Tensor::from(device, {kBatch, kIn}, DType::f64, drawn(kBatch* kIn, 1));
  Tensor w = Tensor::from(device, {kOut, kIn}, DType::f64, drawn(kOut* kIn, 2));
  Tensor bias = Tensor::from(device, {kOut}, DType::f64, drawn(kOut, 3));
  Tensor out{device, {kBatch, kOut}, DType::f64}, kept{};

  void forward(FusedActivation activation) {
    kept = activation == FusedActivation::relu ? Tensor(device, {kBatch, relu_mask_bytes(kOut)}, DType::u8)
                                               : Tensor(device, {kBatch, kOut}, DType::f64);
    run(FusedMatmul{.a = x,
                    .b = w,
                    .bias = bias,
                    .out = out,
                    .kept = kept,
                    .transpose_b = true,
                    .activation = activation,
                    .math = kWideMath});
  }
};

void expect_near(const Tensor& a, const Tensor& b) {
  const std::vector<double> av = a.values(), bv = b.values();
  ASSERT_EQ(av.size(), bv.size());
  for (size_t i = 0; i < av.size(); ++i) EXPECT_NEAR(av[i], bv[i], 1e-13 * (1 + std::fabs(bv[i]))) << i;
}

// Two layers, the first with an activation: its gradients by the fused operations and by separate ones.
template <class Row>
void expect_same_gradients(Device& device, FusedActivation activation) {
  Layer layer{device};
  layer.forward(activation);
  Tensor z(device, layer.out.shape(), DType::f64), y(device, layer.out.shape(), DType::f64);
  run(Matmul{.a = layer.x, .b = layer.w, .out = z, .transpose_b = true, .math = kWideMath});
  run(AddBias{.x = z, .bias = layer.bias, .out = z});
  run(Activation<Row>{.x = z, .out = y});
  expect_near(layer.out, y);

  constexpr int64_t kNext = 5;
  const Tensor dy = Tensor::from(device, {Layer::kBatch, kNext}, DType::f64, drawn(Layer::kBatch * kNext, 4)),
               next = Tensor::from(device, {kNext, Layer::kOut}, DType::f64, drawn(kNext * Layer::kOut, 5));
  Tensor dz(device, z.shape(), DType::f64), db(device, {Layer::kOut}, DType::f64);
  run(FusedMatmulBackward{.a = dy,
                          .b = next,
                          .kept = layer.kept,
                          .out = dz,
                          .dbias = db,
                          .activation = activation,
                          .sums = BiasSums::out,
                          .math = kWideMath});
  Tensor through(device, z.shape(), DType::f64), wanted(device, z.shape(), DType::f64),
      wanted_db(device, {Layer::kOut}, DType::f64);
  run(Matmul{.a = dy, .b = next, .out = through, .math = kWideMath});
  run(ActivationBackward<Row>{.kept = Row::kept == activations::Kept::output ? y : z, .dy = through, .dx = wanted});
  run(BiasGradient{.dy = wanted, .dbias = wanted_db});
  expect_near(dz, wanted), expect_near(db, wanted_db);

  Tensor dw(device, layer.w.shape(), DType::f64), of_a(device, {Layer::kOut}, DType::f64);
  const Tensor nothing;
  run(FusedMatmulBackward{.a = dz,
                          .b = layer.x,
                          .kept = nothing,
                          .out = dw,
                          .dbias = of_a,
                          .transpose_a = true,
                          .sums = BiasSums::a,
                          .math = kWideMath});
  Tensor wanted_dw(device, layer.w.shape(), DType::f64);
  run(Matmul{.a = dz, .b = layer.x, .out = wanted_dw, .transpose_a = true, .math = kWideMath});
  expect_near(dw, wanted_dw), expect_near(of_a, wanted_db);
}

TEST(Fused, GradientsAreThoseOfSeparateOperations) {
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    expect_same_gradients<activations::Relu>(*device, FusedActivation::relu);
    expect_same_gradients<activations::GeluTanh>(*device, FusedActivation::gelu_tanh);
  }
}

// 1 + 2^-8 + 2^-9 in bf16, which has steps of 2^-7 there: in one rounding 1 + 2^-7, in two 1 and then 1.
TEST(Fused, TheResultIsRoundedOnce) {
  for (const char* name : {"cpu", "sim:ampere"}) {
    const std::shared_ptr<Device> device = open_device(name);
    const double a[] = {1, 0x1p-8}, b[] = {1, 1}, small[] = {0x1p-9};
    const Tensor left = Tensor::from(*device, {1, 2}, DType::bf16, a),
                 right = Tensor::from(*device, {2, 1}, DType::bf16, b),
                 bias = Tensor::from(*device, {1}, DType::bf16, small);
    Tensor once(*device, {1, 1}, DType::bf16), twice(*device, {1, 1}, DType::bf16), nothing;
    run(FusedMatmul{.a = left, .b = right, .bias = bias, .out = once, .kept = nothing});
    run(Matmul{.a = left, .b = right, .out = twice});
    run(AddBias{.x = twice, .bias = bias, .out = twice});
    EXPECT_EQ(once.values()[0], 1 + 0x1p-7) << name;
    EXPECT_EQ(twice.values()[0], 1) << name;
  }
}

TEST(Fused, ReluKeepsNan) {
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    for (const Kernel<FusedMatmul>& row : device->kernels().of<FusedMatmul>()) {
      const double nan[] = {static_cast<double>(NAN), -1};
      const Tensor a = Tensor::zeros(*device, {1, 3}, DType::f32), b = Tensor::zeros(*device, {3, 2}, DType::f32),
                   bias = Tensor::from(*device, {2}, DType::f32, nan);
      Tensor out(*device, {1, 2}, DType::f32), nothing;
      const FusedMatmul op{
          .a = a, .b = b, .bias = bias, .out = out, .kept = nothing, .activation = FusedActivation::relu};
      if (row.refuses(*device, op)) continue;
      run_with(row, op);
      EXPECT_TRUE(std::isnan(out.values()[0])) << name << " " << row.name;
      EXPECT_EQ(out.values()[1], 0) << name << " " << row.name;
    }
  }
}

template <class Op>
void expect_error(const Op& op, const std::string& words) {
  try {
    op.check();
    FAIL() << "accepted, instead of: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Fused, WrongOperandsAreErrors) {
  const std::shared_ptr<Device> cpu = open_device("cpu");
  const auto matrix = [&](int64_t m, int64_t n, DType dtype = DType::f32) { return Tensor(*cpu, {m, n}, dtype); };
  const Tensor a = matrix(2, 3), b = matrix(3, 4), none, of_rows = Tensor(*cpu, {2}, DType::f32);
  Tensor out = matrix(2, 4), nothing, bytes = matrix(2, 4, DType::u8), z = matrix(2, 4), vector(*cpu, {4}, DType::f32);
  const auto forward = [&](const Tensor& bias, Tensor& kept, FusedActivation activation) {
    return FusedMatmul{.a = a, .b = b, .bias = bias, .out = out, .kept = kept, .activation = activation};
  };
  expect_error(forward(of_rows, nothing, FusedActivation::none), "bias must be of shape [4]");
  expect_error(forward(none, z, FusedActivation::none), "without an activation nothing is kept");
  expect_error(forward(none, bytes, FusedActivation::relu), "the mask of ReLU must be u8 of shape [2, 16]");
  expect_error(forward(none, z, FusedActivation::relu), "the mask of ReLU must be u8");
  expect_error(forward(none, bytes, FusedActivation::gelu_tanh), "what is kept for GELU");
  const auto backward = [&](const Tensor& kept, Tensor& dbias, FusedActivation activation, BiasSums sums) {
    return FusedMatmulBackward{
        .a = a, .b = b, .kept = kept, .out = out, .dbias = dbias, .activation = activation, .sums = sums};
  };
  expect_error(backward(none, nothing, FusedActivation::gelu_tanh, BiasSums::none), "goes with an activation");
  expect_error(backward(z, nothing, FusedActivation::none, BiasSums::none), "goes with an activation");
  expect_error(backward(none, nothing, FusedActivation::none, BiasSums::a), "go with a dbias");
  expect_error(backward(none, vector, FusedActivation::none, BiasSums::none), "go with a dbias");
  expect_error(backward(none, vector, FusedActivation::none, BiasSums::a), "dbias must be of shape [2]");
  expect_error(backward(none, vector, FusedActivation::none, BiasSums::out), "with an activation");
  expect_error(backward(z, vector, FusedActivation::gelu_tanh, BiasSums::b), "that of an operand with none");
}

}  // namespace
}  // namespace halfmark::kernels
