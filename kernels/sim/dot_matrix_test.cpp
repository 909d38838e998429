// Every path of dot_matrix gives the bits of dot(), for every row of the table and for hypothetical rows, on ordinary
// data and on adversarial data. HALFMARK_LONG=1: ten million dot products for each path and pair of formats.
#include "kernels/sim/dot_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_engine.h"

namespace halfmark::kernels {
namespace {

using Random = std::mt19937_64;

// Classes of matrix data. Two operands of a class are drawn so that their products are as its name says.
enum class Data {
  normal,        // as in training
  range,         // exponents over the whole range of the format
  inner_range,   // exponents over the range that the vector paths handle
  cut,           // one large product, the others about F bits below, significands all ones
  pairs,         // every product has its negative next to it
  near_pairs,    // the same, except for one bit
  rest,          // large pairs that cancel, the rest at the last kept bits
  ties,          // few-bit numbers, whose sums lie halfway between fp16 numbers
  subnormals,    // subnormals and the smallest normal numbers
  large,         // the largest numbers
  full,          // significands all ones, one sign: the largest sums
  nearly_full,   // the same with other low bits, some terms far below: 33-bit sums with any last bits
  signed_zeros,  // zeros of both signs, some other numbers
  specials,      // a few infinities and NaNs among normal numbers
  bits,          // any code
};
constexpr Data kData[] = {Data::normal,     Data::range,       Data::inner_range,  Data::cut,        Data::pairs,
                          Data::near_pairs, Data::rest,        Data::ties,         Data::subnormals, Data::large,
                          Data::full,       Data::nearly_full, Data::signed_zeros, Data::specials,   Data::bits};

DType dtype_of(const Format& format) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2})
    if (format_of(dtype) == format) return dtype;
  return DType::f32;
}

uint32_t code_of(const Format& format, double x) { return static_cast<uint32_t>(encode(dtype_of(format), x)); }

class Source {
 public:
  Source(Random& random, const Format& format, const TensorCore& core) : random_(random), format_(format), core_(core) {
    // One power of two that scales the operands of a vector, so that large and small sums meet.
    shift_ = static_cast<int>(random() % 5) - 2;
  }

  // The codes of one vector. `place` numbers the terms in the same way for both operands.
  std::vector<uint32_t> vector(Data data, size_t depth, bool left) {
    std::vector<uint32_t> codes(depth);
    for (size_t k = 0; k < depth; ++k) codes[k] = code(data, k, left, k ? codes[k - 1] : 0);
    return codes;
  }

 private:
  uint32_t code(Data data, size_t k, bool left, uint32_t previous) {
    const int least = format_.min_subnormal_exponent(), most = format_.max_exponent(), f = format_.fraction_bits;
    switch (data) {
      case Data::normal:
        return make(std::normal_distribution<double>()(random_));
      case Data::range:
        return make(power(least, most, any_significand()));
      case Data::inner_range:
        return make(
            power(std::max(least, left ? -80 : -20), std::min(most, dot_engine::kLargestOperand), any_significand()));
      case Data::cut: {
        const int half = core_.block.kept_fraction_bits / 2;
        return make(random_() % 8 == 0 ? power(shift_, shift_, 1) : power(-half - 2, -half + 2, ones()));
      }
      case Data::pairs:
        return k % 2 ? left ? negated(previous) : previous : make(power(-6, 6, any_significand()));
      case Data::near_pairs: {
        if (k % 2 == 0) return make(power(-6, 6, any_significand()));
        const uint32_t near = !left && random_() % 4 == 0 ? previous ^ unit() : previous;
        return left ? negated(near) : near;
      }
      case Data::rest:
        if (k % 8 < 2) return k % 2 ? left ? negated(previous) : previous : make(power(4, 6, any_significand()));
        return make(
            power(5 - core_.block.kept_fraction_bits / 2 - 3, 5 - core_.block.kept_fraction_bits / 2 + 1, ones()));
      case Data::ties:
        return make(power(-7, 1, 1 + static_cast<double>(random_() % 2) / 2));
      case Data::subnormals:
        return make(power(least, least + f + 2, any_significand()));
      case Data::large:
        return make(power(most - 2, most, any_significand()));
      case Data::full:
        return make((left ? 1 : sign_) * std::ldexp(ones(), shift_));
      case Data::nearly_full: {
        const double sign = left ? 1 : sign_;
        if (random_() % 8 == 0) return make(sign * std::fabs(power(shift_ - 14, shift_ - 1, any_significand())));
        return make(sign * std::ldexp(2 - ulp() * static_cast<double>(random_() % 8), shift_));
      }
      case Data::signed_zeros:
        return random_() % 4 ? make(random_() % 2 ? 0.0 : -0.0) : make(power(-4, 4, any_significand()));
      case Data::specials: {
        const auto one = random_() % 64;
        if (one == 0) return make(std::numeric_limits<double>::quiet_NaN());
        if (one == 1) return code_of(format_, std::numeric_limits<double>::infinity());
        if (one == 2) return code_of(format_, -std::numeric_limits<double>::infinity());
        return make(std::normal_distribution<double>()(random_));
      }
      case Data::bits:
        return static_cast<uint32_t>(random_());
    }
    return 0;
  }

