// Integer arithmetic: section 9.7.1 of the PTX ISA.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cuda/software_gpu/arithmetic_decoders.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/integer_types.h"
#include "kernels/cuda/software_gpu/lanes.h"

namespace halfmark::kernels::software_gpu {
namespace {

template <class T>
struct Wider;
template <>
struct Wider<int16_t> {
  using Type = int32_t;
};
template <>
struct Wider<uint16_t> {
  using Type = uint32_t;
};
template <>
struct Wider<int32_t> {
  using Type = int64_t;
};
template <>
struct Wider<uint32_t> {
  using Type = uint64_t;
};
template <>
struct Wider<int64_t> {
  __extension__ using Type = __int128;
};
template <>
struct Wider<uint64_t> {
  __extension__ using Type = unsigned __int128;
};

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) + static_cast<Modular<T>>(b));
  }
};
struct Sub {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) - static_cast<Modular<T>>(b));
  }
};
struct AddSat {
  static int32_t apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
  }
};
struct SubSat {
  static int32_t apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
  }
};
struct MulLow {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) * static_cast<Modular<T>>(b));
  }
};
struct MulHigh {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wider<T>::Type;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
  }
};
template <class T>
struct MulWide {
  using W = typename Wider<T>::Type;
  static W apply(T a, T b) { return static_cast<W>(static_cast<W>(a) * static_cast<W>(b)); }
};
struct MadLow {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(MulLow::apply(a, b), c);
  }
};
struct MadHigh {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(MulHigh::apply(a, b), c);
  }
};
template <class T>
struct MadWide {
  using W = typename Wider<T>::Type;
  static W apply(T a, T b, W c) { return Add::apply(MulWide<T>::apply(a, b), c); }
};
// Division by zero: the PTX ISA leaves the value unspecified; all bits set is what GPUs give.
struct Div {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub::apply(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return T{0};
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Abs {
  template <class T>
  static T apply(T a) {
    return a < 0 ? Sub::apply(T{0}, a) : a;
  }
};
struct Neg {
  template <class T>
  static T apply(T a) {
    return Sub::apply(T{0}, a);
  }
};
template <class T>
struct Sad {
  static T apply(T a, T b, T c) { return Add::apply(c, a < b ? Sub::apply(b, a) : Sub::apply(a, b)); }
};

// The handler for one of the integer types; null for others.
template <class F>
Handler for_integers(PtxType type) {
  if (type == PtxType::u16) return two_operands<F, uint16_t>();
  if (type == PtxType::s16) return two_operands<F, int16_t>();
  if (type == PtxType::u32) return two_operands<F, uint32_t>();
  if (type == PtxType::s32) return two_operands<F, int32_t>();
  if (type == PtxType::u64) return two_operands<F, uint64_t>();
  if (type == PtxType::s64) return two_operands<F, int64_t>();
  return nullptr;
}
template <class F>
Handler three_for_integers(PtxType type) {
  if (type == PtxType::u16) return ternary<F, uint16_t, uint16_t, uint16_t, uint16_t>;
  if (type == PtxType::s16) return ternary<F, int16_t, int16_t, int16_t, int16_t>;
  if (type == PtxType::u32) return ternary<F, uint32_t, uint32_t, uint32_t, uint32_t>;
  if (type == PtxType::s32) return ternary<F, int32_t, int32_t, int32_t, int32_t>;
  if (type == PtxType::u64) return ternary<F, uint64_t, uint64_t, uint64_t, uint64_t>;
  if (type == PtxType::s64) return ternary<F, int64_t, int64_t, int64_t, int64_t>;
  return nullptr;
}

template <class F, template <class> class Wide>
bool decode_product(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool low = m.accept("lo"), high = !low && m.accept("hi"), wide = !low && !high && m.accept("wide");
  if (!low && !high && !wide) return false;
  const auto type = m.type();
  if (!type) return false;
  const int bits = bits_of(*type);
  if (wide) {
    if (*type == PtxType::u16) i.run = binary<Wide<uint16_t>, uint32_t, uint16_t, uint16_t>;
    if (*type == PtxType::s16) i.run = binary<Wide<int16_t>, int32_t, int16_t, int16_t>;
    if (*type == PtxType::u32) i.run = binary<Wide<uint32_t>, uint64_t, uint32_t, uint32_t>;
    if (*type == PtxType::s32) i.run = binary<Wide<int32_t>, int64_t, int32_t, int32_t>;
    return i.run && take_operands(coder, s, i, {2 * bits, bits, bits});
  }
  i.run = low ? for_integers<MulLow>(*type) : for_integers<MulHigh>(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}

}  // namespace

// mul and mad of integers; those of floating types are elsewhere.
bool decode_integer_mul(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  return decode_product<MulLow, MulWide>(coder, s, m, i);
}
bool decode_integer_mad(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool low = m.accept("lo"), high = !low && m.accept("hi"), wide = !low && !high && m.accept("wide");
  if (!low && !high && !wide) return false;
  const auto type = m.type();
  if (!type) return false;
  const int bits = bits_of(*type);
  if (wide) {
    if (*type == PtxType::u16) i.run = ternary<MadWide<uint16_t>, uint32_t, uint16_t, uint16_t, uint32_t>;
    if (*type == PtxType::s16) i.run = ternary<MadWide<int16_t>, int32_t, int16_t, int16_t, int32_t>;
    if (*type == PtxType::u32) i.run = ternary<MadWide<uint32_t>, uint64_t, uint32_t, uint32_t, uint64_t>;
    if (*type == PtxType::s32) i.run = ternary<MadWide<int32_t>, int64_t, int32_t, int32_t, int64_t>;
    return i.run && take_operands(coder, s, i, {2 * bits, bits, bits, 2 * bits});
  }
  i.run = low ? three_for_integers<MadLow>(*type) : three_for_integers<MadHigh>(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits, bits});
}
bool decode_integer_sum(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool subtract = m.opcode() == "sub", saturated = m.accept("sat");
  const auto type = m.type();
  if (!type) return false;
  if (saturated) {
    if (*type != PtxType::s32) return false;
    i.run = subtract ? binary<SubSat, int32_t, int32_t, int32_t> : binary<AddSat, int32_t, int32_t, int32_t>;
  } else {
    i.run = subtract ? for_integers<Sub>(*type) : for_integers<Add>(*type);
  }
  const int bits = bits_of(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}
bool decode_integer_extreme(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  const int bits = bits_of(*type);
  i.run = m.opcode() == "min" ? for_integers<Min>(*type) : for_integers<Max>(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}
bool decode_integer_quotient(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  const int bits = bits_of(*type);
  i.run = m.opcode() == "div" ? for_integers<Div>(*type) : for_integers<Rem>(*type);
  return i.run && take_operands(coder, s, i, {bits, bits, bits});
}
bool decode_integer_sign(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  const bool negate = m.opcode() == "neg";
  if (*type == PtxType::s16) i.run = negate ? unary<Neg, int16_t, int16_t> : unary<Abs, int16_t, int16_t>;
  if (*type == PtxType::s32) i.run = negate ? unary<Neg, int32_t, int32_t> : unary<Abs, int32_t, int32_t>;
  if (*type == PtxType::s64) i.run = negate ? unary<Neg, int64_t, int64_t> : unary<Abs, int64_t, int64_t>;
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type)});
}

namespace {

bool decode_sad(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::u32) i.run = ternary<Sad<uint32_t>, uint32_t, uint32_t, uint32_t, uint32_t>;
  if (*type == PtxType::s32) i.run = ternary<Sad<int32_t>, int32_t, int32_t, int32_t, int32_t>;
  return i.run && take_operands(coder, s, i, {32, 32, 32, 32});
}

}  // namespace

void add_integer_decoders(Decoders& all) {
  all["sad"] = decode_sad;
  all["rem"] = decode_integer_quotient;
}

}  // namespace halfmark::kernels::software_gpu
