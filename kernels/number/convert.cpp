// Chooses the conversion path and handles what the vector loops leave over: heads, tails, and pairs of dtypes that
// convert through fp32. Pairs that are not in the loops' tables go through decode, round_to and encode.
#include "kernels/number/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "kernels/number/convert_paths.h"
#include "kernels/number/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace halfmark::kernels {
namespace convert_detail {
namespace {

constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7F800000, kQuietNan = 0x7FC00000;

uint32_t code_of(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }

// The formats that the loops support: subsets of fp32 with signs,
// zeros and NaNs. round_to supplies the results for overflow.
std::optional<Target> target_of(const Format& format, Rounding rounding) {
  constexpr int kWide = kFp32.exponent_bits;
  const bool known = format.has_nan() && format.has_negative_zero() && !format.is_scale() &&
                     (format.has_infinity() || format.exponent_bits < kWide);
  if (!known || format.fraction_bits < 1 || format.fraction_bits >= kFp32.fraction_bits || format.exponent_bits < 2 ||
      format.exponent_bits > kWide)
    return {};
  Target target{
      .format = format, .drop = kFp32.fraction_bits - format.fraction_bits, .wide = format.exponent_bits == kWide};
  target.smallest = code_of(std::ldexp(1.0, format.min_exponent()));
  target.largest = static_cast<float>(format.max_finite());
  target.overflow = code_of(round_to(format, static_cast<double>(std::numeric_limits<float>::max()), rounding));
  target.infinity = code_of(round_to(format, std::numeric_limits<double>::infinity(), rounding));
  // The loops distinguish infinity from overflow only when rounding toward zero.
  if (rounding != Rounding::toward_zero && target.overflow != target.infinity) return {};
  return target;
}

// The one-byte dtypes that the loops support: subsets of f16 with signed zeros, whose NaN codes lie above all numbers.
// The loops read the byte as the upper bits of an f16, which has infinity at its largest exponent only.
bool is_byte(DType dtype) {
  if (!is_floating(dtype)) return false;
  const Format& format = format_of(dtype);
  return format.bits() == 8 && format.has_nan() && format.has_negative_zero() && format.fraction_bits >= 1 &&
         format.exponent_bits >= 2 && format.exponent_bits <= kFp16.exponent_bits &&
         (!format.has_infinity() || format.exponent_bits == kFp16.exponent_bits);
}

ByteCodes byte_codes_of(DType dtype) {
  const Format& format = format_of(dtype);
  ByteCodes codes;
  codes.drop = kFp32.fraction_bits - format.fraction_bits;
  codes.smallest = code_of(std::ldexp(1.0, format.min_exponent()));
  codes.beyond = static_cast<float>(std::ldexp(1.0, format.max_exponent() + 1));
  const int sign_place = format.exponent_bits + format.fraction_bits;
  codes.sign_shift = 31 - sign_place;
  codes.sign = uint32_t{1} << sign_place;
  const auto code = [&](double x) { return static_cast<uint32_t>(encode(dtype, x)); };
  codes.largest = code(format.max_finite());
  codes.overflow = code(static_cast<double>(codes.beyond));
  codes.nan = code(std::numeric_limits<double>::quiet_NaN());
  codes.first_nan = static_cast<uint32_t>(format.has_infinity() ? format.infinity_code() + 1 : format.quiet_nan_code());
  codes.half_shift = kFp16.fraction_bits - format.fraction_bits;
  codes.half_scale = static_cast<float>(std::ldexp(1.0, kFp16.bias() - format.bias()));
  return codes;
}

const Loops* loops_of(Path path) {
  switch (path) {
    case Path::scalar:
      return nullptr;
    case Path::avx2:
      return avx2_loops();
    case Path::avx512:
      return avx512_loops();
  }
  return nullptr;
}

// Whole steps in place; the remainder through a buffer.
template <class S, class T, class Loop>
void in_steps(const S* source, T* target, size_t count, const Loop& loop) {
  const size_t whole = count - count % kStep, rest = count - whole;
  if (whole) loop(source, target, whole);
  if (!rest) return;
  std::array<S, kStep> in{};
  std::array<T, kStep> out{};
  std::copy_n(source + whole, rest, in.data());
  loop(in.data(), out.data(), kStep);
  std::copy_n(out.data(), rest, target + whole);
}

// Arrays larger than the caches are written with streaming stores: reading a line only to overwrite it would be a
// third of the memory traffic.
constexpr size_t kStreamBytes = size_t{16} << 20;

// `count` elements, starting at a block boundary of the noise.
void round_part(const Loops& loops, const Target& to, Rounding rounding, const float* source, float* target,
                size_t count, NoiseStream noise, bool stream) {
  const size_t whole = count - count % kRoundStep, rest = count - whole;
  if (whole) loops.round(to, rounding, source, target, whole, noise, stream);
  if (!rest) return;
  std::array<float, kRoundStep> in{}, out{};
  std::copy_n(source + whole, rest, in.data());
  loops.round(to, rounding, in.data(), out.data(), kRoundStep, noise.from(whole), false);
  std::copy_n(out.data(), rest, target + whole);
}

// Plain loops for CPUs without the instructions; the compiler vectorises them.
void round_wide_near_even(const Target& to, const float* source, float* target, size_t count) {
  const uint32_t below_half = (uint32_t{1} << (to.drop - 1)) - 1, kept = ~((uint32_t{1} << to.drop) - 1);
  for (size_t i = 0; i < count; ++i) {
    const auto u = std::bit_cast<uint32_t>(source[i]);
    const uint32_t rounded = (u + below_half + ((u >> to.drop) & 1)) & kept;
    target[i] = std::bit_cast<float>((u & ~kSign) > kInfinity ? u : rounded);
  }
}

void bf16_from_f32(const float* source, uint16_t* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto u = std::bit_cast<uint32_t>(source[i]);
    const uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16, quiet = (u & kSign) >> 16 | kQuietNan >> 16;
    target[i] = static_cast<uint16_t>((u & ~kSign) > kInfinity ? quiet : rounded);
  }
}

void f32_from_bf16(const uint16_t* source, float* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t u = uint32_t{source[i]} << 16;
    target[i] = std::bit_cast<float>((u & ~kSign) > kInfinity ? (u & kSign) | kQuietNan : u);
  }
}

