// Comparison and selection: section 9.7.6 of the PTX ISA.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu {
namespace {

// eq to ge: false if an operand is NaN. equ to geu: true then. lo, ls, hi, hs: lt, le, gt, ge of unsigned integers.
enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
struct ComparisonRow {
  std::string_view name;
  Comparison comparison;
};
constexpr ComparisonRow kComparisons[] = {{"eq", Comparison::eq},   {"ne", Comparison::ne},   {"lt", Comparison::lt},
                                          {"le", Comparison::le},   {"gt", Comparison::gt},   {"ge", Comparison::ge},
                                          {"equ", Comparison::equ}, {"neu", Comparison::neu}, {"ltu", Comparison::ltu},
                                          {"leu", Comparison::leu}, {"gtu", Comparison::gtu}, {"geu", Comparison::geu},
                                          {"num", Comparison::num}, {"nan", Comparison::nan}, {"lo", Comparison::lt},
                                          {"ls", Comparison::le},   {"hi", Comparison::gt},   {"hs", Comparison::ge}};

template <Comparison kComparison, class T>
bool holds(T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>) unordered = a != a || b != b;
  switch (kComparison) {
    case Comparison::eq:
      return a == b;
    case Comparison::ne:
      return !unordered && a != b;
    case Comparison::lt:
      return a < b;
    case Comparison::le:
      return a <= b;
    case Comparison::gt:
      return a > b;
    case Comparison::ge:
      return a >= b;
    case Comparison::equ:
      return unordered || a == b;
    case Comparison::neu:
      return a != b;
    case Comparison::ltu:
      return unordered || a < b;
    case Comparison::leu:
      return unordered || a <= b;
    case Comparison::gtu:
      return unordered || a > b;
    case Comparison::geu:
      return unordered || a >= b;
    case Comparison::num:
      return !unordered;
    case Comparison::nan:
      return unordered;
  }
  return false;
}

// f16 and bf16 are compared as the f32 that they are exactly.
struct Half {
  uint16_t code;
};
struct Bfloat {
  uint16_t code;
};
template <class T>
T comparable(T x) {
  return x;
}
float comparable(Half x) { return static_cast<float>(decode(DType::f16, x.code)); }
float comparable(Bfloat x) { return static_cast<float>(decode(DType::bf16, x.code)); }

template <Comparison kComparison, class T>
uint32_t compare(const Warp& w, const Instruction& i) {
  T a[kLanes], b[kLanes];
  w.load(i.a, a), w.load(i.b, b);
  uint32_t bits = 0;
  for (int l = 0; l < kLanes; ++l)
    bits |= static_cast<uint32_t>(holds<kComparison>(comparable(a[l]), comparable(b[l]))) << l;
  return bits;
}

// flags: bits 0 and 1 how a third predicate is combined (0: there is none, 1: and, 2: or, 3: xor), bit 2 it is negated.
template <Comparison kComparison, class T>
void set_predicates(Warp& w, const Instruction& i) {
  const uint32_t bits = compare<kComparison, T>(w, i);
  uint32_t first = bits, second = ~bits;
  if (i.flags & 3) {
    const uint32_t other = i.flags & 4 ? ~w.predicate(i.c) : w.predicate(i.c);
    const auto combined = [&](uint32_t x) {
      return (i.flags & 3) == 1 ? x & other : (i.flags & 3) == 2 ? x | other : x ^ other;
    };
    first = combined(first), second = combined(second);
  }
  if (i.d != kNoRegister) w.set_predicate(i.d, first);
  if (i.count) w.set_predicate(static_cast<uint32_t>(i.immediate), second);
}

// set: a number that says true. immediate: its code.
template <Comparison kComparison, class T>
void set_number(Warp& w, const Instruction& i) {
  const uint32_t bits = compare<kComparison, T>(w, i);
  const auto yes = static_cast<uint32_t>(i.immediate);
  if (i.count == 16)
    write_lanes<uint16_t>(w, i.d, [&](int l) { return static_cast<uint16_t>(bits >> l & 1 ? yes : 0); });
  else
    write_lanes<uint32_t>(w, i.d, [&](int l) { return bits >> l & 1 ? yes : 0; });
}

