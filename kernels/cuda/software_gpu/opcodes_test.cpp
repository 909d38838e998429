// Instructions that compute each lane by itself, each against a plain definition that shares no code with its handler.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"
#include "kernels/number/arithmetic.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu {
namespace {

using Word = uint64_t;
using Definition = std::function<Word(Word a, Word b, Word c)>;

// `text`: the instruction, with operands D, A, B, C that stand for registers of the stated widths.
struct OpcodeRow {
  std::string text;
  int d_bits, a_bits, b_bits, c_bits;  // 0: not used
  Definition definition;
};

std::string reg(int bits, int number) {
  return (bits == 16 ? "%h" : bits == 32 ? "%r" : "%rd") + std::to_string(20 + number);
}
std::string with_registers(std::string text, const OpcodeRow& row) {
  const int bits[] = {row.d_bits, row.a_bits, row.b_bits, row.c_bits};
  for (int n = 0; n < 4; ++n)
    for (size_t at = 0; (at = text.find("DABC"[n], at)) != std::string::npos; ++at)
      text.replace(at, 1, reg(bits[n], n));
  return text;
}

std::vector<Word> inputs() {
  std::vector<Word> all{0,
                        1,
                        2,
                        3,
                        31,
                        32,
                        33,
                        63,
                        64,
                        0x7F,
                        0x80,
                        0xFF,
                        0x7FFF,
                        0x8000,
                        0xFFFF,
                        0x3C00,
                        0xBC01,
                        0x7C00,
                        0x7E00,
                        0x0001,
                        0x03FF,
                        0x3F800000,
                        0xBF800001,
                        0x7F800000,
                        0x7FC00000,
                        0x00000001,
                        0x007FFFFF,
                        0x7FFFFFFF,
                        0x80000000,
                        0xFFFFFFFF,
                        0x4B000001,
                        0x3EAAAAAB,
                        0x7F7FFFFF,
                        0x3FF0000000000000u,
                        0xBFF0000000000001u,
                        0x7FF0000000000000u,
                        0x7FF8000000000000u,
                        1ull << 63,
                        ~0ull,
                        0x36A0000000000001u,
                        0x47EFFFFFFFFFFFFFu,
                        0x3FD5555555555555u,
                        0x41EFFFFFFFF00000u};
  Word x = 88172645463325252u;
  while (all.size() < 256) {  // xorshift64
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    all.push_back(x);
    // Exponents near those of 1, where sums and products round.
    all.push_back((x & 0x807FFFFF) | (0x3F000000 + (x >> 40 & 3) * 0x00800000));
  }
  return all;
}

class Opcode : public SoftwareGpu {
 protected:
  // One thread for each triple of inputs.
  void check(const OpcodeRow& row) {
    const std::vector<Word> values = inputs();
    std::vector<Word> in;
    for (size_t n = 0; n < 1024; ++n)
      for (const size_t step : {1, 7, 13}) in.push_back(values[(n * step + n / 256 * 31 * step) % values.size()]);
    std::string body =
        "mul.wide.u32 %rd2, %r1, 24;\nadd.s64 %rd3, %rd1, %rd2;\nmul.wide.u32 %rd4, %r1, 8;\nadd.s64 %rd5, %rd0, "
        "%rd4;\n";
    const int bits[] = {row.d_bits, row.a_bits, row.b_bits, row.c_bits};
    for (int n = 1; n < 4; ++n)
      if (bits[n])
        body += "ld.global.b" + std::to_string(bits[n]) + " " + reg(bits[n], n) + ", [%rd3+" +
                std::to_string(8 * n - 8) + "];\n";
    body += "st.global.u64 [%rd5], 0;\n" + with_registers(row.text, row) + "\nst.global.b" +
            std::to_string(row.d_bits) + " [%rd5], " + reg(row.d_bits, 0) + ";";
    Word* to = on_device(std::vector<Word>(in.size() / 3));
    const Word* from = on_device(in);
    const KernelRun run = run_kernel(module_of_body(body, "sm_90a"), to, from, 0, dim3(4), dim3(256));
    ASSERT_EQ(run.status(), cudaSuccess) << row.text << ": " << run.text;
    const std::vector<Word> out = from_device(to, in.size() / 3);
    const auto cut = [](Word x, int width) { return width == 64 || width == 0 ? x : x & ((Word{1} << width) - 1); };
    int shown = 0;
    for (size_t n = 0; n < out.size() && shown < 3; ++n) {
      const Word a = cut(in[3 * n], row.a_bits), b = cut(in[3 * n + 1], row.b_bits), c = cut(in[3 * n + 2], row.c_bits);
      const Word wanted = cut(row.definition(a, b, c), row.d_bits);
      EXPECT_EQ(out[n], wanted) << row.text << std::hex << " of " << a << " " << b << " " << c;
      if (out[n] != wanted) ++shown;
    }
  }
};

int64_t s32(Word x) { return static_cast<int32_t>(x); }
int64_t s16(Word x) { return static_cast<int16_t>(x); }
int64_t s64(Word x) { return static_cast<int64_t>(x); }
float single(Word x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); }
double wide(Word x) { return std::bit_cast<double>(x); }
Word code(float x) { return std::isnan(x) ? 0x7FFFFFFF : std::bit_cast<uint32_t>(x); }
Word code(double x) { return std::bit_cast<Word>(x); }

