// Bulk conversion gives the codes of encode(), whatever instructions it uses.
#include "kernels/number/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

namespace halfmark::kernels {
namespace {

// All 2^16 bit patterns in the relevant places, ties and their neighbours, specials, and uniform patterns.
std::vector<float> many_floats() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; ++high)
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0x1000u, 0x0FFFu, 0xFFFFu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto half = static_cast<float>(decode(DType::f16, code));
    const auto bits = std::bit_cast<uint32_t>(half);
    for (const uint32_t step : {0x0FFFu, 0x1000u, 0x1001u}) values.push_back(std::bit_cast<float>(bits + step));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500'000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return values;
}

void expect_as_scalar(DType from, const void* source, DType to, size_t count) {
  std::vector<unsigned char> fast(bytes_for(to, count)), plain(fast.size());
  convert(from, source, to, fast.data(), count);
  convert_detail::convert_scalar(from, source, to, plain.data(), count);
  if (fast == plain) return;
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(load_code(to, fast.data(), i), load_code(to, plain.data(), i))
        << name_of(from) << " to " << name_of(to) << ", element " << i << ": " << std::hexfloat
        << load(from, source, i);
}

TEST(Convert, FloatsBecomeWhatEncodeSays) {
  const std::vector<float> values = many_floats();
  for (const DType to : dtypes()) expect_as_scalar(DType::f32, values.data(), to, values.size());
  std::cout << "instructions: " << convert_instructions() << "\n";
}

TEST(Convert, EveryNarrowCodeWidensAsDecodeSays) {
  for (const DType from : dtypes()) {
    if (bits_of(from) > 16) continue;
    const size_t count = size_t{1} << bits_of(from);
    std::vector<unsigned char> codes(bytes_for(from, count));
    for (size_t i = 0; i < count; ++i) store_code(from, codes.data(), i, i);
    for (const DType to : dtypes()) expect_as_scalar(from, codes.data(), to, count);
  }
}

TEST(Convert, DoublesAreRoundedOnce) {
  std::vector<double> values;
  std::mt19937_64 random(2);
  for (uint32_t code = 0; code < 65536; ++code)
    for (const DType dtype : {DType::f16, DType::bf16}) {
      // The tie above this number, and the doubles on both sides of it: rounding through fp32 gets them wrong.
      const double x = decode(dtype, code), next = decode(dtype, code + 1 < 65536 ? code + 1 : code);
      const double tie = (x + next) / 2;
      for (const double y :
           {x, tie, std::nextafter(tie, 0.0), std::nextafter(tie, 1e308), tie * (1 + 0x1p-40), tie * (1 - 0x1p-40)})
        values.push_back(y);
    }
  for (int i = 0; i < 300'000; ++i) {
    values.push_back(std::bit_cast<double>(random()));
    values.push_back(std::bit_cast<double>((random() & 0x800FFFFFFFFFFFFFu) | (1023 - 155 + random() % 300) << 52));
  }
  for (const double x : {0.0, -0.0, 65519.999999, 65520.0, 3.3961775292304601e38, 3.4028235677973366e38, 1e39, -1e39,
                         1e-46, -1e-46, 5e-324})
    values.push_back(x);
  for (const DType to : dtypes()) expect_as_scalar(DType::f64, values.data(), to, values.size());
}

TEST(Convert, ShortAndUnalignedArrays) {
  const std::vector<float> values = many_floats();
  for (size_t count = 0; count < 40; ++count)
    for (size_t start = 0; start < 3; ++start) {
      expect_as_scalar(DType::f32, values.data() + 1000 + start, DType::f16, count);
      expect_as_scalar(DType::f16, reinterpret_cast<const uint16_t*>(values.data()) + start, DType::f32, count);
    }
}

TEST(RoundArray, IsRoundTo) {
  const std::vector<float> values = many_floats();
  for (const Format& format : formats()) {
    std::vector<float> fast = values, plain = values;
    round_array(format, fast.data(), fast.size());
    convert_detail::round_array_scalar(format, plain.data(), plain.data(), plain.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(fast[i]), std::bit_cast<uint32_t>(plain[i]))
          << format.name << " " << std::hexfloat << values[i];
      if (std::isnan(values[i])) {
        ASSERT_EQ(std::bit_cast<uint32_t>(fast[i]), std::bit_cast<uint32_t>(values[i])) << "a NaN is left alone";
      }
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels
