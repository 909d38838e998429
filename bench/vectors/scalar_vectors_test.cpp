// Tests of the CSV reader and of the scalar commands, on streams.
#include "bench/vectors/scalar_vectors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/vectors/csv.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/number/dtype.h"
#include "kernels/number/error.h"
#include "kernels/number/quantizer.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::bench {
namespace {

std::string complaint(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no complaint";
}

std::vector<std::string> column(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  CsvReader rows(in, {name});
  std::vector<std::string> fields;
  while (rows.next()) fields.emplace_back(rows.field(0));
  return fields;
}

TEST(CsvReader, FindsColumnsByNameInAnyOrder) {
  std::istringstream in("note,z,x\nhello,1,2\n,3 ,\t4\n");
  CsvReader rows(in, {"x", "z"});
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.field(0), "2");
  EXPECT_EQ(rows.field(1), "1");
  EXPECT_EQ(rows.line(), 2u);
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.field(0), "4");
  EXPECT_EQ(rows.field(1), "3") << "blanks around a field are removed";
  EXPECT_FALSE(rows.next());
}

TEST(CsvReader, AcceptsEveryEndOfLineAndOfFile) {
  using Fields = std::vector<std::string>;
  EXPECT_EQ(column("x\n1\n2\n", "x"), (Fields{"1", "2"}));
  EXPECT_EQ(column("x\r\n1\r\n2\r\n\r\n", "x"), (Fields{"1", "2"}));
  EXPECT_EQ(column("x\n1\n2", "x"), (Fields{"1", "2"}));
  EXPECT_EQ(column("\xEF\xBB\xBFx\n1\n\n\n", "x"), (Fields{"1"}));
  EXPECT_EQ(column("x", "x"), Fields{});
}

TEST(CsvReader, FieldsMayBeLongerThanItsBuffer) {
  const std::string long_one(3'000'001, 'a'), other(2'000'000, 'b');
  EXPECT_EQ(column("y,x\n1," + long_one + "\n" + other + "," + other + "\n3,c", "x"),
            (std::vector<std::string>{long_one, other, "c"}));
}

TEST(CsvReader, ManyRowsCrossItsBuffer) {
  std::string text = "x,y\n";
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i) + "," + std::to_string(i % 7) + "\n";
  const std::vector<std::string> fields = column(text, "x");
  ASSERT_EQ(fields.size(), 400'000u);
  for (size_t i = 0; i < fields.size(); ++i) ASSERT_EQ(fields[i], std::to_string(i));
}

TEST(CsvReader, ReportsLineAndColumnOfAnError) {
  EXPECT_EQ(complaint([] { column("", "x"); }), "the input is empty: it needs a header line with x");
  EXPECT_EQ(complaint([] { column("a,b\n1,2\n", "x"); }), "line 1: the header 'a,b' has no column 'x'");
  EXPECT_EQ(complaint([] { column("x,x\n1,2\n", "x"); }), "line 1: the header has two columns 'x'");
  EXPECT_EQ(complaint([] { column("x,y\n1,2\n3\n", "x"); }), "line 3: 1 fields, but the header has 2");
  EXPECT_EQ(complaint([] { column("x,y\n1,\"2\"\n", "x"); }),
            "line 2: quotes are not supported; write the fields without quotes");
  EXPECT_EQ(complaint([] { column("x\n1\n\n2\n", "x"); }), "line 3: blank lines are allowed only at the end");
}

TEST(CsvReader, ReadsHexOfAFixedWidth) {
  const auto hex = [](const std::string& text, int digits) {
    std::istringstream in("a,x\n0," + text + "\n");
    CsvReader rows(in, {"x"});
    rows.next();
    return rows.hex(0, digits);
  };
  EXPECT_EQ(hex("7e00", 4), 0x7E00u);
  EXPECT_EQ(hex("AbCdEf01", 8), 0xABCDEF01u);
  EXPECT_EQ(hex("fedcba9876543210", 16), 0xFEDCBA9876543210u);
  EXPECT_EQ(complaint([&] { hex("zz", 4); }), "line 2, column 'x': 'zz' is not 4 hex digits");
  EXPECT_EQ(complaint([&] { hex("0x3c", 4); }), "line 2, column 'x': '0x3c' is not 4 hex digits");
  EXPECT_EQ(complaint([&] { hex("", 1); }), "line 2, column 'x': '' is not 1 hex digit");
  EXPECT_EQ(complaint([&] { hex(std::string(100, '\x01'), 4); }),
            "line 2, column 'x': '" + std::string(40, '?') + "...' is not 4 hex digits");
}