template <template <Comparison, class> class Make, class T>
Handler for_comparison(Comparison comparison) {
  using enum Comparison;
  constexpr bool floating = !std::is_integral_v<T>;
  switch (comparison) {
    case eq:
      return Make<eq, T>::handler();
    case ne:
      return Make<ne, T>::handler();
    case lt:
      return Make<lt, T>::handler();
    case le:
      return Make<le, T>::handler();
    case gt:
      return Make<gt, T>::handler();
    case ge:
      return Make<ge, T>::handler();
    case equ:
      return floating ? Make<equ, T>::handler() : nullptr;
    case neu:
      return floating ? Make<neu, T>::handler() : nullptr;
    case ltu:
      return floating ? Make<ltu, T>::handler() : nullptr;
    case leu:
      return floating ? Make<leu, T>::handler() : nullptr;
    case gtu:
      return floating ? Make<gtu, T>::handler() : nullptr;
    case geu:
      return floating ? Make<geu, T>::handler() : nullptr;
    case num:
      return floating ? Make<num, T>::handler() : nullptr;
    case nan:
      return floating ? Make<nan, T>::handler() : nullptr;
  }
  return nullptr;
}
template <Comparison kComparison, class T>
struct MakePredicate {
  static Handler handler() { return set_predicates<kComparison, T>; }
};
template <Comparison kComparison, class T>
struct MakeNumber {
  static Handler handler() { return set_number<kComparison, T>; }
};

template <template <Comparison, class> class Make>
Handler handler_for(PtxType type, Comparison comparison) {
  const bool only_equality = comparison == Comparison::eq || comparison == Comparison::ne;
  switch (type) {
    case PtxType::b16:
      return only_equality ? for_comparison<Make, uint16_t>(comparison) : nullptr;
    case PtxType::b32:
      return only_equality ? for_comparison<Make, uint32_t>(comparison) : nullptr;
    case PtxType::b64:
      return only_equality ? for_comparison<Make, uint64_t>(comparison) : nullptr;
    case PtxType::u16:
      return for_comparison<Make, uint16_t>(comparison);
    case PtxType::u32:
      return for_comparison<Make, uint32_t>(comparison);
    case PtxType::u64:
      return for_comparison<Make, uint64_t>(comparison);
    case PtxType::s16:
      return for_comparison<Make, int16_t>(comparison);
    case PtxType::s32:
      return for_comparison<Make, int32_t>(comparison);
    case PtxType::s64:
      return for_comparison<Make, int64_t>(comparison);
    case PtxType::f16:
      return for_comparison<Make, Half>(comparison);
    case PtxType::bf16:
      return for_comparison<Make, Bfloat>(comparison);
    case PtxType::f32:
      return for_comparison<Make, float>(comparison);
    case PtxType::f64:
      return for_comparison<Make, double>(comparison);
    case PtxType::pred:
    case PtxType::b8:
    case PtxType::u8:
    case PtxType::s8:
    case PtxType::f16x2:
    case PtxType::bf16x2:
      break;
  }
  return nullptr;
}

std::optional<Comparison> take_comparison(Modifiers& m) {
  for (const ComparisonRow& row : kComparisons)
    if (m.accept(row.name)) return row.comparison;
  return {};
}

bool decode_setp(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto comparison = take_comparison(m);
  if (!comparison) return false;
  const int combine = m.accept("and") ? 1 : m.accept("or") ? 2 : m.accept("xor") ? 3 : 0;
  const auto type = m.type();
  if (!type) return false;
  i.run = handler_for<MakePredicate>(*type, *comparison);
  // One or two destinations.
  const size_t others = combine ? 3 : 2;
  if (!i.run || s.operands.size() < others + 1 || s.operands.size() > others + 2) return false;
  const size_t first = s.operands.size() - others;
  i.d = coder.destination(s.operands[0], 1);
  if (first == 2) {
    const uint32_t second = coder.destination(s.operands[1], 1);
    i.count = second != kNoRegister;
    i.immediate = second;
  }
  i.a = coder.source(s.operands[first], bits_of(*type)), i.b = coder.source(s.operands[first + 1], bits_of(*type));
  i.flags = static_cast<uint8_t>(combine);
  if (combine) {
    i.c = coder.predicate(s.operands[first + 2]);
    if (s.operands[first + 2].negated) i.flags |= 4;
  }
  return true;
}

