// Floating-point arithmetic: sections 9.7.3 to 9.7.5 of the PTX ISA.
//
// Exact operations are those of the host, which are IEEE 754. In f32 and narrower types a NaN result is the canonical
// NaN (7fffffff); in f64 it is the host's. The approximations are the correctly rounded value: within every stated bound.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/cuda/software_gpu/approximations.h"
#include "kernels/cuda/software_gpu/arithmetic_decoders.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"
#include "kernels/cuda/software_gpu/narrow_floats.h"

namespace halfmark::kernels::software_gpu {
namespace {

enum Flags : uint8_t { kRoundingBits = 3, kFlush = 4, kSaturate = 8 };

template <class T>
T canonical(T x) {
  if constexpr (sizeof(T) == 4) return x != x ? std::bit_cast<float>(0x7FFFFFFFu) : x;
  return x;
}
template <class T>
T flushed(T x, bool flush) {
  return flush && std::fabs(x) < std::numeric_limits<T>::min() ? std::copysign(T{0}, x) : x;
}
template <class T>
T saturated(T x, bool saturate) {
  if (!saturate) return x;
  return x > 0 ? (x < 1 ? x : T{1}) : T{0};  // NaN becomes +0
}

struct Add {
  template <class T>
  static T compute(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T compute(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T compute(T a, T b, T) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T compute(T a, T b, T) {
    return a / b;
  }
};
struct Rcp {
  template <class T>
  static T compute(T a, T, T) {
    return T{1} / a;
  }
};
struct Sqrt {
  template <class T>
  static T compute(T a, T, T) {
    return std::sqrt(a);
  }
};
struct Fma {
  template <class T>
  static T compute(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};

// MXCSR bits 13 and 14 in the order of PTX's rn, rz, rm, rp.
constexpr unsigned kControl[4] = {0x0000, 0x6000, 0x2000, 0x4000};

template <class F, class T>
T rounded(unsigned mode, T a, T b, T c) {
  if (mode == 0) return F::template compute<T>(a, b, c);
  volatile T va = a, vb = b, vc = c;  // so that the compiler does not move the operation out of the rounding mode
  const unsigned before = _mm_getcsr();
  _mm_setcsr((before & ~0x6000u) | kControl[mode]);
  volatile T result = F::template compute<T>(va, vb, vc);
  _mm_setcsr(before);
  return result;
}

// Any modifiers. Operands that the operation does not use are the first one again.
template <class F, class T>
void general(Warp& w, const Instruction& i) {
  const bool flush = i.flags & kFlush, saturate = i.flags & kSaturate;
  write_lanes<T>(w, i.d, [&](int l) {
    const T a = flushed(w.lane<T>(i.a, l), flush);
    const T b = i.b == kNoRegister ? a : flushed(w.lane<T>(i.b, l), flush);
    const T c = i.c == kNoRegister ? a : flushed(w.lane<T>(i.c, l), flush);
    return canonical(saturated(flushed(rounded<F, T>(i.flags & kRoundingBits, a, b, c), flush), saturate));
  });
}

// To nearest, nothing flushed or saturated.
template <class F, class T>
struct Plain {
  static T apply(T a, T b) { return canonical(F::template compute<T>(a, b, a)); }
};
template <class T>
struct PlainFma {
  static T apply(T a, T b, T c) { return canonical(std::fma(a, b, c)); }
};

// The same with the host's fused instruction, which a call of fma() would reach one lane at a time.
template <class T>
[[gnu::target("avx2,fma")]] void fused(Warp& w, const Instruction& i) {
  T a[kLanes], b[kLanes], c[kLanes], d[kLanes];
  std::memcpy(a, w.registers + i.a, sizeof a);
  std::memcpy(b, w.registers + i.b, sizeof b);
  std::memcpy(c, w.registers + i.c, sizeof c);
  for (int l = 0; l < kLanes; ++l) {
    T r = sizeof(T) == 4 ? static_cast<T>(__builtin_fmaf(static_cast<float>(a[l]), static_cast<float>(b[l]),
                                                         static_cast<float>(c[l])))
                         : static_cast<T>(__builtin_fma(static_cast<double>(a[l]), static_cast<double>(b[l]),
                                                        static_cast<double>(c[l])));
    if (sizeof(T) == 4) r = r != r ? static_cast<T>(std::bit_cast<float>(0x7FFFFFFFu)) : r;
    d[l] = r;
  }
  if (w.active == kAllLanes) {
    std::memcpy(w.registers + i.d, d, sizeof d);
  } else {
    for (uint32_t mask = w.active; mask; mask &= mask - 1) {
      const int l = __builtin_ctz(mask);
      std::memcpy(w.registers + i.d + static_cast<size_t>(l) * sizeof(T), &d[l], sizeof(T));
    }
  }
}
template <class T>
Handler plain_fma() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? fused<T> : ternary<PlainFma<T>, T, T, T, T>;
}

template <bool kMax, bool kPropagate, class T>
struct Extreme {
  static T apply(T a, T b) {
    if (a != a || b != b) {
      if (kPropagate || (a != a && b != b)) return canonical(std::numeric_limits<T>::quiet_NaN());
      return a != a ? b : a;
    }
    if (a == b) return std::signbit(a) != kMax ? a : b;  // -0 is below +0
    return (a < b) == kMax ? b : a;
  }
};

template <class U>
struct ClearSign {
  static U apply(U a) { return a & (std::numeric_limits<U>::max() >> 1); }
};
template <class U>
struct FlipSign {
  static U apply(U a) { return a ^ ~(std::numeric_limits<U>::max() >> 1); }
};
// The sign of the first operand, the magnitude of the second.
template <class U>
struct CopySign {
  static U apply(U a, U b) {
    constexpr U magnitude = std::numeric_limits<U>::max() >> 1;
    return (a & ~magnitude) | (b & magnitude);
  }
};

bool take_modifiers(Modifiers& m, Instruction& i) {
  const bool stated = m.accept("rn");
  if (!stated) i.flags |= m.accept("rz") ? 1 : m.accept("rm") ? 2 : m.accept("rp") ? 3 : 0;
  if (m.accept("ftz")) i.flags |= kFlush;
  if (m.accept("sat")) i.flags |= kSaturate;
  return stated || (i.flags & kRoundingBits);
}

template <class F>
Handler sum_handler(PtxType type, uint8_t flags) {
  if (type == PtxType::f32) return flags ? general<F, float> : binary<Plain<F, float>, float, float, float>;
  if (type == PtxType::f64 && !(flags & (kFlush | kSaturate)))
    return flags ? general<F, double> : binary<Plain<F, double>, double, double, double>;
  return nullptr;
}

bool is_integer(const Statement& s) {
  const auto type = ptx_type_named(s.opcode.substr(s.opcode.rfind('.') + 1));
  return type && (kind_of(*type) == PtxKind::signed_integer || kind_of(*type) == PtxKind::unsigned_integer);
}

bool decode_sum(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool product = m.opcode() == "mul";
  if (is_integer(s)) return product ? decode_integer_mul(coder, s, m, i) : decode_integer_sum(coder, s, m, i);
  take_modifiers(m, i);
  const auto type = m.type();
  if (!type) return false;
  i.run = m.opcode() == "add"   ? sum_handler<Add>(*type, i.flags)
          : m.opcode() == "sub" ? sum_handler<Sub>(*type, i.flags)
                                : sum_handler<Mul>(*type, i.flags);
  if (!i.run && !i.flags)
    i.run = narrow_handler(*type, m.opcode() == "add" ? NarrowOperation::add
                                  : product           ? NarrowOperation::mul
                                                      : NarrowOperation::sub);
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}

// fma, and mad of floating types, which is the same since sm_20.
bool decode_fma(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (is_integer(s)) return m.opcode() == "mad" && decode_integer_mad(coder, s, m, i);
  if (!take_modifiers(m, i)) return false;
  const bool relu = m.accept("relu");
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::f32 && !relu) i.run = i.flags ? general<Fma, float> : plain_fma<float>();
  if (*type == PtxType::f64 && !relu && !(i.flags & (kFlush | kSaturate)))
    i.run = i.flags ? general<Fma, double> : plain_fma<double>();
  if (!i.run && !i.flags) i.run = narrow_handler(*type, relu ? NarrowOperation::fma_relu : NarrowOperation::fma);
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits, bits});
}

using Quotient = float (*)(float a, float b);
template <Quotient kQuotient>
void divide(Warp& w, const Instruction& i) {
  const bool flush = i.flags & kFlush;
  write_lanes<float>(w, i.d, [&](int l) {
    const float a = flushed(w.lane<float>(i.a, l), flush), b = flushed(w.lane<float>(i.b, l), flush);
    return canonical(flushed(kQuotient(a, b), flush));
  });
}

bool decode_div(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (is_integer(s)) return decode_integer_quotient(coder, s, m, i);
  const bool approx = m.accept("approx"), full = !approx && m.accept("full");
  if (!take_modifiers(m, i) && !approx && !full) return false;
  const auto type = m.type();
  if (!type) return false;
  if ((approx || full) && *type == PtxType::f32)
    i.run = approx ? divide<approximate_quotient> : divide<approximate_full_quotient>;
  if (!approx && !full) i.run = sum_handler<Div>(*type, i.flags);
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}

void function_of_one(Warp& w, const Instruction& i) {
  const bool flush = i.flags & kFlush;
  const auto function = static_cast<Function>(i.immediate);
  write_lanes<float>(w, i.d, [&](int l) {
    const float x = flushed(w.lane<float>(i.a, l), flush);
    return canonical(flushed(approximate(function, x), flush));
  });
}
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read the upper half of the operand and give the upper half of a result;
// the lower half is zero (sections "rcp.approx.ftz.f64" and "rsqrt.approx.ftz.f64").
void approximate_upper_half(Warp& w, const Instruction& i) {
  const auto function = static_cast<Function>(i.immediate);
  constexpr uint64_t upper = 0xFFFFFFFF00000000u;
  write_lanes<double>(w, i.d, [&](int l) {
    const double x = flushed(std::bit_cast<double>(w.lane<uint64_t>(i.a, l) & upper), true);
    const double y = flushed(value_of(function, x), true);
    return std::bit_cast<double>(std::bit_cast<uint64_t>(y) & upper);
  });
}

bool decode_function(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"rcp", Function::rcp}, {"sqrt", Function::sqrt}, {"rsqrt", Function::rsqrt}, {"sin", Function::sin},
      {"cos", Function::cos}, {"lg2", Function::lg2},   {"ex2", Function::ex2},     {"tanh", Function::tanh}};
  for (const auto& [name, function] : kFunctions)
    if (m.opcode() == name) i.immediate = static_cast<int64_t>(function);
  const auto function = static_cast<Function>(i.immediate);
  const bool approx = m.accept("approx");
  const bool stated = take_modifiers(m, i);
  if (approx == stated || (i.flags & kSaturate)) return false;
  const auto type = m.type();
  if (!type) return false;
  if (approx) {
    if (*type == PtxType::f32) i.run = function_of_one;
    if (*type == PtxType::f64 && (i.flags & kFlush) && (function == Function::rcp || function == Function::rsqrt))
      i.run = approximate_upper_half;
  } else if (function == Function::rcp || function == Function::sqrt) {
    const bool root = function == Function::sqrt;
    if (*type == PtxType::f32) i.run = root ? general<Sqrt, float> : general<Rcp, float>;
    if (*type == PtxType::f64 && !(i.flags & kFlush)) i.run = root ? general<Sqrt, double> : general<Rcp, double>;
  }
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits});
}