TEST(CsvReader, ReadsListsOfHex) {
  const auto list = [](const std::string& text, int digits) {
    std::istringstream in("x\n" + text + "\n");
    CsvReader rows(in, {"x"});
    rows.next();
    std::vector<uint64_t> codes{9};
    rows.hex_list(0, digits, codes);
    return codes;
  };
  EXPECT_EQ(list("3c00BC01", 4), (std::vector<uint64_t>{0x3C00, 0xBC01}));
  EXPECT_EQ(list("17f", 1), (std::vector<uint64_t>{1, 7, 15}));
  EXPECT_EQ(complaint([&] { list("3c00b", 4); }), "line 2, column 'x': '3c00b' has 5 hex digits, not a multiple of 4");
  EXPECT_EQ(complaint([&] { list("3c0g", 2); }),
            "line 2, column 'x': '3c0g' has a character that is not a hex digit at position 4: 'g'");
}

std::string arithmetic(const std::string& input, const Format& format, ScalarOperation operation,
                       Rounding rounding = Rounding::near_even) {
  std::istringstream in(input);
  std::ostringstream out;
  answer_arithmetic(in, out, format, operation, rounding);
  return out.str();
}

std::string convert(const std::string& input, std::string_view from, std::string_view to,
                    Rounding rounding = Rounding::near_even, Overflow overflow = Overflow::format_default,
                    NoiseStream noise = {}) {
  std::istringstream in(input);
  std::ostringstream out;
  answer_convert(in, out, vector_type_named(from), vector_type_named(to), rounding, overflow, noise);
  return out.str();
}

TEST(ArithmeticCommand, AnswersEachRowWithResultAndFlags) {
  EXPECT_EQ(arithmetic("x,y\n3C00,3c00\n7bff,7BFF\n0000,fc00\n", kFp16, ScalarOperation::mul),
            "result,flags\n3c00,0\n7c00,5\n7e00,10\n");
  EXPECT_EQ(arithmetic("z,note,y,x\n6801,?,3bfe,3c01\n", kFp16, ScalarOperation::mul_add), "result,flags\n6801,1\n");
  EXPECT_EQ(arithmetic("x\n8000\nbf80\n4080\n", kBf16, ScalarOperation::sqrt),
            "result,flags\n8000,0\n7fc0,10\n4000,0\n");
  EXPECT_EQ(arithmetic("x,y\n3f80,0000\n0001,3f00\n", kBf16, ScalarOperation::div), "result,flags\n7f80,8\n0002,0\n");
  EXPECT_EQ(arithmetic("x,y\n0001,4000\n", kFp16, ScalarOperation::div, Rounding::toward_zero),
            "result,flags\n0000,3\n");
  EXPECT_EQ(arithmetic("x,y\n", kFp16, ScalarOperation::add), "result,flags\n");
  EXPECT_EQ(complaint([] { arithmetic("x,y\n3c00,3c00\n3c00,zz\n", kFp16, ScalarOperation::add); }),
            "line 3, column 'y': 'zz' is not 4 hex digits");
  EXPECT_EQ(complaint([] { arithmetic("x,y\n", kFp16, ScalarOperation::mul_add); }),
            "line 1: the header 'x,y' has no column 'z'");
}

TEST(ConvertCommand, AcceptsEveryTypeInItsWidth) {
  EXPECT_EQ(convert("x\n3f800000\n43e80000\n43e80001\n7fc00000\n", "f32", "e4m3"),
            "result,flags\n38,0\n7e,1\n7f,5\n7f,0\n");
  EXPECT_EQ(convert("x\n47800000\n", "f32", "e4m3", Rounding::near_even, Overflow::saturate), "result,flags\n7e,5\n");
  EXPECT_EQ(convert("x\n47800000\n", "f32", "f16", Rounding::near_even, Overflow::nan), "result,flags\n7e00,5\n");
  EXPECT_EQ(convert("x\n3ff0000000000001\n", "f64", "f32"), "result,flags\n3f800000,1\n");
  EXPECT_EQ(convert("x\n7\nF\n", "e2m1", "f16"), "result,flags\n4600,0\nc600,0\n");
  EXPECT_EQ(convert("x\n4780\n", "bf16", "e2m1"), "result,flags\n7,5\n");
  EXPECT_EQ(convert("x\n3f\n1f\n", "e3m2", "e2m3"), "result,flags\n3f,5\n1f,5\n");
  EXPECT_EQ(convert("x\n7f\n", "e8m0", "f32"), "result,flags\n3f800000,0\n");
  EXPECT_EQ(convert("x\nc020\n", "bf16", "i32", Rounding::toward_zero), "result,flags\nfffffffe,1\n");
  EXPECT_EQ(convert("x\nff\n", "u8", "e4m3"), "result,flags\n78,1\n");
  EXPECT_EQ(complaint([] { convert("x\n40\n", "e2m3", "f16"); }),
            "line 2, column 'x': '40' has more than the 6 bits of e2m3");
  EXPECT_NE(complaint([] { vector_type_named("fp16"); }).find("known: f64, f32, f16"), std::string::npos);
}