void f64_from_f32(const float* source, double* target, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] = static_cast<double>(source[i]);
}

// To fp32, exactly; fp64 rounded to odd.
void widen(const Loops& loops, DType from, const void* source, float* target, size_t count) {
  const auto* words = static_cast<const uint16_t*>(source);
  if (from == DType::f16) return in_steps(words, target, count, loops.f32_from_f16);
  if (from == DType::bf16) return in_steps(words, target, count, loops.f32_from_bf16);
  if (from == DType::f64) return in_steps(static_cast<const double*>(source), target, count, loops.odd_from_f64);
  HM_CHECK(is_byte(from), "convert: no loop reads " + std::string(halfmark::kernels::name_of(from)));
  in_steps(
      static_cast<const uint8_t*>(source), target, count,
      [&, codes = byte_codes_of(from)](const uint8_t* s, float* t, size_t n) { loops.f32_from_bytes(codes, s, t, n); });
}

// From fp32, to nearest even.
void narrow(const Loops& loops, const float* source, DType to, void* target, size_t count) {
  auto* words = static_cast<uint16_t*>(target);
  if (to == DType::f16) return in_steps(source, words, count, loops.f16_from_f32);
  if (to == DType::bf16) return in_steps(source, words, count, loops.bf16_from_f32);
  if (to == DType::f64) return f64_from_f32(source, static_cast<double*>(target), count);
  HM_CHECK(is_byte(to), "convert: no loop writes " + std::string(halfmark::kernels::name_of(to)));
  in_steps(
      source, static_cast<uint8_t*>(target), count,
      [&, codes = byte_codes_of(to)](const float* s, uint8_t* t, size_t n) { loops.bytes_from_f32(codes, s, t, n); });
}

constexpr size_t kBlock = 512;  // values in fp32 at a time, well inside the first-level cache

