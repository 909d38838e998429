// cvt and cvta: sections 9.7.9.20 and 9.7.9.21 of the PTX ISA.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "kernels/cuda/software_gpu/conversion.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"

namespace halfmark::kernels::software_gpu {
namespace {

enum Flags : uint8_t { kFlush = 1, kSaturate = 2, kFinite = 4, kRelu = 8 };

const FloatLayout& layout_of(PtxType type) {
  if (type == PtxType::f64) return kF64;
  if (type == PtxType::f32) return kF32;
  if (type == PtxType::bf16) return kBF16;
  return kF16;
}

bool is_signed(PtxType type) { return kind_of(type) == PtxKind::signed_integer; }
bool is_floating(PtxType type) { return kind_of(type) == PtxKind::floating; }

// A register of 16, 32 or 64 bits.
uint64_t read_register(const Warp& w, uint32_t offset, int bits, int l) {
  if (bits == 16) return w.lane<uint16_t>(offset, l);
  if (bits == 32) return w.lane<uint32_t>(offset, l);
  return w.lane<uint64_t>(offset, l);
}
void write_register(Warp& w, uint32_t offset, int bits, int l, uint64_t value) {
  if (bits == 16) w.set_lane(offset, l, static_cast<uint16_t>(value));
  if (bits == 32) w.set_lane(offset, l, static_cast<uint32_t>(value));
  if (bits == 64) w.set_lane(offset, l, value);
}
uint64_t extended(uint64_t value, int bits, bool sign) {
  if (bits == 64) return value;
  const int shift = 64 - bits;
  return sign ? static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift) : value << shift >> shift;
}

// Types and modifiers of a conversion, packed into Instruction::immediate.
struct Conversion {
  PtxType to, from;
  uint8_t to_bits, from_bits;  // of the registers
  RoundMode mode;
  bool to_integral;  // float to float of integral value (rni, rzi, rmi, rpi)
};
static_assert(sizeof(Conversion) <= sizeof(int64_t));
Conversion conversion_of(const Instruction& i) {
  Conversion c;
  std::memcpy(&c, &i.immediate, sizeof c);
  return c;
}

long double clamp_integer(long double x, PtxType to) {
  const int bits = bits_of(to);
  const long double high = std::scalbn(1.0L, is_signed(to) ? bits - 1 : bits) - 1;
  const long double low = is_signed(to) ? -std::scalbn(1.0L, bits - 1) : 0;
  return std::clamp(x, low, high);
}

// Float to integer: values out of range are clamped. NaN gives 0, or the most negative number if a 64-bit type is part
// of the conversion.
uint64_t integer_of(long double x, const Conversion& c) {
  if (std::isnan(x)) return c.from == PtxType::f64 || bits_of(c.to) == 64 ? uint64_t{1} << (bits_of(c.to) - 1) : 0;
  const long double value = clamp_integer(round_to_integer(x, c.mode), c.to);
  return is_signed(c.to) ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

uint64_t convert_one(uint64_t bits, const Conversion& c, uint8_t flags) {
  const bool flush = flags & kFlush;
  bits = extended(bits, bits_of(c.from), is_signed(c.from));
  if (!is_floating(c.from)) {
    const long double x =
        is_signed(c.from) ? static_cast<long double>(static_cast<int64_t>(bits)) : static_cast<long double>(bits);
    if (is_floating(c.to)) return round_to_code(x, layout_of(c.to), c.mode, false);
    if (!(flags & kSaturate)) return extended(bits, bits_of(c.to), is_signed(c.to));
    const long double y = clamp_integer(x, c.to);
    return is_signed(c.to) ? static_cast<uint64_t>(static_cast<int64_t>(y)) : static_cast<uint64_t>(y);
  }
  long double x = value_of_code(bits, layout_of(c.from));
  if (flush && c.from == PtxType::f32 && std::fabs(x) < 0x1p-126L) x = std::copysign(0.0L, x);
  if (!is_floating(c.to)) return extended(integer_of(x, c), bits_of(c.to), is_signed(c.to));
  if (c.to_integral) x = round_to_integer(x, c.mode);
  if ((flags & kSaturate)) x = x > 0 ? std::min(x, 1.0L) : std::isnan(x) ? 0.0L : 0.0L;
  if ((flags & kRelu) && !(x > 0) && !std::isnan(x)) x = 0;
  if (flush && c.to == PtxType::f32 && std::fabs(x) < 0x1p-126L) x = std::copysign(0.0L, x);
  return round_to_code(x, layout_of(c.to), c.mode, flags & kFinite);
}

void convert(Warp& w, const Instruction& i) {
  const Conversion c = conversion_of(i);
  each_lane(w.active, [&](int l) {
    write_register(w, i.d, c.to_bits, l, convert_one(read_register(w, i.a, c.from_bits, l), c, i.flags));
  });
}

template <class From, class To>
void convert_integer(Warp& w, const Instruction& i) {  // register to register; the shifts cut to the narrower types
  const Conversion c = conversion_of(i);
  const int from = 64 - bits_of(c.from), to = 64 - bits_of(c.to);
  const bool from_signed = is_signed(c.from), to_signed = is_signed(c.to);
  From a[kLanes];
  w.load(i.a, a);
  write_lanes<To>(w, i.d, [&](int l) {
    uint64_t x = static_cast<uint64_t>(a[l]) << from;
    x = from_signed ? static_cast<uint64_t>(static_cast<int64_t>(x) >> from) : x >> from;
    x <<= to;
    return static_cast<To>(to_signed ? static_cast<uint64_t>(static_cast<int64_t>(x) >> to) : x >> to);
  });
}
template <class From>
Handler integer_handler(int to_bits) {
  if (to_bits == 16) return convert_integer<From, uint16_t>;
  return to_bits == 32 ? convert_integer<From, uint32_t> : convert_integer<From, uint64_t>;
}

// The frequent ones. A NaN is canonical as in convert_one.
struct Widen {
  static double apply(float a) { return a != a ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(a); }
};
struct NarrowToF32 {
  static float apply(double a) { return a != a ? std::bit_cast<float>(0x7FFFFFFFu) : static_cast<float>(a); }
};
const std::array<float, 65536>& f16_values() {
  static const auto values = [] {
    std::array<float, 65536> all{};
    for (size_t code = 0; code < all.size(); ++code) {
      const long double x = value_of_code(code, kF16);
      all[code] = std::isnan(x) ? std::bit_cast<float>(0x7FFFFFFFu) : static_cast<float>(x);
    }
    return all;
  }();
  return values;
}
void widen_f16(Warp& w, const Instruction& i) {
  static const std::array<float, 65536>& values = f16_values();
  uint16_t a[kLanes];
  w.load(i.a, a);
  write_lanes<float>(w, i.d, [&](int l) { return values[a[l]]; });
}

std::optional<RoundMode> take_rounding(Modifiers& m, bool& to_integral) {
  struct Row {
    std::string_view name;
    RoundMode mode;
    bool integral;
  };
  constexpr Row kRows[] = {
      {"rn", RoundMode::near_even, false},   {"rz", RoundMode::toward_zero, false}, {"rm", RoundMode::down, false},
      {"rp", RoundMode::up, false},          {"rna", RoundMode::near_away, false},  {"rni", RoundMode::near_even, true},
      {"rzi", RoundMode::toward_zero, true}, {"rmi", RoundMode::down, true},        {"rpi", RoundMode::up, true}};
  for (const Row& row : kRows)
    if (m.accept(row.name)) {
      to_integral = row.integral;
      return row.mode;
    }
  return {};
}

// Two numbers in one register, the first operand in the upper half.
struct Packed {
  std::string_view name;
  const FloatLayout* layout;
};
constexpr Packed kPacked[] = {
    {"f16x2", &kF16}, {"bf16x2", &kBF16}, {"e4m3x2", &kE4M3}, {"e5m2x2", &kE5M2}, {"e2m1x2", &kE2M1}};
const FloatLayout* take_packed(Modifiers& m) {
  for (const Packed& row : kPacked)
    if (m.accept(row.name)) return row.layout;
  return nullptr;
}
struct PackedConversion {
  uint8_t to, from;  // in kPacked; from 255: two f32
  RoundMode mode;
  uint8_t to_bits, from_bits;
};
int index_in_packed(const FloatLayout* layout) {
  for (int n = 0; n < 5; ++n)
    if (kPacked[n].layout == layout) return n;
  return 255;
}
void convert_packed(Warp& w, const Instruction& i) {
  PackedConversion c;
  std::memcpy(&c, &i.immediate, sizeof c);
  const FloatLayout& to = *kPacked[c.to].layout;
  const int width = to.bits();
  each_lane(w.active, [&](int l) {
    uint64_t result = 0;
    for (int half = 0; half < 2; ++half) {
      long double x = 0;
      if (c.from == 255) {
        x = value_of_code(w.lane<uint32_t>(half ? i.a : i.b, l), kF32);
      } else {
        const FloatLayout& from = *kPacked[c.from].layout;
        const uint64_t both = read_register(w, i.a, c.from_bits, l);
        x = value_of_code(both >> half * from.bits() & ((uint64_t{1} << from.bits()) - 1), from);
      }
      if ((i.flags & kRelu) && !(x > 0) && !std::isnan(x)) x = 0;
      result |= round_to_code(x, to, c.mode, i.flags & kFinite) << half * width;
    }
    write_register(w, i.d, c.to_bits, l, result);
  });
}

bool decode_packed(Coder& coder, const Statement& s, Modifiers m, Instruction& i, RoundMode mode) {
  for (bool more = true; more;) {
    more = false;
    if (m.accept("relu")) i.flags |= kRelu, more = true;
    if (m.accept("satfinite")) i.flags |= kFinite, more = true;
  }
  const FloatLayout* to = take_packed(m);
  if (!to) return false;
  const bool from_f32 = m.accept("f32");
  const FloatLayout* from = from_f32 ? nullptr : take_packed(m);
  if ((!from_f32 && !from) || !m.done() || s.operands.size() != (from_f32 ? 3u : 2u)) return false;
  if (to->bits() < 16 && !(i.flags & kFinite)) return false;  // required by the PTX ISA
  PackedConversion c{static_cast<uint8_t>(index_in_packed(to)), static_cast<uint8_t>(index_in_packed(from)), mode,
                     static_cast<uint8_t>(std::max(2 * to->bits(), 16)),
                     static_cast<uint8_t>(from ? std::max(2 * from->bits(), 16) : 32)};
  std::memcpy(&i.immediate, &c, sizeof c);
  i.run = convert_packed;
  i.d = coder.destination(s.operands[0], c.to_bits);
  i.a = coder.source(s.operands[1], c.from_bits);
  if (from_f32) i.b = coder.source(s.operands[2], 32);
  return true;
}

void convert_tf32(Warp& w, const Instruction& i) {
  write_lanes<uint32_t>(w, i.d, [&](int l) {
    const long double x = value_of_code(w.lane<uint32_t>(i.a, l), kF32);
    return static_cast<uint32_t>(round_to_code(x, kTF32, static_cast<RoundMode>(i.immediate), i.flags & kFinite) << 13);
  });
}

bool decode_cvt(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  bool to_integral = false;
  const auto mode = take_rounding(m, to_integral);
  if (mode && decode_packed(coder, s, m, i, *mode)) {
    while (!m.done()) m.take();
    return true;
  }
  i.flags = 0;
  if (mode) {
    Modifiers copy = m;
    const bool finite = copy.accept("satfinite");
    if (copy.accept("tf32") && copy.accept("f32") && copy.done() && *mode != RoundMode::down &&
        *mode != RoundMode::up) {
      i.run = convert_tf32, i.immediate = static_cast<int64_t>(*mode), i.flags = finite ? kFinite : 0;
      while (!m.done()) m.take();
      return take_operands(coder, s, i, {32, 32});
    }
  }
  if (m.accept("ftz")) i.flags |= kFlush;
  if (m.accept("sat")) i.flags |= kSaturate;
  if (m.accept("relu")) i.flags |= kRelu;
  if (m.accept("satfinite")) i.flags |= kFinite;
  const auto to = m.type(), from = to ? m.type() : std::nullopt;
  if (!from || s.operands.size() != 2 || kind_of(*to) == PtxKind::bits || kind_of(*from) == PtxKind::bits ||
      *to == PtxType::pred || *from == PtxType::pred)
    return false;
  // Where PTX requires a rounding modifier and where it forbids one.
  const bool narrows = is_floating(*to) && (!is_floating(*from) || bits_of(*to) < bits_of(*from) ||
                                            (*to != *from && bits_of(*to) == bits_of(*from)));
  const bool integral = is_floating(*from) && (!is_floating(*to) || (*to == *from && to_integral));
  if ((narrows || integral) != mode.has_value()) {
    if (!(mode && *to == *from)) return false;
  }
  if (mode && to_integral != integral && !(*to == *from)) return false;
  int to_bits = 0, from_bits = 0;
  i.d = coder.destination_of_width_from(s.operands[0], bits_of(*to), to_bits);
  i.a = coder.source_of_width_up_to(s.operands[1], bits_of(*from), from_bits);
  const Conversion c{*to,
                     *from,
                     static_cast<uint8_t>(to_bits),
                     static_cast<uint8_t>(from_bits),
                     mode.value_or(RoundMode::near_even),
                     to_integral && is_floating(*to)};
  std::memcpy(&i.immediate, &c, sizeof c);
  i.run = convert;
  if (i.flags) return true;
  if (!is_floating(*to) && !is_floating(*from))
    i.run = from_bits == 16   ? integer_handler<uint16_t>(to_bits)
            : from_bits == 32 ? integer_handler<uint32_t>(to_bits)
                              : integer_handler<uint64_t>(to_bits);
  if (*to == PtxType::f64 && *from == PtxType::f32) i.run = unary<Widen, double, float>;
  if (*to == PtxType::f32 && *from == PtxType::f64 && c.mode == RoundMode::near_even)
    i.run = unary<NarrowToF32, float, double>;
  if (*to == PtxType::f32 && *from == PtxType::f16) i.run = widen_f16;
  return true;
}

// cvta: between the generic address space and one of the others. immediate: what is added.
void add_window(Warp& w, const Instruction& i) {
  const auto window = static_cast<uint64_t>(i.immediate);
  write_lanes<uint64_t>(w, i.d, [&](int l) { return w.lane<uint64_t>(i.a, l) + window; });
}
bool decode_cvta(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool to = m.accept("to");
  uint64_t window = 0;
  if (m.accept("shared") || m.accept("shared::cta"))
    window = shared_window();
  else if (m.accept("local"))
    window = local_window();
  else if (!m.accept("global") && !m.accept("const"))
    return false;
  i.run = add_window;
  i.immediate = static_cast<int64_t>(to ? ~window + 1 : window);
  return m.accept("u64") && take_operands(coder, s, i, {64, 64});
}

}  // namespace

void add_convert_decoders(Decoders& all) {
  all["cvt"] = decode_cvt;
  all["cvta"] = decode_cvta;
}

}  // namespace halfmark::kernels::software_gpu