  double any_significand() { return 1 + static_cast<double>(random_() % (1u << format_.fraction_bits)) * ulp(); }
  double ones() const { return 2 - ulp(); }
  double ulp() const { return std::ldexp(1, -format_.fraction_bits); }
  uint32_t unit() const { return format_ == kTf32 ? 1u << 13 : 1u; }
  double power(int low, int high, double significand) {
    const int exponent = low + static_cast<int>(random_() % static_cast<unsigned>(std::max(high - low, 0) + 1));
    return std::ldexp(random_() % 2 ? significand : -significand, exponent);
  }
  uint32_t make(double x) {
    const uint32_t code = code_of(format_, x);
    // The low bits of a tf32 register, below its format, are dropped.
    return format_ == kTf32 && random_() % 2 ? code ^ static_cast<uint32_t>(random_() & 0x1FFF) : code;
  }
  uint32_t negated(uint32_t code) const {
    return code ^ (format_ == kTf32 ? 0x80000000u : 1u << (format_.exponent_bits + format_.fraction_bits));
  }

  Random& random_;
  const Format& format_;
  const TensorCore& core_;
  int shift_;
  double sign_ = random_() % 2 ? 1 : -1;
};

uint32_t addend(const TensorCore& core, Random& random) {
  const Format& format = core.result;
  const auto choice = random() % 16;
  if (choice < 5) return 0;
  if (choice == 5) return code_of(format, -0.0);
  if (choice == 6) return static_cast<uint32_t>(random() & (format == kFp16 ? 0xFFFF : 0xFFFFFFFF));
  if (choice == 7) return code_of(format, std::numeric_limits<double>::infinity());
  if (choice < 12) return code_of(format, std::normal_distribution<double>()(random));
  const double significand = 2 - std::ldexp(static_cast<double>(random() % 4), -format.fraction_bits);
  return code_of(format, std::ldexp(random() % 2 ? significand : -significand, static_cast<int>(random() % 40) - 24));
}

struct Matrix {
  Format format;
  size_t vectors, depth, stride;
  std::vector<std::vector<uint32_t>> codes;
  std::vector<unsigned char> bytes;

  Matrix(Source source, Data data, const Format& f, size_t n, size_t k, size_t gap, bool left)
      : format(f), vectors(n), depth(k), stride(k + gap), bytes(n * stride * size_of_operand(f)) {
    for (size_t i = 0; i < n; ++i) {
      codes.push_back(source.vector(data, k, left));
      for (size_t t = 0; t < k; ++t)
        std::memcpy(&bytes[(i * stride + t) * size_of_operand(f)], &codes[i][t], size_of_operand(f));
    }
  }
  Panel panel() const { return {format, bytes.data(), vectors, depth, stride}; }
  std::vector<Term> terms(size_t i) const {
    std::vector<Term> result;
    const uint32_t mask = size_of_operand(format) == 4 ? 0xFFFFFFFFu : size_of_operand(format) == 2 ? 0xFFFFu : 0xFFu;
    for (const uint32_t code : codes[i]) result.push_back(take_apart(format, code & mask));
    return result;
  }
};

std::vector<uint32_t> expected(const TensorCore& core, const Matrix& a, const Matrix& b, std::vector<uint32_t> d) {
  std::vector<std::vector<Term>> right;
  for (size_t j = 0; j < b.vectors; ++j) right.push_back(b.terms(j));
  parallel_for(static_cast<int64_t>(a.vectors), 8, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::vector<Term> left = a.terms(i);
      for (size_t j = 0; j < b.vectors; ++j) {
        uint32_t& out = d[i * b.vectors + j];
        out = dot(core, {a.format, left}, {b.format, right[j]}, out);
      }
    }
  });
  return d;
}

bool takes(const TensorCore& core) {
  return (core.summation == Summation::blocks || core.summation == Summation::interleaved) && !core.scaling.block &&
         core.addend == core.result;
}