// Every other pair goes through a small fp32 buffer, which represents every narrow number exactly.
void convert_blocks(Path path, DType from, const void* source, DType to, void* target, size_t count, Rounding rounding,
                    NoiseStream noise) {
  const Loops& loops = *loops_of(path);
  std::array<float, kBlock> block;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    const auto* in = static_cast<const unsigned char*>(source) + done * size_of(from);
    const float* values = block.data();
    if (from == DType::f32)
      values = reinterpret_cast<const float*>(in);
    else
      widen(loops, from, in, block.data(), n);
    if (rounding != Rounding::near_even) {
      round_array(path, format_of(to), values, block.data(), n, rounding, noise.from(done));
      values = block.data();
    }
    narrow(loops, values, to, static_cast<unsigned char*>(target) + done * size_of(to), n);
  }
}

bool passes_through_f32(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || is_byte(dtype);
}

// What no loop supports takes the scalar path.
bool in_loops(DType from, DType to, Rounding rounding) {
  if (!passes_through_f32(from) || !passes_through_f32(to)) return false;
  if (from != DType::f64 || rounding == Rounding::near_even) return true;
  // fp64 passes through fp32 rounded to odd. That lacks the digits that noise is compared with, and is not the
  // requested result when the target is f32.
  return rounding != Rounding::stochastic && to != DType::f32;
}

// What this CPU supports and whose registers the operating system saves. Not every compiler's __builtin_cpu_supports
// knows all of these names; those are read from CPUID (Intel SDM volume 2: leaf 1 and leaf 7, register ecx).
struct Features {
  bool avx2 = false, avx512 = false, aes = false, vaes = false;
};

Features read_features() {
  Features features;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, one = 0, seven = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &one, &d) || !__builtin_cpu_supports("avx2")) return features;
  if (!__get_cpuid_count(7, 0, &a, &b, &seven, &d)) return features;
  features.avx2 = (one >> 29) & 1;  // F16C
  features.aes = features.avx2 && ((one >> 25) & 1);
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  features.vaes = features.avx512 && ((seven >> 9) & 1);
#endif
  return features;
}

const Features& features() {
  static const Features found = read_features();
  return found;
}

// The loops of a path. Stochastic rounding needs AES instructions: without them there are no such loops, and a CPU with
// AVX-512 but without vector AES uses those of AVX2.
const Loops* rounding_loops(Path path, Rounding rounding) {
  if (rounding != Rounding::stochastic) return loops_of(path);
  if (!features().aes) return nullptr;
  return loops_of(path == Path::avx512 && !features().vaes ? Path::avx2 : path);
}

}  // namespace

std::string_view name_of(Path path) {
  switch (path) {
    case Path::scalar:
      return "scalar";
    case Path::avx2:
      return "avx2,f16c";
    case Path::avx512:
      return "avx512";
  }
  return "?";
}

bool has(Path path) {
  switch (path) {
    case Path::scalar:
      return true;
    case Path::avx2:
      return features().avx2;
    case Path::avx512:
      return features().avx512;
  }
  return false;
}

Path best_path() { return has(Path::avx512) ? Path::avx512 : has(Path::avx2) ? Path::avx2 : Path::scalar; }

void convert_scalar(DType from, const void* source, DType to, void* target, size_t count, Rounding rounding,
                    NoiseStream noise) {
  if (from == to) {
    if (count) std::memcpy(target, source, bytes_for(from, count));
    return;
  }
  for (size_t i = 0; i < count; ++i)
    store(to, target, i, load(from, source, i), rounding, nullptr,
          rounding == Rounding::stochastic ? rounding_noise(noise.seed, noise.first + i) : 0);
}

void round_array_scalar(const Format& format, const float* source, float* target, size_t count, Rounding rounding,
                        NoiseStream noise) {
  for (size_t i = 0; i < count; ++i)
    target[i] = std::isnan(source[i])
                    ? source[i]
                    : static_cast<float>(
                          round_to(format, static_cast<double>(source[i]), rounding, nullptr,
                                   rounding == Rounding::stochastic ? rounding_noise(noise.seed, noise.first + i) : 0));
}

