// Logic, shifts, bit fields and moves: sections 9.7.1 (bit fields), 9.7.8 and 9.7.9 of the PTX ISA.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/integer_types.h"
#include "kernels/cuda/software_gpu/lanes.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
// Shift amounts beyond the width are clamped to it.
struct Shl {
  template <class T>
  static T apply(T a, uint32_t n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Modular<T>>(a) << n);
  }
};
struct Shr {
  template <class T>
  static T apply(T a, uint32_t n) {
    constexpr uint32_t bits = 8 * sizeof(T);
    if (n >= bits) n = std::is_signed_v<T> ? bits - 1 : bits;
    return n == bits ? T{0} : static_cast<T>(a >> n);
  }
};
struct Popc {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Brev {
  template <class T>
  static T apply(T a) {
    T reversed = 0;
    for (size_t bit = 0; bit < 8 * sizeof(T); ++bit) reversed = static_cast<T>(reversed << 1 | (a >> bit & 1));
    return reversed;
  }
};
struct Bfind {
  template <class T>
  static uint32_t apply(T a) {
    Unsigned<T> bits = static_cast<Unsigned<T>>(a);
    if (std::is_signed_v<T> && a < 0) bits = static_cast<Unsigned<T>>(~bits);
    return bits == 0 ? kAllLanes
                     : static_cast<uint32_t>(8 * sizeof(T) - 1) - static_cast<uint32_t>(std::countl_zero(bits));
  }
};
struct BfindShift {  // shiftamt: by how many places the bit is below the highest
  template <class T>
  static uint32_t apply(T a) {
    return a == 0 ? kAllLanes : static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Bfe {
  template <class T>
  static T apply(T a, uint32_t position, uint32_t length) {
    constexpr uint32_t bits = 8 * sizeof(T);
    position &= 0xFF, length &= 0xFF;
    if (length == 0) return T{0};
    const uint32_t top = std::min(position + length - 1, bits - 1);
    const bool sign = std::is_signed_v<T> && (static_cast<Unsigned<T>>(a) >> top & 1);
    Unsigned<T> field = Shr::apply(static_cast<Unsigned<T>>(a), position);
    if (length < bits) field = static_cast<Unsigned<T>>(field & ((Unsigned<T>{1} << length) - 1));
    const uint32_t held = position >= bits ? 0 : std::min(length, bits - position);
    if (sign && held < bits) field = static_cast<Unsigned<T>>(field | ~((Unsigned<T>{1} << held) - 1));
    return static_cast<T>(field);
  }
};
// a: the inserted field, b: what it is inserted into; position and length are the third and fourth operands.
template <class T>
void bit_field_insert(Warp& w, const Instruction& i) {
  const uint32_t length_at = w.kernel->lists[i.list];
  write_lanes<T>(w, i.d, [&](int l) {
    const T a = w.lane<T>(i.a, l), b = w.lane<T>(i.b, l);
    const uint32_t position = w.lane<uint32_t>(i.c, l) & 0xFF, length = w.lane<uint32_t>(length_at, l) & 0xFF;
    constexpr uint32_t bits = 8 * sizeof(T);
    if (length == 0 || position >= bits) return b;
    const T ones = length >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(ones << position);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
  });
}
// Byte i of the result is the byte of (b, a) that nibble i of c selects; bit 3 of a nibble repeats that byte's sign.
struct Prmt {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int n = 0; n < 4; ++n) {
      const uint32_t selector = c >> 4 * n & 0xF;
      auto byte = static_cast<uint32_t>(both >> 8 * (selector & 7) & 0xFF);
      if (selector & 8) byte = byte & 0x80 ? 0xFF : 0;
      result |= byte << 8 * n;
    }
    return result;
  }
};
template <bool kLeft, bool kWrap>
struct Funnel {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t n = kWrap ? c & 31 : std::min(c, 32u);
    const uint64_t both = uint64_t{b} << 32 | a;
    return kLeft ? static_cast<uint32_t>((both << n) >> 32) : static_cast<uint32_t>(both >> n);
  }
};
void lop3(Warp& w, const Instruction& i) {
  const auto table = static_cast<uint32_t>(i.immediate);
  write_lanes<uint32_t>(w, i.d, [&](int l) {
    const uint32_t a = w.lane<uint32_t>(i.a, l), b = w.lane<uint32_t>(i.b, l), c = w.lane<uint32_t>(i.c, l);
    uint32_t result = 0;
    for (uint32_t row = 0; row < 8; ++row)
      if (table >> row & 1) result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    return result;
  });
}
template <int kOperation>
void combine_predicates(Warp& w, const Instruction& i) {
  uint32_t a = w.predicate(i.a), b = i.b == kNoRegister ? 0 : w.predicate(i.b);
  if (i.flags & 1) a = ~a;
  if (i.flags & 2) b = ~b;
  w.set_predicate(i.d, kOperation == 0   ? a & b
                       : kOperation == 1 ? a | b
                       : kOperation == 2 ? a ^ b
                       : kOperation == 3 ? ~a
                                         : a);
}

