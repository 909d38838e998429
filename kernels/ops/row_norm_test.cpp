// Norms of rows whose result is narrower than what they normalise, beside a norm and a cast: on each device that is here.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

Tensor drawn(Device& device, const Shape& shape, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
  return Tensor::from(device, shape, DType::f32, values);
}

// Of as many numbers that rounding once would give others: for f16 about one of 2^14.
TEST(NormsOfRows, WithANarrowerResultHaveTheBitsOfANormAndACast) {
  constexpr int64_t kRows = 512, kWidth = 250;
  const Shape shape{kRows, kWidth}, rows{kRows}, entries{kWidth};
  std::vector<std::string> devices = {"cpu", "sim:hopper"};
  for (const DeviceRow& row : known_devices())
    if (row.name == "cuda:0" && row.absent.empty()) devices.push_back("cuda:0");
  for (const std::string& name : devices) {
    const std::shared_ptr<Device> device = open_device(name);
    const Tensor a = drawn(*device, shape, 1), b = drawn(*device, shape, 2), scale = drawn(*device, entries, 3),
                 shift = drawn(*device, entries, 4);
    Tensor sum(*device, shape, DType::f32), wide(*device, shape, DType::f32), mean(*device, rows, DType::f32),
        inverse(*device, rows, DType::f32);
    const auto norm = [&](Tensor& out) {
      return NormalizeRows{
          .x = sum, .scale = scale, .shift = shift, .out = out, .mean = mean, .inverse = inverse, .width = kWidth};
    };
    run(Add{.a = a, .b = b, .out = sum});
    run(norm(wide));
    for (const DType narrow : {DType::f16, DType::bf16}) {
      Tensor cast(*device, shape, narrow), out(*device, shape, narrow), of_sum(*device, shape, narrow),
          own_sum(*device, shape, DType::f32);
      run(Cast{.x = wide, .out = cast});
      run(norm(out));
      run(AddNormalizeRows{.a = a,
                           .b = b,
                           .scale = scale,
                           .shift = shift,
                           .sum = own_sum,
                           .out = of_sum,
                           .mean = mean,
                           .inverse = inverse,
                           .width = kWidth});
      EXPECT_TRUE(out.codes() == cast.codes()) << name << " " << name_of(narrow);
      EXPECT_TRUE(of_sum.codes() == cast.codes()) << name << " " << name_of(narrow) << ", with the sum";
    }
  }
}

// A wider result is not rounded to the dtype of x.
TEST(NormsOfRows, WithAWiderResultHaveItsDigits) {
  const Shape shape{8, 50}, rows{8}, entries{50};
  for (const char* name : {"cpu", "sim:hopper"}) {
    const std::shared_ptr<Device> device = open_device(name);
    const Tensor narrow = drawn(*device, shape, 1), scale = drawn(*device, entries, 3),
                 shift = drawn(*device, entries, 4);
    const Tensor wide = Tensor::from(*device, shape, DType::f64, narrow.values());
    std::vector<double> found[2];
    for (const Tensor* x : {&narrow, &wide}) {
      const DType own = x->dtype();
      Tensor out(*device, shape, DType::f64), mean(*device, rows, own), inverse(*device, rows, own);
      run(NormalizeRows{
          .x = *x, .scale = scale, .shift = shift, .out = out, .mean = mean, .inverse = inverse, .width = 50});
      found[own == DType::f64] = out.values();
    }
    for (size_t i = 0; i < found[0].size(); ++i) ASSERT_NEAR(found[0][i], found[1][i], 1e-14) << name << " " << i;
  }
}

}  // namespace
}  // namespace halfmark::kernels
