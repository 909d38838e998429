// How NVIDIA tensor cores compute a dot product, bit for bit: a table with one row per architecture, instruction and
// choice of types, and the exact arithmetic that a row describes. The algorithm and its sources: kernels/sim/README.md.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/number/dtype.h"
#include "kernels/ops/matrix_instruction.h"

namespace halfmark::kernels {

struct Architecture {
  std::string_view name;                      // as in "sim:hopper"
  std::string_view about;                     // the GPUs that it describes
  std::array<int, 2> compute_capabilities{};  // theirs, as in 90 for sm_90; 0: no further one
};

// The types that a and b may have. fp8: any pairing of the two.
enum class Operands : uint8_t { f16, bf16, tf32, fp8, fp4, fp64 };
bool takes(Operands operands, const Format& format);
std::string_view name_of(Operands operands);  // "f16", "e4m3 and e5m2"

// How the products of one instruction and its addend c are combined to d.
enum class Summation : uint8_t {
  blocks,       // blocks of L products and c, fused; each result is the next one's c
  interleaved,  // fp8 unpacked to fp16: two fused blocks without c, of the k with k mod 4 < 2 and of the others; then an
                // IEEE addition of c. Subnormal e4m3 numbers are aligned as the normal fp16 numbers that they become
  groups,       // FP4: exact sums of 16 scaled products each, which are the terms of one fused sum with c
  fma_chain,    // IEEE fused multiply-adds in increasing k
};
std::string_view text_of(Summation summation);

// How the sum of a block is rounded. Overflow gives infinity; a zero is +0.
enum class BlockRounding : uint8_t {
  truncate_fp32,   // toward zero to fp32
  truncate_e8m13,  // toward zero to 13 fraction bits and fp32's exponents; 2^-139 below 2^-126
  near_even_fp16,  // directly from the accumulator, without rounding to fp32 first
};
std::string_view text_of(BlockRounding rounding);  // "cut to fp32"

// The arithmetic of one block: what a probe can determine.
struct BlockSum {
  int products = 0;            // L: in one fused sum with c
  int kept_fraction_bits = 0;  // F: below the largest exponent; lower bits are truncated
  int zero_exponent = 0;       // e_zero: a zero among the terms raises the largest exponent to at least this
  BlockRounding rounding = BlockRounding::truncate_fp32;
};
inline constexpr int kNoZeroExponent = -4096;  // below every exponent, so zeros raise nothing

struct Scaling {  // one scale per this many consecutive k; ue4m3 is e4m3 with its sign ignored
  DType type = DType::e8m0;
  int block = 0;  // 0: none
  friend bool operator==(const Scaling&, const Scaling&) = default;
};

struct TensorCore {
  std::string_view architecture;
  MatrixInstruction instruction;
  Operands operands;
  Format addend, result;  // c and d; they differ only on volta, where c is widened first
  Summation summation;
  BlockSum block;
  std::string_view source;  // of L, F, e_zero and the rounding: keys of instruction_sources()
  Scaling scaling{};

  int depth() const { return depth_of(instruction); }  // K of one instruction
};

DType result_dtype(const TensorCore& core);  // f16 or f32; throws Error for another format

struct InstructionSource {
  std::string_view key;       // as the rows name it: "mma-sim"
  std::string_view citation;  // with DOI, commit or version
};

std::span<const Architecture> architectures();
std::span<const InstructionSource> instruction_sources();
std::span<const TensorCore> tensor_cores();  // for one architecture and types, the usual instruction comes first

std::string text_of(const TensorCore& core);  // "f16 to fp32: blocks of 16, 25 fraction bits kept, cut to fp32"

struct DotTypes {
  Format a, b, c, d;
  Scaling scaling{};
};

// The first row of `cores` for this architecture, instruction and types. Null if there is none; then `*why`, if given,
// says what the architecture has instead.
const TensorCore* find_core(std::span<const TensorCore> cores, std::string_view architecture,
                            MatrixInstruction instruction, const DotTypes& types, std::string* why = nullptr);

// A decoded operand: (-1)^s significand 2^(exponent - fraction bits), the significand not normalised.
struct Term {
  int32_t significand = 0;  // with its sign; 0 for zeros and specials
  int16_t exponent = 0;
  uint8_t special = 0;  // kFinite, kPositiveInfinity, ...
};
enum TermKind : uint8_t { kFinite = 0, kPositiveInfinity = 1, kNegativeInfinity = 2, kNotANumber = 4 };

// For fp16, bf16, e4m3, e5m2, e2m1; tf32: the 32 bits of its register, of which the low 13 are dropped.
Term take_apart(const Format& format, uint32_t code);

// The terms of a chain: k of them on each side.
struct Operand {
  Format format;
  std::span<const Term> terms;
  std::span<const uint8_t> scales{};  // codes, one per block of core.scaling
};

// d = a . b + c, chained in increasing k. c is a code of core.addend, the result a code of core.result (for k = 0: c
// widened). A partly filled last instruction is padded with +0 times +0, as a library pads K. Not for fp64.
uint32_t dot(const TensorCore& core, const Operand& a, const Operand& b, uint32_t c);

// The same from codes, for any row including fp64. Throws Error
// unless a and b have equal length and the scales match core.scaling.
uint64_t dot(const TensorCore& core, const DotTypes& types, std::span<const uint64_t> a, std::span<const uint64_t> b,
             uint64_t c, std::span<const uint8_t> scale_a = {}, std::span<const uint8_t> scale_b = {});

}  // namespace halfmark::kernels
