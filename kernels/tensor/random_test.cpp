#include "kernels/tensor/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace halfmark::kernels {
namespace {

TEST(Philox, GivesThePublishedAnswers) {  // Random123, tests/kat_vectors: philox4x32 10
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, IsAPureFunctionOfSeedAndIndex) {
  EXPECT_EQ(RandomKey(7).bits(123), RandomKey(7).bits(123));
  EXPECT_NE(RandomKey(7).bits(123), RandomKey(8).bits(123));
  EXPECT_NE(RandomKey(7).bits(123), RandomKey(7).bits(124));
}

TEST(RandomKey, ChildrenAreDifferentStreams) {
  const RandomKey parent(7);
  std::set<uint64_t> keys{parent.value()};
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(keys.insert(parent.child(i).value()).second);
  EXPECT_TRUE(keys.insert(parent.child("weights").value()).second);
  EXPECT_TRUE(keys.insert(parent.child("data").value()).second);
  EXPECT_EQ(parent.child("data").value(), RandomKey(7).child("data").value());
}

TEST(RandomKey, UniformAndNormalHaveTheirMoments) {
  const RandomKey key(11);
  const int n = 200'000;
  double mean = 0, normal_mean = 0, normal_square = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const double u = key.uniform(i), z = key.normal(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_TRUE(std::isfinite(z));
    mean += u / n, normal_mean += z / n, normal_square += z * z / n;
  }
  // Six standard errors: 1 / sqrt(12 n), 1 / sqrt(n), sqrt(2 / n).
  EXPECT_NEAR(mean, 0.5, 6 / std::sqrt(12.0 * n));
  EXPECT_NEAR(normal_mean, 0, 6 / std::sqrt(1.0 * n));
  EXPECT_NEAR(normal_square, 1, 6 * std::sqrt(2.0 / n));
}

TEST(RandomKey, BelowStaysBelow) {
  const RandomKey key(3);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(key.below(i, 7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
}

}  // namespace
}  // namespace halfmark::kernels
