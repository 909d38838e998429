// Every dtype of at most 8 bits, and bf16, against the independent Python package ml_dtypes.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark::kernels {
namespace {

// The floats that are converted: every upper half with lower halves around ties and neighbours.
constexpr std::array<uint32_t, 6> kLowHalves{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};

// Writes the values of all codes as float32, then the codes of all floats above as uint16. Exit status 3: no package;
// 4: the package lacks the type. The package appends fn to the names of finite formats and fnu to unsigned ones: e4m3
// is its float8_e4m3fn.
constexpr const char* kProgram = R"(
import sys
try:
    import numpy, ml_dtypes
except ImportError as error:
    sys.exit(3)
name, bits = sys.argv[1], int(sys.argv[2])
stem = "bfloat16" if name == "bf16" else "float%d_%s" % (bits, name)
kind = next((getattr(ml_dtypes, stem + end) for end in ("fn", "fnu", "") if hasattr(ml_dtypes, stem + end)), None)
if kind is None:
    sys.exit(4)
word = numpy.uint16 if bits == 16 else numpy.uint8
values = numpy.arange(1 << bits).astype(word).view(kind).astype(numpy.float32)
high = numpy.arange(65536, dtype=numpy.uint32) << 16
floats = numpy.concatenate([(high | low).view(numpy.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
with numpy.errstate(all="ignore"):
    codes = floats.astype(kind).view(word).astype(numpy.uint16)
sys.stdout.buffer.write(values.tobytes() + codes.tobytes())
)";

struct Answer {
  int status = 0;  // of the program; 3: no package, 4: no such type
  std::vector<float> values;
  std::vector<uint16_t> codes;
};

Answer ask(DType dtype) {
  const std::string command = "python3 -c '" + std::string(kProgram) + "' " + std::string(name_of(dtype)) + " " +
                              std::to_string(bits_of(dtype)) + " 2>/dev/null";
  Answer answer{0, std::vector<float>(size_t{1} << bits_of(dtype)), std::vector<uint16_t>(65536 * kLowHalves.size())};
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {127, {}, {}};
  const size_t values = std::fread(answer.values.data(), sizeof(float), answer.values.size(), pipe);
  const size_t codes = std::fread(answer.codes.data(), sizeof(uint16_t), answer.codes.size(), pipe);
  const int status = pclose(pipe);
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
  if (!answer.status && (values != answer.values.size() || codes != answer.codes.size())) answer.status = 126;
  return answer;
}

void expect_values(DType dtype, const Answer& theirs) {
  for (uint64_t code = 0; code < theirs.values.size(); ++code) {
    const double ours = decode(dtype, code), other = static_cast<double>(theirs.values[code]);
    if (std::isnan(ours) || std::isnan(other)) {
      ASSERT_EQ(std::isnan(ours), std::isnan(other)) << name_of(dtype) << " " << code;
    } else {
      ASSERT_EQ(std::bit_cast<uint64_t>(ours), std::bit_cast<uint64_t>(other)) << name_of(dtype) << " " << code;
    }
  }
}

// The implementations disagree on NaN, and on overflow in formats without NaN, so these are not compared.
void expect_codes(DType dtype, const Answer& theirs) {
  const Format& format = format_of(dtype);
  for (size_t i = 0; i < theirs.codes.size(); ++i) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(i % 65536) << 16 | kLowHalves[i / 65536]);
    if (std::isnan(x) || (!format.has_nan() && std::fabs(static_cast<double>(x)) > format.max_finite())) continue;
    const uint64_t ours = encode(dtype, static_cast<double>(x));
    if (format.is_nan_code(ours)) {
      ASSERT_TRUE(format.is_nan_code(theirs.codes[i])) << name_of(dtype) << " " << std::hexfloat << x;
    } else {
      ASSERT_EQ(ours, theirs.codes[i]) << name_of(dtype) << " " << std::hexfloat << x;
    }
  }
}

TEST(MlDtypes, HasTheSameNumbersAndRoundsTheSameWay) {
  std::string compared;
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype) || (bits_of(dtype) > 8 && dtype != DType::bf16)) continue;
    const Answer theirs = ask(dtype);
    if (theirs.status == 3 || theirs.status == 127)
      GTEST_SKIP() << "python3 cannot import ml_dtypes: no comparison with that package";
    if (theirs.status == 4) continue;
    ASSERT_EQ(theirs.status, 0) << name_of(dtype);
    expect_values(dtype, theirs);
    if (!format_of(dtype).is_scale()) expect_codes(dtype, theirs);  // theirs: NaN for zero, for a sign and for ties
    compared += " " + std::string(name_of(dtype));
  }
  std::cout << "compared:" << compared << "\n";
  EXPECT_NE(compared.find("e4m3"), std::string::npos);
}

}  // namespace
}  // namespace halfmark::kernels
