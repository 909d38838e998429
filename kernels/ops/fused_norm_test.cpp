// Batch norm with ReLU on each row of the host's devices: NaN, what is rounded, and gradients written over others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

Tensor numbers(Device& device, const Shape& shape, DType dtype, const std::vector<double>& values) {
  return Tensor::from(device, shape, dtype, values);
}

struct NormOperands {
  Device& device;
  Shape shape;
  DType dtype;
  Shape channels{shape[1]};
  Tensor x{}, addend{};
  Tensor scale = numbers(device, channels, DType::f32, std::vector<double>(static_cast<size_t>(shape[1]), 1.0));
  Tensor shift = Tensor::zeros(device, channels, DType::f32);
  Tensor out{device, shape, dtype}, mean{device, channels, DType::f32}, variance{device, channels, DType::f32};
  Tensor running_mean = Tensor::zeros(device, channels, DType::f32),
         running_variance = Tensor::zeros(device, channels, DType::f32);

  FusedBatchNorm op() {
    return {.x = x,
            .addend = addend,
            .scale = scale,
            .shift = shift,
            .out = out,
            .mean = mean,
            .variance = variance,
            .running_mean = running_mean,
            .running_variance = running_variance,
            .epsilon = 0};
  }
};

// f(row) for each row of the CPU and of a simulated GPU that takes the operation.
template <class Op>
void each_taking_row(const std::function<void(Device&, const Kernel<Op>&)>& f) {
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    for (const Kernel<Op>& row : device->kernels().of<Op>()) {
      SCOPED_TRACE(std::string(name) + " " + std::string(row.name));
      f(*device, row);
    }
  }
}

TEST(FusedNorm, ANanOfTheAddendStaysOne) {
  each_taking_row<FusedBatchNorm>([](Device& device, const Kernel<FusedBatchNorm>& row) {
    NormOperands of{device, {2, 1, 1, 2}, DType::f32};
    of.x = numbers(device, of.shape, DType::f32, {-1, 1, -1, 1});
    of.addend = numbers(device, of.shape, DType::f32, {static_cast<double>(NAN), 0.5, 0.25, 0});
    if (row.refuses(device, of.op())) return;
    run_with(row, of.op());
    const std::vector<double> y = of.out.values();
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(std::vector<double>(y.begin() + 1, y.end()), (std::vector<double>{1.5, 0, 1}));
  });
}

// The norm of x is 1 + 2^-8, halfway between two numbers of bf16. With the addend 2^-8 the sum is 1 + 2^-7; if the norm is
// rounded before, to 1, it is 1.
TEST(FusedNorm, TheSumIsRoundedOnce) {
  const auto operands = [](Device& device) {
    NormOperands of{device, {2, 1, 1, 2}, DType::bf16};
    of.x = numbers(device, of.shape, DType::bf16, {-1, 1, -1, 1});
    of.scale = numbers(device, {1}, DType::f32, {1 + 0x1p-8});
    of.addend = numbers(device, of.shape, DType::bf16, {0, 0x1p-8, 0, 0x1p-8});
    return of;
  };
  each_taking_row<FusedBatchNorm>([&](Device& device, const Kernel<FusedBatchNorm>& row) {
    NormOperands of = operands(device);
    if (row.refuses(device, of.op())) return;
    run_with(row, of.op());
    EXPECT_EQ(of.out.values(), (std::vector<double>{0, 1 + 0x1p-7, 0, 1 + 0x1p-7}));
  });
  const std::shared_ptr<Device> cpu = open_device("cpu");
  NormOperands of = operands(*cpu);
  run(of.op().norm(of.out));
  run(Add{.a = of.out, .b = of.addend, .out = of.out});
  EXPECT_EQ(of.out.values()[1], 1) << "the numbers do not show the difference";
}