template <bool kMax>
bool decode_extreme(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (is_integer(s)) return decode_integer_extreme(coder, s, m, i);
  const bool flush = m.accept("ftz"), propagate = m.accept("NaN");
  const auto type = m.type();
  if (!type || flush) return false;
  if (*type == PtxType::f32)
    i.run = propagate ? binary<Extreme<kMax, true, float>, float, float, float>
                      : binary<Extreme<kMax, false, float>, float, float, float>;
  if (*type == PtxType::f64 && !propagate) i.run = binary<Extreme<kMax, false, double>, double, double, double>;
  if (!i.run)
    i.run = narrow_handler(*type, kMax ? (propagate ? NarrowOperation::max_nan : NarrowOperation::max)
                                       : (propagate ? NarrowOperation::min_nan : NarrowOperation::min));
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}

bool decode_sign(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (is_integer(s)) return decode_integer_sign(coder, s, m, i);
  const bool negate = m.opcode() == "neg", flush = m.accept("ftz");
  const auto type = m.type();
  if (!type || flush) return false;
  if (*type == PtxType::f32)
    i.run = negate ? unary<FlipSign<uint32_t>, uint32_t, uint32_t> : unary<ClearSign<uint32_t>, uint32_t, uint32_t>;
  if (*type == PtxType::f64)
    i.run = negate ? unary<FlipSign<uint64_t>, uint64_t, uint64_t> : unary<ClearSign<uint64_t>, uint64_t, uint64_t>;
  if (!i.run) i.run = narrow_handler(*type, negate ? NarrowOperation::neg : NarrowOperation::abs);
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits});
}

bool decode_copysign(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::f32) i.run = binary<CopySign<uint32_t>, uint32_t, uint32_t, uint32_t>;
  if (*type == PtxType::f64) i.run = binary<CopySign<uint64_t>, uint64_t, uint64_t, uint64_t>;
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}

}  // namespace

void add_float_decoders(Decoders& all) {
  all["add"] = all["sub"] = all["mul"] = decode_sum;
  all["fma"] = all["mad"] = decode_fma;
  all["div"] = decode_div;
  for (const std::string_view name : {"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"})
    all[name] = decode_function;
  all["min"] = decode_extreme<false>;
  all["max"] = decode_extreme<true>;
  all["neg"] = all["abs"] = decode_sign;
  all["copysign"] = decode_copysign;
}

}  // namespace halfmark::kernels::software_gpu
