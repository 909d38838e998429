#include "kernels/cuda/random_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

TEST(RandomBytes, AreNumbersOfMean0AndVariance1InEveryDtypeOfProducts) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2, DType::e2m1}) {
    const std::vector<unsigned char> bytes = random_bytes(dtype, 1'000'000, 1);
    ASSERT_EQ(bytes.size(), bytes_for(dtype, kMostRandom)) << name_of(dtype);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < kMostRandom; ++i) {
      const double x = load(dtype, bytes.data(), i);
      sum += x, squares += x * x;
    }
    const auto count = static_cast<double>(kMostRandom);
    EXPECT_NEAR(sum / count, 0, 0.02) << name_of(dtype);
    EXPECT_NEAR(squares / count, 1, 0.1) << name_of(dtype);
  }
}

TEST(RandomBytes, DependOnTheSeedAndAreFewerForFewElements) {
  EXPECT_EQ(random_bytes(DType::f16, 100, 1), random_bytes(DType::f16, 100, 1));
  EXPECT_NE(random_bytes(DType::f16, 100, 1), random_bytes(DType::f16, 100, 2));
  EXPECT_EQ(random_bytes(DType::f16, 100, 1).size(), 200u);
  EXPECT_EQ(random_bytes(DType::e2m1, 7, 1).size(), 4u);
}

}  // namespace
}  // namespace halfmark::kernels::cuda
