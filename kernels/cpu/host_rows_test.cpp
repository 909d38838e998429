// Elements of a tensor as the host loops read and write them, against convert() for every bf16 code.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/devices.h"
#include "kernels/number/convert.h"

namespace halfmark::kernels::host {
namespace {

constexpr int64_t kCodes = 65536;

Tensor all_codes(Device& device) {
  Tensor tensor(device, {kCodes}, DType::bf16);
  tensor.materialize(Layout::plain);
  auto* codes = static_cast<uint16_t*>(tensor.data());
  for (int64_t i = 0; i < kCodes; ++i) codes[i] = static_cast<uint16_t>(i);
  return tensor;
}

TEST(HostRows, ReadEveryBf16CodeAsConvertDoes) {
  const auto device = open_device("cpu");
  const Tensor tensor = all_codes(*device);
  std::vector<float> found(kCodes), expected(kCodes);
  EXPECT_EQ(read(tensor, 0, kCodes, found.data()), found.data());
  convert(DType::bf16, tensor.data(), DType::f32, expected.data(), kCodes);
  for (size_t i = 0; i < kCodes; ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << i;
    } else {
      EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(float)), 0) << i;
    }
  }
}

// Every code, and the fp32 numbers just below, at and just above half way to the next.
TEST(HostRows, WriteFp32AsBf16AsConvertDoes) {
  const auto device = open_device("cpu");
  const Tensor codes = all_codes(*device);
  for (const uint32_t tail : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
    std::vector<float> values(kCodes);
    for (uint32_t i = 0; i < kCodes; ++i) {
      const uint32_t bits = i << 16 | tail;
      std::memcpy(&values[i], &bits, sizeof bits);
    }
    Tensor found(*device, {kCodes}, DType::bf16);
    found.materialize(Layout::plain);
    written(found, 0, kCodes, values.data());
    std::vector<uint16_t> expected(kCodes);
    convert(DType::f32, values.data(), DType::bf16, expected.data(), kCodes);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), sizeof(uint16_t) * kCodes), 0) << tail;
  }
}

}  // namespace
}  // namespace halfmark::kernels::host