bool decode_set(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto comparison = take_comparison(m);
  if (!comparison) return false;
  const auto to = m.type(), from = to ? m.type() : std::nullopt;
  if (!from) return false;
  if (*to == PtxType::u32 || *to == PtxType::s32) i.immediate = 0xFFFFFFFF;
  if (*to == PtxType::u16 || *to == PtxType::s16) i.immediate = 0xFFFF;
  if (*to == PtxType::f32) i.immediate = 0x3F800000;
  if (*to == PtxType::f16) i.immediate = 0x3C00;
  if (*to == PtxType::bf16) i.immediate = 0x3F80;
  i.count = static_cast<uint16_t>(bits_of(*to));
  i.run = i.immediate ? handler_for<MakeNumber>(*from, *comparison) : nullptr;
  return i.run && take_operands(coder, s, i, {bits_of(*to), bits_of(*from), bits_of(*from)});
}

template <class T>
void select(Warp& w, const Instruction& i) {
  const uint32_t chosen = i.flags ? ~w.predicate(i.c) : w.predicate(i.c);
  T a[kLanes], b[kLanes];
  w.load(i.a, a), w.load(i.b, b);
  write_lanes<T>(w, i.d, [&](int l) { return chosen >> l & 1 ? a[l] : b[l]; });
}
bool decode_selp(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const auto type = m.type();
  if (!type || s.operands.size() != 4 || *type == PtxType::pred) return false;
  const int bits = bits_of(*type);
  if (bits == 16) i.run = select<uint16_t>;
  if (bits == 32) i.run = select<uint32_t>;
  if (bits == 64) i.run = select<uint64_t>;
  i.d = coder.destination(s.operands[0], bits);
  i.a = coder.source(s.operands[1], bits), i.b = coder.source(s.operands[2], bits);
  i.c = coder.predicate(s.operands[3]);
  i.flags = s.operands[3].negated;
  return true;
}

enum class Test : uint8_t { finite, infinite, number, notanumber, normal, subnormal };
template <class T>
bool passes(Test test, T x) {
  switch (test) {
    case Test::finite:
      return std::isfinite(x);
    case Test::infinite:
      return std::isinf(x);
    case Test::number:
      return !std::isnan(x);
    case Test::notanumber:
      return std::isnan(x);
    case Test::normal:
      return std::isnormal(x);
    case Test::subnormal:
      return std::fpclassify(x) == FP_SUBNORMAL;
  }
  return false;
}
template <class T>
void test_property(Warp& w, const Instruction& i) {
  uint32_t bits = 0;
  for (int l = 0; l < kLanes; ++l)
    bits |= static_cast<uint32_t>(passes(static_cast<Test>(i.immediate), w.lane<T>(i.a, l))) << l;
  w.set_predicate(i.d, bits);
}
bool decode_testp(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  constexpr std::pair<std::string_view, Test> kTests[] = {{"finite", Test::finite}, {"infinite", Test::infinite},
                                                          {"number", Test::number}, {"notanumber", Test::notanumber},
                                                          {"normal", Test::normal}, {"subnormal", Test::subnormal}};
  for (const auto& [name, test] : kTests) {
    if (!m.accept(name)) continue;
    const auto type = m.type();
    if (!type || s.operands.size() != 2) return false;
    i.immediate = static_cast<int64_t>(test);
    if (*type == PtxType::f32) i.run = test_property<float>;
    if (*type == PtxType::f64) i.run = test_property<double>;
    i.d = coder.destination(s.operands[0], 1), i.a = coder.source(s.operands[1], bits_of(*type));
    return i.run;
  }
  return false;
}

}  // namespace

void add_compare_decoders(Decoders& all) {
  all["setp"] = decode_setp;
  all["set"] = decode_set;
  all["selp"] = decode_selp;
  all["testp"] = decode_testp;
}

}  // namespace halfmark::kernels::software_gpu