TEST_F(Opcode, OfIntegers) {
  const OpcodeRow rows[] = {
      {"add.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return a + b; }},
      {"add.s64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return a + b; }},
      {"add.s16 D, A, B;", 16, 16, 16, 0, [](Word a, Word b, Word) { return a + b; }},
      {"add.u32 D, A, -7;", 32, 32, 0, 0, [](Word a, Word, Word) { return a - 7; }},
      {"add.sat.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return static_cast<Word>(std::min<int64_t>(std::max<int64_t>(s32(a) + s32(b), INT32_MIN), INT32_MAX)); }},
      {"sub.s16 D, A, B;", 16, 16, 16, 0, [](Word a, Word b, Word) { return a - b; }},
      {"sub.s64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return a - b; }},
      {"mul.lo.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return a * b; }},
      {"mul.hi.u32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return a * b >> 32; }},
      {"mul.hi.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return static_cast<Word>(s32(a) * s32(b) >> 32); }},
      {"mul.wide.u16 D, A, B;", 32, 16, 16, 0, [](Word a, Word b, Word) { return a * b; }},
      {"mul.wide.s32 D, A, B;", 64, 32, 32, 0, [](Word a, Word b, Word) { return static_cast<Word>(s32(a) * s32(b)); }},
      {"mad.lo.s32 D, A, B, C;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return a * b + c; }},
      {"mad.wide.u32 D, A, B, C;", 64, 32, 32, 64, [](Word a, Word b, Word c) { return a * b + c; }},
      {"div.u32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b ? a / b : ~Word{0}; }},
      {"div.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b ? static_cast<Word>(s32(a) / s32(b)) : ~Word{0}; }},
      {"rem.u32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b ? a % b : a; }},
      {"rem.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b ? static_cast<Word>(s32(a) % s32(b)) : a; }},
      {"min.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return s32(a) < s32(b) ? a : b; }},
      {"max.u64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return a < b ? b : a; }},
      {"abs.s32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return static_cast<Word>(std::abs(s32(a))); }},
      {"neg.s16 D, A;", 16, 16, 0, 0, [](Word a, Word, Word) { return static_cast<Word>(-s16(a)); }},
      {"and.b32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return a & b; }},
      {"or.b64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return a | b; }},
      {"xor.b16 D, A, B;", 16, 16, 16, 0, [](Word a, Word b, Word) { return a ^ b; }},
      {"not.b64 D, A;", 64, 64, 0, 0, [](Word a, Word, Word) { return ~a; }},
      {"shl.b32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b > 31 ? 0 : a << b; }},
      {"shl.b64 D, A, B;", 64, 64, 32, 0, [](Word a, Word b, Word) { return b > 63 ? 0 : a << b; }},
      {"shl.b16 D, A, B;", 16, 16, 32, 0, [](Word a, Word b, Word) { return b > 15 ? 0 : a << b; }},
      {"shr.u32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return b > 31 ? 0 : a >> b; }},
      {"shr.s32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return static_cast<Word>(s32(a) >> std::min<Word>(b, 31)); }},
      {"shr.s64 D, A, B;", 64, 64, 32, 0, [](Word a, Word b, Word) { return static_cast<Word>(s64(a) >> std::min<Word>(b, 63)); }},
      {"shr.u16 D, A, B;", 16, 16, 32, 0, [](Word a, Word b, Word) { return b > 15 ? 0 : a >> b; }},
      {"popc.b64 D, A;", 32, 64, 0, 0, [](Word a, Word, Word) { Word n = 0; for (; a; a >>= 1) n += a & 1; return n; }},
      {"clz.b32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { Word n = 32; for (; a; a >>= 1) --n; return n; }},
      {"brev.b32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { Word r = 0; for (int n = 0; n < 32; ++n) r |= (a >> n & 1) << (31 - n); return r; }},
      {"bfind.u32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { Word n = ~Word{0}; for (; a; a >>= 1) ++n; return n; }},
      {"bfind.shiftamt.u32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { if (!a) return Word{0xffffffff}; Word n = 0; for (; !(a >> 31); a <<= 1) ++n; return n; }},
      {"bfe.u32 D, A, 5, 9;", 32, 32, 0, 0, [](Word a, Word, Word) { return a >> 5 & 0x1FF; }},
      {"bfe.s32 D, A, 28, 9;", 32, 32, 0, 0, [](Word a, Word, Word) { return static_cast<Word>(s32(a) >> 28); }},
      {"bfi.b32 D, A, B, 5, 27;", 32, 32, 32, 0, [](Word a, Word b, Word) { return (a << 5) | (b & 31); }},
      {"bfi.b32 D, A, B, 4, 8;", 32, 32, 32, 0, [](Word a, Word b, Word) { return (a & 0xFF) << 4 | (b & ~Word{0xFF0}); }},
      {"prmt.b32 D, A, B, 0x5410;", 32, 32, 32, 0, [](Word a, Word b, Word) { return (a & 0xFFFF) | b << 16; }},
      {"prmt.b32 D, A, B, 0x8887;", 32, 32, 32, 0, [](Word a, Word b, Word) { return (b >> 24 & 0xFF) | (a & 0x80 ? 0xFFFFFF00 : 0); }},
      {"lop3.b32 D, A, B, C, 0x96;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return a ^ b ^ c; }},
      {"lop3.b32 D, A, B, C, 202;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return (a & b) | (~a & c); }},
      {"shf.l.wrap.b32 D, A, B, C;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return (b << 32 | a) << (c & 31) >> 32; }},
      {"shf.r.clamp.b32 D, A, B, C;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return (b << 32 | a) >> std::min<Word>(c, 32); }},
      {"sad.u32 D, A, B, C;", 32, 32, 32, 32, [](Word a, Word b, Word c) { return c + (a < b ? b - a : a - b); }},
      {"mov.b64 {%r30, %r31}, A; mov.b64 D, {%r31, %r30};", 64, 64, 0, 0, [](Word a, Word, Word) { return a << 32 | a >> 32; }},
      {"mov.b32 D, {A, B};", 32, 16, 16, 0, [](Word a, Word b, Word) { return b << 16 | a; }},
      {"{ .reg .b32 %r1; mov.u32 %r1, A; add.u32 D, %r1, 1; }", 32, 32, 0, 0, [](Word a, Word, Word) { return a + 1; }},
  };
  for (const OpcodeRow& row : rows) check(row);
}

TEST_F(Opcode, OfFloats) {
  const auto flush = [](float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
  const OpcodeRow rows[] = {
      {"add.rn.f32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return code(single(a) + single(b)); }},
      {"add.f32 D, A, 0f3F800000;", 32, 32, 0, 0, [](Word a, Word, Word) { return code(single(a) + 1.0f); }},
      {"add.rn.ftz.f32 D, A, B;", 32, 32, 32, 0,
       [=](Word a, Word b, Word) { return code(flush(flush(single(a)) + flush(single(b)))); }},
      {"add.rn.sat.f32 D, A, B;", 32, 32, 32, 0,
       [](Word a, Word b, Word) {
         const float x = single(a) + single(b);
         return code(x > 0 ? std::min(x, 1.0f) : 0.0f);
       }},
      {"sub.rn.f32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return code(single(a) - single(b)); }},
      {"mul.rn.f32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return code(single(a) * single(b)); }},
      {"fma.rn.f32 D, A, B, C;", 32, 32, 32, 32,
       [](Word a, Word b, Word c) {
         return code(static_cast<float>(fused_multiply_add(
             kFp32, static_cast<double>(single(a)), static_cast<double>(single(b)), static_cast<double>(single(c)))));
       }},
      {"div.rn.f32 D, A, B;", 32, 32, 32, 0, [](Word a, Word b, Word) { return code(single(a) / single(b)); }},
      {"rcp.rn.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return code(1 / single(a)); }},
      {"sqrt.rn.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return code(std::sqrt(single(a))); }},
      {"abs.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return a & 0x7FFFFFFF; }},
      {"neg.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return a ^ 0x80000000; }},
      {"copysign.f32 D, A, B;", 32, 32, 32, 0,
       [](Word a, Word b, Word) { return (a & 0x80000000) | (b & 0x7FFFFFFF); }},
      {"max.f32 D, A, B;", 32, 32, 32, 0,
       [](Word a, Word b, Word) {
         return std::isnan(single(a))    ? (std::isnan(single(b)) ? 0x7FFFFFFF : b)
                : std::isnan(single(b))  ? a
                : single(a) == single(b) ? (a & b)
                : single(a) < single(b)  ? b
                                         : a;
       }},
      {"min.NaN.f32 D, A, B;", 32, 32, 32, 0,
       [](Word a, Word b, Word) {
         return std::isnan(single(a)) || std::isnan(single(b)) ? 0x7FFFFFFF
                : single(a) == single(b)                       ? (a | b)
                : single(a) < single(b)                        ? a
                                                               : b;
       }},
      {"add.rn.f64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return code(wide(a) + wide(b)); }},
      {"mul.rn.f64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return code(wide(a) * wide(b)); }},
      {"div.rn.f64 D, A, B;", 64, 64, 64, 0, [](Word a, Word b, Word) { return code(wide(a) / wide(b)); }},
      {"fma.rn.f64 D, A, B, C;", 64, 64, 64, 64,
       [](Word a, Word b, Word c) { return code(std::fma(wide(a), wide(b), wide(c))); }},
      {"rcp.approx.ftz.f64 D, A;", 64, 64, 0, 0,
       [](Word a, Word, Word) {
         const double x = wide(a & 0xFFFFFFFF00000000u), y = 1 / (std::fabs(x) < 0x1p-1022 ? std::copysign(0.0, x) : x);
         return code(std::fabs(y) < 0x1p-1022 ? std::copysign(0.0, y) : y) & 0xFFFFFFFF00000000u;
       }},
      {"ex2.approx.ftz.f32 D, A;", 32, 32, 0, 0,
       [=](Word a, Word, Word) {
         return code(flush(static_cast<float>(std::exp2(static_cast<double>(flush(single(a)))))));
       }},
      {"mov.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return a; }},
  };
  for (const OpcodeRow& row : rows) check(row);
}

TEST_F(Opcode, OfFloatsInDirectedRounding) {
  // The sum of two f32 in one rounding direction: exact to odd in fp64, then a step to the neighbour where it is needed.
  const auto directed = [](double exact, bool up) {
    float x = static_cast<float>(exact);
    if (std::isnan(exact)) return code(x);
    if (up && static_cast<double>(x) < exact) x = std::nextafter(x, std::numeric_limits<float>::infinity());
    if (!up && static_cast<double>(x) > exact) x = std::nextafter(x, -std::numeric_limits<float>::infinity());
    return code(x);
  };
  const OpcodeRow rows[] = {
      {"mul.rp.f32 D, A, B;", 32, 32, 32, 0,
       [&](Word a, Word b, Word) {
         return directed(static_cast<double>(single(a)) * static_cast<double>(single(b)), true);
       }},
      {"mul.rm.f32 D, A, B;", 32, 32, 32, 0,
       [&](Word a, Word b, Word) {
         return directed(static_cast<double>(single(a)) * static_cast<double>(single(b)), false);
       }},
      {"fma.rm.f32 D, A, B, 0f3F800000;", 32, 32, 32, 0,
       [&](Word a, Word b, Word) {
         const double exact = add_to_odd(static_cast<double>(single(a)) * static_cast<double>(single(b)), 1);
         return exact == 0 ? code(std::copysign(0.0f, -1.0f)) : directed(exact, false);
       }},
  };
  for (const OpcodeRow& row : rows) check(row);
}

TEST_F(Opcode, OfNarrowFloats) {
  const auto one = [](ScalarOperation operation, const Format& format) {
    return [=, &format](Word a, Word b, Word c) {
      const Result r = compute(operation, format, a & 0xFFFF, b & 0xFFFF, c & 0xFFFF);
      return format.is_nan_code(r.code) ? Word{0x7FFF} : r.code;
    };
  };
  const auto two = [](Definition f) {
    return [=](Word a, Word b, Word c) { return f(a, b, c) | f(a >> 16, b >> 16, c >> 16) << 16; };
  };
  using enum ScalarOperation;
  const OpcodeRow rows[] = {
      {"add.f16 D, A, B;", 16, 16, 16, 0, one(add, kFp16)},
      {"mul.bf16 D, A, B;", 16, 16, 16, 0, one(mul, kernels::kBf16)},
      {"fma.rn.f16 D, A, B, C;", 16, 16, 16, 16, one(mul_add, kFp16)},
      {"sub.f16x2 D, A, B;", 32, 32, 32, 0, two(one(sub, kFp16))},
      {"fma.rn.bf16x2 D, A, B, C;", 32, 32, 32, 32, two(one(mul_add, kernels::kBf16))},
      {"neg.f16 D, A;", 16, 16, 0, 0, [](Word a, Word, Word) { return a ^ 0x8000; }},
      {"set.nan.f16.f16 D, A, A;", 16, 16, 0, 0, [](Word a, Word, Word) { return (a & 0x7FFF) > 0x7C00 ? 0x3C00 : 0; }},
  };
  for (const OpcodeRow& row : rows) check(row);
}

TEST_F(Opcode, OfComparison) {
  const auto select = [](std::string comparison, int bits) {
    return OpcodeRow{"setp." + comparison + " %p1, A, B; selp.u32 D, 1, 0, %p1;", 32, bits, bits, 0, {}};
  };
  std::vector<OpcodeRow> rows;
  const auto add = [&](const std::string& comparison, int bits, std::function<bool(Word, Word)> definition) {
    OpcodeRow row = select(comparison, bits);
    row.definition = [=](Word a, Word b, Word) { return Word{definition(a, b)}; };
    rows.push_back(row);
  };
  add("eq.s32", 32, [](Word a, Word b) { return a == b; });
  add("lt.s32", 32, [](Word a, Word b) { return s32(a) < s32(b); });
  add("lt.u32", 32, [](Word a, Word b) { return a < b; });
  add("ge.u64", 64, [](Word a, Word b) { return a >= b; });
  add("gt.s16", 16, [](Word a, Word b) { return s16(a) > s16(b); });
  add("eq.f32", 32, [](Word a, Word b) { return single(a) == single(b); });
  add("ne.f32", 32, [](Word a, Word b) { return single(a) < single(b) || single(a) > single(b); });
  add("neu.f32", 32, [](Word a, Word b) { return !(single(a) == single(b)); });
  add("gtu.f32", 32, [](Word a, Word b) { return !(single(a) <= single(b)); });
  add("num.f64", 64, [](Word a, Word b) { return !std::isnan(wide(a)) && !std::isnan(wide(b)); });
  add("nan.f64", 64, [](Word a, Word b) { return std::isnan(wide(a)) || std::isnan(wide(b)); });
  rows.push_back(
      {"setp.lt.u32 %p2, A, 100; setp.gt.and.s32 %p1|%p3, B, 5, !%p2; selp.b32 D, 1, 0, %p1; @%p3 add.u32 D, D, 2;", 32,
       32, 32, 0, [](Word a, Word b, Word) {
         const bool c = !(a < 100);
         return Word{s32(b) > 5 && c} + (!(s32(b) > 5) && c ? 2 : 0);
       }});
  rows.push_back(
      {"setp.lt.u32 %p1, A, B; not.pred %p2, %p1; xor.pred %p3, %p1, %p2; and.pred %p4, %p3, %p1; selp.u32 D, 7, 9, "
       "%p4;",
       32, 32, 32, 0, [](Word a, Word b, Word) { return Word{a < b ? 7u : 9u}; }});
  rows.push_back({"testp.subnormal.f32 %p1, A; selp.u32 D, 1, 0, %p1;", 32, 32, 0, 0,
                  [](Word a, Word, Word) { return Word{(a & 0x7F800000) == 0 && (a & 0x7FFFFF) != 0}; }});
  for (const OpcodeRow& row : rows) check(row);
}

TEST_F(Opcode, OfConversion) {
  const auto converted = [](DType from, DType to, Rounding rounding, Overflow overflow = Overflow::format_default) {
    return [=](Word a, Word, Word) {
      const Word x = convert_code(from, a, to, rounding, overflow).code;
      if (!is_floating(to) || !format_of(to).is_nan_code(x)) return x;
      return to == DType::f64 ? Word{0x7FF8000000000000u} : format_of(to).all_ones_code();
    };
  };
  using enum DType;
  constexpr Rounding rn = Rounding::near_even, rz = Rounding::toward_zero;
  const auto pair_of = [&](DType to, Overflow overflow = Overflow::saturate) {
    return [=](Word a, Word b, Word) {
      const auto one = [&](Word x) {
        const Word y = convert_code(f32, x, to, rn, overflow).code;
        return format_of(to).is_nan_code(y) ? format_of(to).all_ones_code() : y;
      };
      return one(a) << bits_of(to) | one(b);
    };
  };
  const auto clamped = [](double x, double low, double high) {
    return std::isnan(x) ? 0 : std::min(std::max(x, low), high);
  };
  const OpcodeRow rows[] = {
      {"cvt.f64.f32 D, A;", 64, 32, 0, 0, converted(f32, f64, rn)},
      {"cvt.rn.f32.f64 D, A;", 32, 64, 0, 0, converted(f64, f32, rn)},
      {"cvt.rz.f32.f64 D, A;", 32, 64, 0, 0, converted(f64, f32, rz)},
      {"cvt.f32.f16 D, A;", 32, 16, 0, 0, converted(f16, f32, rn)},
      {"cvt.rn.f16.f32 D, A;", 16, 32, 0, 0, converted(f32, f16, rn)},
      {"cvt.rz.f16.f32 D, A;", 16, 32, 0, 0, converted(f32, f16, rz)},
      {"cvt.rn.f16.f64 D, A;", 16, 64, 0, 0, converted(f64, f16, rn)},
      {"cvt.rn.bf16.f32 D, A;", 16, 32, 0, 0, converted(f32, bf16, rn)},
      {"cvt.f32.bf16 D, A;", 32, 16, 0, 0, converted(bf16, f32, rn)},
      {"cvt.rn.f16x2.f32 D, A, B;", 32, 32, 32, 0, pair_of(f16, Overflow::format_default)},
      {"cvt.rn.satfinite.e4m3x2.f32 D, A, B;", 16, 32, 32, 0, pair_of(e4m3)},
      {"cvt.rn.satfinite.e5m2x2.f32 D, A, B;", 16, 32, 32, 0, pair_of(e5m2)},
      {"cvt.rn.f16x2.e4m3x2 D, A;", 32, 16, 0, 0,
       [&](Word a, Word, Word) {
         const auto one = converted(e4m3, f16, rn);
         return one(a & 0xFF, 0, 0) | one(a >> 8, 0, 0) << 16;
       }},
      {"cvt.rna.tf32.f32 D, A;", 32, 32, 0, 0,
       [](Word a, Word, Word) {
         return (a & 0x7FFFFFFF) > 0x7F800000    ? 0x7FFFE000
                : (a & 0x7FFFFFFF) == 0x7F800000 ? a
                                                 : (a + 0x1000) & 0xFFFFE000;
       }},
      {"cvt.rzi.s32.f32 D, A;", 32, 32, 0, 0,
       [&](Word a, Word, Word) {
         return static_cast<Word>(
             static_cast<int64_t>(clamped(std::trunc(static_cast<double>(single(a))), -0x1p31, 0x1p31 - 1)));
       }},
      {"cvt.rni.u32.f32 D, A;", 32, 32, 0, 0,
       [&](Word a, Word, Word) {
         return static_cast<Word>(clamped(std::nearbyint(static_cast<double>(single(a))), 0, 0x1p32 - 1));
       }},
      {"cvt.rmi.f32.f32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return code(std::floor(single(a))); }},
      {"cvt.rn.f32.s32 D, A;", 32, 32, 0, 0, [](Word a, Word, Word) { return code(static_cast<float>(s32(a))); }},
      {"cvt.rn.f32.u64 D, A;", 32, 64, 0, 0, [](Word a, Word, Word) { return code(static_cast<float>(a)); }},
      {"cvt.rn.f64.u32 D, A;", 64, 32, 0, 0, [](Word a, Word, Word) { return code(static_cast<double>(a)); }},
      {"cvt.sat.f32.f32 D, A;", 32, 32, 0, 0,
       [](Word a, Word, Word) {
         const float x = single(a);
         return code(x > 0 ? std::min(x, 1.0f) : 0.0f);
       }},
      {"cvt.u64.u32 D, A;", 64, 32, 0, 0, [](Word a, Word, Word) { return a; }},
      {"cvt.s64.s32 D, A;", 64, 32, 0, 0, [](Word a, Word, Word) { return static_cast<Word>(s32(a)); }},
      {"cvt.u32.u16 D, A;", 32, 16, 0, 0, [](Word a, Word, Word) { return a; }},
      {"cvt.s16.s8 D, A;", 16, 16, 0, 0, [](Word a, Word, Word) { return static_cast<Word>(static_cast<int8_t>(a)); }},
      {"cvt.u16.u32 D, A;", 16, 32, 0, 0, [](Word a, Word, Word) { return a; }},
      {"cvt.sat.u8.s32 D, A;", 32, 32, 0, 0,
       [](Word a, Word, Word) { return static_cast<Word>(std::min<int64_t>(std::max<int64_t>(s32(a), 0), 255)); }},
  };
  for (const OpcodeRow& row : rows) check(row);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