// A NaN of the result passes the gradient, as in PyTorch; 0 and -0 do not.
TEST(FusedNorm, TheGradientPassesWhereTheResultIsNotZero) {
  each_taking_row<FusedBatchNormBackward>([](Device& device, const Kernel<FusedBatchNormBackward>& row) {
    const Shape shape{1, 1, 1, 6}, one{1};
    const Tensor x = numbers(device, shape, DType::f32, {1, 2, 3, 4, 5, 6}),
                 kept = numbers(device, shape, DType::f32, {0, -0.0, 1, 0x1p-149, -1, static_cast<double>(NAN)}),
                 dy = numbers(device, shape, DType::f32, {1, 2, 4, 8, 16, 32}),
                 scale = numbers(device, one, DType::f32, {1.0}), mean = numbers(device, one, DType::f32, {3.5}),
                 variance = numbers(device, one, DType::f32, {35.0 / 12});
    Tensor dx(device, shape, DType::f32), daddend(device, shape, DType::f32), dscale(device, one, DType::f32),
        dshift(device, one, DType::f32);
    const FusedBatchNormBackward op{.x = x,
                                    .kept = kept,
                                    .dy = dy,
                                    .scale = scale,
                                    .mean = mean,
                                    .variance = variance,
                                    .dx = dx,
                                    .daddend = daddend,
                                    .dscale = dscale,
                                    .dshift = dshift};
    if (row.refuses(device, op)) return;
    run_with(row, op);
    EXPECT_EQ(daddend.values(), (std::vector<double>{0, 0, 4, 8, 0, 32}));
    EXPECT_EQ(dshift.values()[0], 44);
  });
}

TEST(FusedNorm, TheResultMayReplaceTheAddend) {
  each_taking_row<FusedBatchNorm>([](Device& device, const Kernel<FusedBatchNorm>& row) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      NormOperands of{device, {2, 1, 1, 2}, dtype};
      of.x = numbers(device, of.shape, dtype, {-1, 1, -1, 1});
      of.out = numbers(device, of.shape, dtype, {2, 0.5, 0.25, -3}), of.addend = of.out;
      if (row.refuses(device, of.op())) continue;
      run_with(row, of.op());
      EXPECT_EQ(of.out.values(), (std::vector<double>{1, 1.5, 0, 0})) << name_of(dtype);
    }
  });
}

// As the rows do whose operands share memory: dx over dy, and the gradient of the addend over dy.
TEST(FusedNorm, AGradientMayReplaceThatOfTheResult) {
  each_taking_row<FusedBatchNormBackward>([](Device& device, const Kernel<FusedBatchNormBackward>& row) {
    const Shape shape{3, 4, 5, 7}, channels{4};
    const auto drawn = [&](const Shape& of, uint64_t seed) {
      std::vector<double> values(static_cast<size_t>(of.elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
      return numbers(device, of, DType::f32, values);
    };
    const Tensor x = drawn(shape, 1), kept = drawn(shape, 2), scale = drawn(channels, 4), mean = drawn(channels, 5),
                 variance = numbers(device, channels, DType::f32, {1, 2, 0.5, 1.5});
    const auto results = [&](bool over_dx, bool over_addend) {
      Tensor dy = drawn(shape, 3), dx = over_dx ? dy : Tensor(device, shape, DType::f32),
             daddend = over_addend ? dy : Tensor(device, shape, DType::f32), dscale(device, channels, DType::f32),
             dshift(device, channels, DType::f32);
      const FusedBatchNormBackward op{.x = x,
                                      .kept = kept,
                                      .dy = dy,
                                      .scale = scale,
                                      .mean = mean,
                                      .variance = variance,
                                      .dx = dx,
                                      .daddend = daddend,
                                      .dscale = dscale,
                                      .dshift = dshift};
      if (row.refuses(device, op)) return std::vector<std::vector<double>>();
      run_with(row, op);
      return std::vector<std::vector<double>>{over_addend ? std::vector<double>() : dx.values(),
                                              over_dx ? std::vector<double>() : daddend.values(), dscale.values(),
                                              dshift.values()};
    };
    const auto apart = results(false, false), over_dx = results(true, false), over_addend = results(false, true);
    if (apart.empty()) return;
    EXPECT_EQ(over_dx[0], apart[0]);
    EXPECT_EQ(over_addend[1], apart[1]);
    for (const size_t which : {2, 3}) {
      EXPECT_EQ(over_dx[which], apart[which]);
      EXPECT_EQ(over_addend[which], apart[which]);
    }
  });
}

TEST(FusedNorm, OtherShapesAreRefusedByName) {
  const std::shared_ptr<Device> device = open_device("cpu");
  NormOperands of{*device, {2, 3, 4, 4}, DType::f32};
  of.x = Tensor::zeros(*device, of.shape, DType::f32), of.addend = Tensor::zeros(*device, {2, 3, 4, 5}, DType::f32);
  try {
    run(of.op());
    FAIL() << "an addend of another shape was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fused_batch_norm"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace halfmark::kernels