std::vector<std::pair<Format, Format>> pairings(Operands operands) {
  switch (operands) {
    case Operands::f16:
      return {{kFp16, kFp16}};
    case Operands::bf16:
      return {{kBf16, kBf16}};
    case Operands::tf32:
      return {{kTf32, kTf32}};
    case Operands::fp8:
      return {{kE4m3, kE4m3}, {kE4m3, kE5m2}, {kE5m2, kE4m3}, {kE5m2, kE5m2}};
    case Operands::fp4:
    case Operands::fp64:
      break;  // dot_matrix has no path for them
  }
  return {};
}

std::vector<TensorCore> rows_of_the_table() {
  std::vector<TensorCore> rows;
  for (const TensorCore& core : tensor_cores())
    if (takes(core)) rows.push_back(core);
  return rows;
}

// L of 1 .. 64, F of 8 .. 35, and any e_zero, including values that no known GPU has.
TensorCore random_row(Random& random) {
  TensorCore core = tensor_cores().front();
  constexpr Operands kOperands[] = {Operands::f16, Operands::bf16, Operands::tf32, Operands::fp8};
  core.operands = kOperands[random() % 4];
  const bool half = random() % 2;
  core.addend = core.result = half ? kFp16 : kFp32;
  core.summation = Summation::blocks;
  if (random() % 4 == 0) core.summation = Summation::interleaved, core.instruction = MatrixInstruction::mma_m16n8k32;
  core.block.products = random() % 2 ? static_cast<int>(1 + random() % 64) : 1 << random() % 7;
  core.block.kept_fraction_bits = static_cast<int>(8 + random() % 28);
  core.block.zero_exponent = random() % 2 ? kNoZeroExponent : -static_cast<int>(random() % 150);
  core.block.rounding = half                ? BlockRounding::near_even_fp16
                        : random() % 3 == 0 ? BlockRounding::truncate_e8m13
                                            : BlockRounding::truncate_fp32;
  return core;
}

bool long_run() { return std::getenv("HALFMARK_LONG") != nullptr; }

class DotMatrix : public testing::TestWithParam<DotPath> {
 protected:
  void SetUp() override {
    if (!std::ranges::count(dot_paths(), GetParam()))
      GTEST_SKIP() << "this CPU does not have the path " << name_of(GetParam());
  }

  // Compares one product of matrices; returns the number of dot products in it.
  size_t compare(const TensorCore& core, const Format& left, const Format& right, Data data, Random& random) {
    const size_t l = static_cast<size_t>(std::max(core.block.products, 1));
    const size_t depths[] = {1, 3, l - 1, l, l + 1, 2 * l + 3, 5 * l, 9 * l + 2};
    const size_t depth = depths[random() % std::size(depths)], gap = random() % 3;
    const Matrix a(Source(random, left, core), data, left, 1 + random() % 37, depth, gap, true),
        b(Source(random, right, core), data, right, 1 + random() % 19, depth, gap, false);
    std::vector<uint32_t> c(a.vectors * b.vectors);
    if (random() % 4)
      for (uint32_t& x : c) x = addend(core, random);
    const std::vector<uint32_t> want = expected(core, a, b, c);
    std::vector<uint32_t> got = c;
    dot_matrix(GetParam(), core, a.panel(), b.panel(), got.data());
    for (size_t i = 0; i < want.size(); ++i)
      if (got[i] != want[i]) {
        ADD_FAILURE() << std::hex << got[i] << " instead of " << want[i] << std::dec << ", " << left.name << " times "
                      << right.name << ", c " << std::hex << c[i] << std::dec << ", data " << static_cast<int>(data)
                      << ", k " << depth << ": " << core.architecture << " " << text_of(core) << ", L "
                      << core.block.products << ", e_zero " << core.block.zero_exponent;
        break;
      }
    return want.size();
  }

  void compare_rows(const std::vector<TensorCore>& rows, uint64_t seed, size_t dots_of_format) {
    Random random(seed);
    for (const TensorCore& core : rows)
      for (const auto& [left, right] : pairings(core.operands))
        for (size_t dots = 0, round = 0; round == 0 || dots < dots_of_format; ++round)
          for (const Data data : kData) {
            dots += compare(core, left, right, data, random);
            if (HasFailure()) return;
          }
  }
};