void convert(Path path, DType from, const void* source, DType to, void* target, size_t count, Rounding rounding,
             NoiseStream noise) {
  HM_CHECK(has(path), "convert: this CPU has no " + std::string(name_of(path)));
  const auto pair = [&](DType a, DType b) { return from == a && to == b; };
  const auto* floats = static_cast<const float*>(source);
  if (pair(DType::f32, DType::f64)) return f64_from_f32(floats, static_cast<double*>(target), count);
  const Loops* loops = loops_of(path);
  if (!loops && pair(DType::f32, DType::bf16) && rounding == Rounding::near_even)
    return bf16_from_f32(floats, static_cast<uint16_t*>(target), count);
  if (!loops && pair(DType::bf16, DType::f32))
    return f32_from_bf16(static_cast<const uint16_t*>(source), static_cast<float*>(target), count);
  if (!loops || from == to || !in_loops(from, to, rounding))
    return convert_scalar(from, source, to, target, count, rounding, noise);
  if (pair(DType::f64, DType::f32))
    return in_steps(static_cast<const double*>(source), static_cast<float*>(target), count, loops->f32_from_f64);
  if (to == DType::f32) return widen(*loops, from, source, static_cast<float*>(target), count);
  if (from == DType::f32 && rounding == Rounding::near_even) return narrow(*loops, floats, to, target, count);
  convert_blocks(path, from, source, to, target, count, rounding, noise);
}

void round_array(Path path, const Format& format, const float* source, float* target, size_t count, Rounding rounding,
                 NoiseStream noise) {
  HM_CHECK(has(path), "round_array: this CPU has no " + std::string(name_of(path)));
  if (format.fraction_bits >= kFp32.fraction_bits && format.exponent_bits >= kFp32.exponent_bits) {
    if (source != target) std::copy_n(source, count, target);
    return;
  }
  const std::optional<Target> to = target_of(format, rounding);
  const Loops* loops = rounding_loops(path, rounding);
  if (!loops && to && to->wide && rounding == Rounding::near_even)
    return round_wide_near_even(*to, source, target, count);
  if (!loops || !to) return round_array_scalar(format, source, target, count, rounding, noise);

  // Elements share blocks of noise, so the elements before the first block boundary are handled one by one.
  size_t done = 0;
  if (rounding == Rounding::stochastic) {
    done = std::min<size_t>((kBlockWords - noise.first % kBlockWords) % kBlockWords, count);
    round_array_scalar(format, source, target, done, rounding, noise);
  }
  const size_t past_line = reinterpret_cast<uintptr_t>(target + done) / sizeof(float) % kLine;
  const size_t head = past_line ? kLine - past_line : 0;
  const bool stream = source != target && count * sizeof(float) >= kStreamBytes && head % kBlockWords == 0;
  if (stream) {
    round_part(*loops, *to, rounding, source + done, target + done, head, noise.from(done), false);
    done += head;
  }
  round_part(*loops, *to, rounding, source + done, target + done, count - done, noise.from(done), stream);
}

}  // namespace convert_detail

uint64_t rounding_noise(uint64_t seed, uint64_t index) {
  constexpr size_t kWords = convert_detail::kBlockWords;
  const auto block = convert_detail::noise_block(seed, index / kWords);
  // The upper half is the element's own word and decides. The lower
  // half is its neighbour's word, which matters once in 2^32 times.
  return uint64_t{block[index % kWords]} << 32 | block[(index % kWords) ^ 1];
}

std::string_view convert_instructions() { return name_of(convert_detail::best_path()); }

void convert(DType from, const void* source, DType to, void* target, size_t count, Rounding rounding,
             NoiseStream noise) {
  convert_detail::convert(convert_detail::best_path(), from, source, to, target, count, rounding, noise);
}

void round_array(const Format& format, const float* source, float* target, size_t count, Rounding rounding,
                 NoiseStream noise) {
  convert_detail::round_array(convert_detail::best_path(), format, source, target, count, rounding, noise);
}

}  // namespace halfmark::kernels