struct Move {
  template <class T>
  static T apply(T a) {
    return a;
  }
};

template <class F, int kPredicates>
bool decode_logic(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::pred) {
    if (s.operands.size() != 3) return false;
    i.run = combine_predicates<kPredicates>;
    i.d = coder.destination(s.operands[0], 1);
    i.a = coder.predicate(s.operands[1]), i.b = coder.predicate(s.operands[2]);
    i.flags = static_cast<uint8_t>((s.operands[1].negated ? 1 : 0) | (s.operands[2].negated ? 2 : 0));
    return true;
  }
  if (*type == PtxType::b16) i.run = two_operands<F, uint16_t>();
  if (*type == PtxType::b32) i.run = two_operands<F, uint32_t>();
  if (*type == PtxType::b64) i.run = two_operands<F, uint64_t>();
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type), bits_of(*type)});
}

bool decode_not(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type || s.operands.size() != 2) return false;
  if (*type == PtxType::pred) {
    i.run = combine_predicates<3>;
    i.d = coder.destination(s.operands[0], 1), i.a = coder.predicate(s.operands[1]);
    return true;
  }
  if (*type == PtxType::b16) i.run = unary<Not, uint16_t, uint16_t>;
  if (*type == PtxType::b32) i.run = unary<Not, uint32_t, uint32_t>;
  if (*type == PtxType::b64) i.run = unary<Not, uint64_t, uint64_t>;
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type)});
}

bool decode_shift(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  const bool left = m.opcode() == "shl";
  if (left && kind_of(*type) != PtxKind::bits) return false;
  if (*type == PtxType::b16 || *type == PtxType::u16)
    i.run = left ? binary<Shl, uint16_t, uint16_t, uint32_t> : binary<Shr, uint16_t, uint16_t, uint32_t>;
  if (*type == PtxType::b32 || *type == PtxType::u32)
    i.run = left ? binary<Shl, uint32_t, uint32_t, uint32_t> : binary<Shr, uint32_t, uint32_t, uint32_t>;
  if (*type == PtxType::b64 || *type == PtxType::u64)
    i.run = left ? binary<Shl, uint64_t, uint64_t, uint32_t> : binary<Shr, uint64_t, uint64_t, uint32_t>;
  if (*type == PtxType::s16) i.run = binary<Shr, int16_t, int16_t, uint32_t>;
  if (*type == PtxType::s32) i.run = binary<Shr, int32_t, int32_t, uint32_t>;
  if (*type == PtxType::s64) i.run = binary<Shr, int64_t, int64_t, uint32_t>;
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type), 32});
}