TEST_P(DotMatrix, GivesTheBitsOfDotForEveryRowOfTheTable) {
  constexpr size_t kDotsOfFormats = 10'000'000;
  for (const Operands operands : {Operands::f16, Operands::bf16, Operands::tf32, Operands::fp8}) {
    std::vector<TensorCore> rows;
    for (const TensorCore& core : rows_of_the_table())
      if (core.operands == operands) rows.push_back(core);
    ASSERT_FALSE(rows.empty());
    compare_rows(rows, 1 + static_cast<uint64_t>(operands), long_run() ? kDotsOfFormats / rows.size() : 0);
    if (HasFailure()) return;
  }
}

TEST_P(DotMatrix, GivesTheBitsOfDotForRowsThatStandInNoTable) {
  Random random(2);
  std::vector<TensorCore> rows;
  for (int i = 0; i < (long_run() ? 1000 : 50); ++i) rows.push_back(random_row(random));
  compare_rows(rows, 3, 0);
}

TEST_P(DotMatrix, GivesTheBitsOfDotForEveryFormatOfAByte) {
  Random random(5);
  const TensorCore* core = find_core(tensor_cores(), "hopper", MatrixInstruction::usual, {kE4m3, kE4m3, kFp32, kFp32});
  ASSERT_NE(core, nullptr);
  for (const Format& format : formats())
    for (const Data data : kData)
      if (format.bits() <= 8 && !format.is_scale()) compare(*core, format, format, data, random);
}

TEST_P(DotMatrix, DoesNotDependOnTheNumberOfThreads) {
  Random random(4);
  const TensorCore* core = find_core(tensor_cores(), "hopper", MatrixInstruction::usual, {kFp16, kFp16, kFp32, kFp32});
  ASSERT_NE(core, nullptr);
  const Matrix a(Source(random, kFp16, *core), Data::specials, kFp16, 100, 70, 0, true),
      b(Source(random, kFp16, *core), Data::normal, kFp16, 90, 70, 0, false);
  const int before = host_threads();
  std::vector<uint32_t> one(9000), three(9000);
  set_host_threads(1);
  dot_matrix(GetParam(), *core, a.panel(), b.panel(), one.data());
  set_host_threads(3);
  dot_matrix(GetParam(), *core, a.panel(), b.panel(), three.data());
  set_host_threads(before);
  EXPECT_EQ(one, three);
}

TEST_P(DotMatrix, LeavesCWhereTheDepthIsZero) {
  for (const TensorCore& core : rows_of_the_table()) {
    const Format format = pairings(core.operands).front().first;
    std::vector<uint32_t> d{0, 0x8000, 0x7C01, 0x3C00, 5, 6};
    const std::vector<uint32_t> c = d;
    dot_matrix(GetParam(), core, {format, nullptr, 2, 0, 0}, {format, nullptr, 3, 0, 0}, d.data());
    EXPECT_EQ(d, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, DotMatrix, testing::Values(DotPath::scalar, DotPath::avx2, DotPath::avx512),
                         [](const auto& path) { return std::string(name_of(path.param)); });

TEST(DotEngine, RefusesFormatsThatNoPanelHolds) {
  EXPECT_EQ(size_of_operand(kBf16), 2u);
  EXPECT_EQ(size_of_operand(kE2m1), 1u);
  for (const Format& format : {kFp32, kFp64, Format{"e5m3", 5, 3}}) EXPECT_THROW((void)size_of_operand(format), Error);
  const std::vector<unsigned char> codes(64);
  for (const Format& format : {Format{"e6m9", 6, 9}, Format{"e4m2", 4, 2}}) {
    const Panel panel{format, codes.data(), 4, 8, 8};
    const TensorCore* core =
        find_core(tensor_cores(), "hopper", MatrixInstruction::usual, {kFp16, kFp16, kFp32, kFp32});
    ASSERT_NE(core, nullptr);
    const auto plan = dot_engine::plan_for(*core, kFp16, kFp16);
    ASSERT_TRUE(plan);
    EXPECT_THROW(dot_engine::Packed(*plan, panel, 4, false, -60), Error) << format.name;
  }
}

// Those that a matmul uses: the usual instruction for its types.
TEST(DotEngine, TakesEveryRowThatAMatmulUses) {
  int rows = 0;
  for (const TensorCore& core : tensor_cores()) {
    if (!takes(core)) continue;
    for (const auto& [left, right] : pairings(core.operands)) {
      const DotTypes types{left, right, core.addend, core.result};
      if (find_core(tensor_cores(), core.architecture, MatrixInstruction::usual, types) != &core) continue;
      EXPECT_TRUE(dot_engine::plan_for(core, left, right)) << core.architecture << " " << text_of(core);
      ++rows;
    }
  }
  EXPECT_GT(rows, 30);
}

}  // namespace
}  // namespace halfmark::kernels
