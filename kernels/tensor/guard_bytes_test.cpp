// The sentinels themselves: NaNs in every dtype that has them, other ones around each tensor. What they detect in rows
// of kernels is tested in kernels/ops/row_guard_test.cpp.
#include "kernels/tensor/guard_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {
namespace {

std::vector<DType> dtypes_with_signed_nan() {
  std::vector<DType> all;
  for (const DType dtype : dtypes())
    if (is_floating(dtype) && format_of(dtype).has_nan() && format_of(dtype).has_negative_zero()) all.push_back(dtype);
  return all;
}

TEST(GuardBytes, SurroundTensorsMadeWhileTheyLiveAndKeepTheirAlignment) {
  const std::shared_ptr<Device> device = open_device("cpu");
  Tensor outlives;
  {
    GuardBytes guard(*device);
    EXPECT_THROW(GuardBytes second(*device), Error);
    outlives = Tensor(*device, {3}, DType::f32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(outlives.data()) % 64, 0u);
    for (const DType dtype : dtypes_with_signed_nan())
      for (const double value : Tensor(*device, {9}, dtype).values()) EXPECT_TRUE(std::isnan(value)) << name_of(dtype);
    EXPECT_TRUE(guard.take_damage().empty());
    EXPECT_EQ(outlives.bytes(), 12u);
    EXPECT_EQ(device->memory().live().total, 12u);
  }
  outlives.fill(1);
  EXPECT_EQ(outlives.values(), std::vector<double>(3, 1.0));
}

// AddressSanitizer sees the sentinels outside as poisoned and would abort these tests.
#if HALFMARK_SANITIZED
#define HM_OUTSIDE(name) TEST(DISABLED_GuardBytes, name)
#else
#define HM_OUTSIDE(name) TEST(GuardBytes, name)
#endif

constexpr size_t kMargin = GuardBytes::kMargin;

// The sentinels before and after a tensor, from it outwards: element d of each side is at 2 d and 2 d + 1.
std::vector<uint64_t> outside(const Tensor& tensor, DType dtype) {
  const auto* start = static_cast<const unsigned char*>(tensor.data());
  std::vector<uint64_t> codes;
  for (size_t d = 0; d < kMargin / size_of(dtype); ++d) {
    codes.push_back(load_code(dtype, start - (d + 1) * size_of(dtype), 0));
    codes.push_back(load_code(dtype, start + tensor.bytes(), d));
  }
  return codes;
}

HM_OUTSIDE(AreNaNsOfTheDtypeOnBothSides) {
  const std::shared_ptr<Device> device = open_device("cpu");
  GuardBytes guard(*device);
  for (const DType dtype : dtypes_with_signed_nan()) {
    const Tensor tensor(*device, {5, 3}, dtype);
    for (const uint64_t code : outside(tensor, dtype)) EXPECT_TRUE(std::isnan(decode(dtype, code))) << name_of(dtype);
  }
}

HM_OUTSIDE(AreNaNsOfEveryDtypeWhereTheDtypeHasNone) {
  const std::shared_ptr<Device> device = open_device("cpu");
  GuardBytes guard(*device);
  for (const DType dtype : {DType::u8, DType::i32, DType::e2m1}) {
    const Tensor tensor(*device, {64}, dtype);
    std::vector<unsigned char> inside(tensor.bytes());
    std::memcpy(inside.data(), tensor.data(), inside.size());
    for (const DType read_as : dtypes_with_signed_nan()) {
      for (const uint64_t code : outside(tensor, read_as))
        EXPECT_TRUE(std::isnan(decode(read_as, code))) << name_of(dtype) << " as " << name_of(read_as);
      for (size_t i = 0; i < inside.size() / size_of(read_as); ++i)
        EXPECT_TRUE(std::isnan(load(read_as, inside.data(), i))) << name_of(dtype) << " as " << name_of(read_as);
    }
  }
}

HM_OUTSIDE(EverySecondSentinelOfAReadTensorDiffersFromThatOfEveryWrittenOne) {
  const std::shared_ptr<Device> device = open_device("cpu");
  GuardBytes guard(*device);
  std::vector<DType> all = dtypes_with_signed_nan();
  all.push_back(DType::u8);
  for (const DType dtype : all) {
    const Tensor read(*device, {5, 3}, dtype), written(*device, {7}, dtype);
    guard.redraw({read.data()});
    const Tensor later(*device, {2}, dtype);
    const DType unit = dtype == DType::u8 ? DType::bf16 : dtype;
    for (const Tensor& output : {written, later}) {
      const std::vector<uint64_t> a = outside(read, unit), b = outside(output, unit);
      size_t equal = 0;
      for (size_t d = 0; d < a.size(); d += 4) equal += (a[d] == b[d]) + (a[d + 1] == b[d + 1]);
      EXPECT_EQ(equal, 0u) << name_of(dtype) << ": of " << a.size() / 2;
    }
    EXPECT_TRUE(guard.take_damage().empty()) << name_of(dtype);
  }
}

// Each sign and payload bit is drawn for each tensor and each redraw.
HM_OUTSIDE(DifferBetweenWrittenTensorsAndRedraws) {
  const std::shared_ptr<Device> device = open_device("cpu");
  GuardBytes guard(*device);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2, DType::u8}) {
    const DType unit = dtype == DType::u8 ? DType::bf16 : dtype;
    const Tensor a(*device, {4}, dtype), b(*device, {4}, dtype);
    const std::vector<uint64_t> one = outside(a, unit), other = outside(b, unit);
    guard.redraw({});
    const std::vector<uint64_t> again = outside(a, unit);
    uint64_t between = 0, redrawn_odd = 0, redrawn_even = 0;
    for (size_t d = 0; d < one.size(); ++d) {
      between |= one[d] ^ other[d];
      (d / 2 % 2 ? redrawn_odd : redrawn_even) |= one[d] ^ again[d];
    }
    const Format& format = format_of(unit);
    const uint64_t payload =
        format.has_infinity() && dtype != DType::u8 ? (uint64_t{1} << (format.fraction_bits - 1)) - 1 : 0;
    for (const uint64_t changed : {between, redrawn_odd, redrawn_even})
      EXPECT_EQ(changed, format.sign_code() | payload) << name_of(dtype);
  }
}

HM_OUTSIDE(AreTheSameInEveryRun) {
  const std::shared_ptr<Device> device = open_device("cpu");
  const auto draw = [&] {
    GuardBytes guard(*device);
    const Tensor a(*device, {4}, DType::f32), b(*device, {40}, DType::f32);
    guard.redraw({a.data()});
    std::vector<uint64_t> codes = outside(a, DType::f32);
    const std::vector<uint64_t> more = outside(b, DType::f32);
    codes.insert(codes.end(), more.begin(), more.end());
    return codes;
  };
  const std::vector<uint64_t> first = draw();
  const Tensor moves_the_memory(*device, {1000}, DType::f32);
  EXPECT_EQ(draw(), first);
}

}  // namespace
}  // namespace halfmark::kernels