bool decode_count(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  const bool ones = m.opcode() == "popc";
  if (*type == PtxType::b32) i.run = ones ? unary<Popc, uint32_t, uint32_t> : unary<Clz, uint32_t, uint32_t>;
  if (*type == PtxType::b64) i.run = ones ? unary<Popc, uint32_t, uint64_t> : unary<Clz, uint32_t, uint64_t>;
  return i.run && take_operands(coder, s, i, {32, bits_of(*type)});
}
bool decode_bfind(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool shift = m.accept("shiftamt");
  const auto type = m.type();
  if (!type) return false;
  if (shift) {
    if (*type == PtxType::u32) i.run = unary<BfindShift, uint32_t, uint32_t>;
    if (*type == PtxType::u64) i.run = unary<BfindShift, uint32_t, uint64_t>;
    return i.run && take_operands(coder, s, i, {32, bits_of(*type)});
  }
  if (*type == PtxType::u32) i.run = unary<Bfind, uint32_t, uint32_t>;
  if (*type == PtxType::s32) i.run = unary<Bfind, uint32_t, int32_t>;
  if (*type == PtxType::u64) i.run = unary<Bfind, uint32_t, uint64_t>;
  if (*type == PtxType::s64) i.run = unary<Bfind, uint32_t, int64_t>;
  return i.run && take_operands(coder, s, i, {32, bits_of(*type)});
}
bool decode_brev(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::b32) i.run = unary<Brev, uint32_t, uint32_t>;
  if (*type == PtxType::b64) i.run = unary<Brev, uint64_t, uint64_t>;
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type)});
}
bool decode_bfe(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type) return false;
  if (*type == PtxType::u32) i.run = ternary<Bfe, uint32_t, uint32_t, uint32_t, uint32_t>;
  if (*type == PtxType::s32) i.run = ternary<Bfe, int32_t, int32_t, uint32_t, uint32_t>;
  if (*type == PtxType::u64) i.run = ternary<Bfe, uint64_t, uint64_t, uint32_t, uint32_t>;
  if (*type == PtxType::s64) i.run = ternary<Bfe, int64_t, int64_t, uint32_t, uint32_t>;
  return i.run && take_operands(coder, s, i, {bits_of(*type), bits_of(*type), 32, 32});
}
bool decode_bfi(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type || s.operands.size() != 5) return false;
  if (*type == PtxType::b32) i.run = bit_field_insert<uint32_t>;
  if (*type == PtxType::b64) i.run = bit_field_insert<uint64_t>;
  const int bits = bits_of(*type);
  i.d = coder.destination(s.operands[0], bits);
  i.a = coder.source(s.operands[1], bits), i.b = coder.source(s.operands[2], bits);
  i.c = coder.source(s.operands[3], 32);
  i.list = static_cast<uint32_t>(coder.kernel().lists.size());
  coder.kernel().lists.push_back(coder.source(s.operands[4], 32));
  return true;
}
bool decode_prmt(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  i.run = ternary<Prmt, uint32_t, uint32_t, uint32_t, uint32_t>;
  return m.accept("b32") && take_operands(coder, s, i, {32, 32, 32, 32});
}
bool decode_lop3(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("b32") || s.operands.size() != 5) return false;
  i.run = lop3;
  i.d = coder.destination(s.operands[0], 32);
  i.a = coder.source(s.operands[1], 32), i.b = coder.source(s.operands[2], 32), i.c = coder.source(s.operands[3], 32);
  i.immediate = static_cast<int64_t>(coder.number(s.operands[4]));
  return true;
}
bool decode_shf(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool left = m.accept("l");
  if (!left && !m.accept("r")) return false;
  const bool wrap = m.accept("wrap");
  if ((!wrap && !m.accept("clamp")) || !m.accept("b32")) return false;
  using U = uint32_t;
  if (left) i.run = wrap ? ternary<Funnel<true, true>, U, U, U, U> : ternary<Funnel<true, false>, U, U, U, U>;
  if (!left) i.run = wrap ? ternary<Funnel<false, true>, U, U, U, U> : ternary<Funnel<false, false>, U, U, U, U>;
  return take_operands(coder, s, i, {32, 32, 32, 32});
}
// mov.b64 {low, high}, x and back: elements of equal width that fill the register.
void unpack(Warp& w, const Instruction& i) {
  const uint32_t* to = &w.kernel->lists[i.list];
  const size_t step = static_cast<size_t>(i.immediate);  // bytes of an element
  each_lane(w.active, [&](int l) {
    for (size_t n = 0; n < i.count; ++n) {
      if (to[n] == kNoRegister) continue;
      std::memmove(w.registers + to[n] + static_cast<size_t>(l) * step,
                   w.registers + i.a + static_cast<size_t>(l) * step * i.count + n * step, step);
    }
  });
}
void pack(Warp& w, const Instruction& i) {
  const uint32_t* from = &w.kernel->lists[i.list];
  const size_t step = static_cast<size_t>(i.immediate);
  each_lane(w.active, [&](int l) {
    std::byte whole[8];
    for (size_t n = 0; n < i.count; ++n)
      std::memcpy(whole + n * step, w.registers + from[n] + static_cast<size_t>(l) * step, step);
    std::memcpy(w.registers + i.d + static_cast<size_t>(l) * step * i.count, whole, step * i.count);
  });
}