TEST(ConvertCommand, Tf32IsWrittenAsAnF32) {
  EXPECT_EQ(convert("x\n3f801000\n3f803000\nff801234\n", "f32", "tf32"),
            "result,flags\n3f800000,1\n3f804000,1\n7fc00000,10\n");
  EXPECT_EQ(convert("x\n3f802000\n", "tf32", "bf16"), "result,flags\n3f80,1\n");
  EXPECT_EQ(convert("x\n00000001\n", "i32", "tf32"), "result,flags\n3f800000,0\n");
  EXPECT_EQ(complaint([] { convert("x\n3f800001\n", "tf32", "f16"); }),
            "line 2, column 'x': '3f800001' is not tf32: its low 13 bits are not zero");
}

TEST(ConvertCommand, StochasticResultsFollowTheSeed) {
  std::string input = "x\n";
  for (int i = 0; i < 1000; ++i) input += "3f800800\n";  // a quarter of an ulp above 1
  const auto ups = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find("3c01,1", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const std::string one = convert(input, "f32", "f16", Rounding::stochastic, Overflow::format_default, {.seed = 1});
  EXPECT_EQ(one, convert(input, "f32", "f16", Rounding::stochastic, Overflow::format_default, {.seed = 1}));
  EXPECT_NE(one, convert(input, "f32", "f16", Rounding::stochastic, Overflow::format_default, {.seed = 2}));
  EXPECT_NEAR(static_cast<double>(ups(one)), 250, 6 * 13.7);  // six standard deviations of a binomial
}

// What a kernel rounded in a run, from the codes that went in and the seed.
TEST(ConvertCommand, StochasticRoundingRepeatsTheKernels) {
  CpuDevice cpu;
  constexpr int64_t kCount = 500, kFirst = 37;
  constexpr uint64_t kSeed = 0xFEDCBA9876543210;
  std::vector<double> values;
  for (int64_t i = 0; i < kCount; ++i) values.push_back(RandomKey(3).normal(static_cast<uint64_t>(i)));
  const Tensor x = Tensor::from(cpu, {kCount}, DType::f32, values);
  for (const DType to : dtypes()) {
    if (!is_floating(to) || to == DType::f64) continue;
    Tensor out(cpu, {kCount}, to);
    run(Cast{.x = x, .out = out, .rounding = Rounding::stochastic, .noise = kSeed});
    const std::vector<unsigned char> codes = x.codes(), rounded = out.codes();
    std::string input = "x\n";
    std::vector<std::string> expected;
    for (size_t i = kFirst; i < kCount; ++i) {
      input += fmt::format("{:08x}\n", load_code(DType::f32, codes.data(), i));
      expected.push_back(fmt::format("{:0{}x}", load_code(to, rounded.data(), i), (bits_of(to) + 3) / 4));
    }
    const std::string answer = convert(input, "f32", name_of(to), Rounding::stochastic, Overflow::format_default,
                                       {.seed = kSeed, .first = kFirst});
    EXPECT_EQ(column(answer, "result"), expected) << name_of(to);
    std::vector<unsigned char> array(bytes_for(to, kCount));
    halfmark::kernels::convert(DType::f32, codes.data(), to, array.data(), kCount, Rounding::stochastic,
                               {.seed = kSeed});
    EXPECT_EQ(array, rounded) << name_of(to) << ": convert() of the whole array";
  }
}

// 1 + 2^-20 has more bits than bf16; NaNs are taken.
TEST(QuantizeCommand, TakesOnlyNumbersOfTheInputsDtype) {
  const auto answer = [](const std::string& code, DType input) {
    std::istringstream in("x\n3f800000\n" + code + "\n");
    std::ostringstream out;
    return complaint([&] { answer_quantize(in, out, quantizer_named("te-mxfp8-e4m3"), 2, input, {}); });
  };
  EXPECT_EQ(answer("3f800008", DType::f32), "no complaint");
  EXPECT_EQ(answer("3f800008", DType::bf16),
            "line 3, column 'x': '3f800008' is 1.00000095, which is not a number of bf16");
  EXPECT_EQ(answer("7fc00001", DType::bf16), "no complaint");
  EXPECT_EQ(answer("7f800000", DType::f16), "no complaint");
}

TEST(Answers, AnOutputThatTakesNothingIsAnError) {
  std::istringstream in("x\n3c00\n");
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_NE(complaint([&] {
              answer_convert(in, out, vector_type_named("f16"), vector_type_named("f32"), Rounding::near_even,
                             Overflow::format_default);
            }).find("could not be written"),
            std::string::npos);
}

}  // namespace
}  // namespace halfmark::bench