// PTX ISA, %globaltimer: how often it advances depends on the implementation.
uint64_t timer_or_clock(bool is_timer) {
  static const bool stands_still = std::getenv("HALFMARK_SOFTWARE_GPU_TIMER") != nullptr;
  if (is_timer && stands_still) return 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void read_clock(Warp& w, const Instruction& i) {
  const uint64_t now = timer_or_clock(i.immediate != 0);
  if (i.flags)
    write_lanes<uint64_t>(w, i.d, [&](int) { return now; });
  else
    write_lanes<uint32_t>(w, i.d, [&](int) { return static_cast<uint32_t>(now); });
}

bool decode_mov(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type || s.operands.size() != 2) return false;
  const Operand &to = s.operands[0], &from = s.operands[1];
  const int bits = bits_of(*type);
  if (*type == PtxType::pred) {
    i.run = combine_predicates<4>;
    i.d = coder.destination(to, 1), i.a = coder.predicate(from);
    return true;
  }
  if (to.kind == Operand::Kind::vector || from.kind == Operand::Kind::vector) {
    const bool unpacks = to.kind == Operand::Kind::vector;
    if (unpacks && from.kind == Operand::Kind::vector) return false;
    const auto& parts = unpacks ? to.parts : from.parts;
    const int part = bits / static_cast<int>(parts.size());
    if (part < 16) return false;
    i.run = unpacks ? unpack : pack;
    i.count = static_cast<uint16_t>(parts.size());
    i.immediate = part / 8;
    i.list = static_cast<uint32_t>(coder.kernel().lists.size());
    for (const Operand& one : parts)
      coder.kernel().lists.push_back(unpacks ? coder.destination(one, part) : coder.source(one, part));
    if (unpacks) i.a = coder.source(from, bits);
    if (!unpacks) i.d = coder.destination(to, bits);
    return true;
  }
  if (from.kind == Operand::Kind::special &&
      (from.special == Special::clock || from.special == Special::clock64 || from.special == Special::globaltimer)) {
    i.run = read_clock;
    i.flags = bits == 64;
    i.immediate = from.special == Special::globaltimer;
    i.d = coder.destination(to, bits);
    return coder.bits_of(from) == bits;
  }
  if (bits == 16) i.run = unary<Move, uint16_t, uint16_t>;
  if (bits == 32) i.run = unary<Move, uint32_t, uint32_t>;
  if (bits == 64) i.run = unary<Move, uint64_t, uint64_t>;
  return i.run && take_operands(coder, s, i, {bits, bits});
}

}  // namespace

void add_bit_decoders(Decoders& all) {
  all["and"] = decode_logic<And, 0>;
  all["or"] = decode_logic<Or, 1>;
  all["xor"] = decode_logic<Xor, 2>;
  all["not"] = decode_not;
  all["shl"] = all["shr"] = decode_shift;
  all["popc"] = all["clz"] = decode_count;
  all["brev"] = decode_brev;
  all["bfind"] = decode_bfind;
  all["bfe"] = decode_bfe;
  all["bfi"] = decode_bfi;
  all["prmt"] = decode_prmt;
  all["lop3"] = decode_lop3;
  all["shf"] = decode_shf;
  all["mov"] = decode_mov;
}

}  // namespace halfmark::kernels::software_gpu
