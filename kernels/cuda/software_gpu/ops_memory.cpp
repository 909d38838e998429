// ld, st, atom, red and fences: sections 9.7.9 and 9.7.13 of the PTX ISA.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"
#include "kernels/cuda/software_gpu/memory_access.h"

namespace halfmark::kernels::software_gpu {
namespace {

Space take_space(Modifiers& m) {
  if (m.accept("global")) return Space::global;
  if (m.accept("const")) return Space::constant;
  if (m.accept("shared") || m.accept("shared::cta")) return Space::shared;
  if (m.accept("local")) return Space::local;
  if (m.accept("param") || m.accept("param::entry")) return Space::param;
  return Space::generic;
}
// Caching hints change no result.
void take_hints(Modifiers& m) {
  while (m.accept("ca") || m.accept("cg") || m.accept("cs") || m.accept("cv") || m.accept("lu") || m.accept("wb") ||
         m.accept("wt") || m.accept("nc") || m.accept("L1::no_allocate") || m.accept("L1::evict_first") ||
         m.accept("L1::evict_last") || m.accept("L1::evict_normal") || m.accept("L2::64B") || m.accept("L2::128B") ||
         m.accept("L2::256B")) {
  }
}
// Blocks run one after another, and the checks of shared memory are stricter than any order, so the order asked for
// changes nothing.
void take_order(Modifiers& m) {
  if (m.accept("weak") || m.accept("volatile")) return;
  if (m.accept("relaxed") || m.accept("acquire") || m.accept("release") || m.accept("acq_rel"))
    (void)(m.accept("cta") || m.accept("cluster") || m.accept("gpu") || m.accept("sys"));
}

// One element between memory and a register, which may be wider.
struct Element {
  uint8_t bytes, register_bytes;
  bool is_signed;
  Space space;
};
Element element_of(const Instruction& i) {
  Element e;
  const uint64_t packed = i.c;
  std::memcpy(&e, &packed, sizeof e);
  return e;
}

// The bytes as the register holds them, sign- or zero-extended.
uint64_t extended(const Element& e, const std::byte* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, e.bytes);
  if (!e.is_signed) return value;
  const int shift = 64 - 8 * e.bytes;
  return static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
}
void put(Warp& w, uint32_t offset, int lane, const Element& e, const std::byte* from) {
  if (offset == kNoRegister) return;
  const uint64_t value = extended(e, from);
  if (e.register_bytes == 4) return w.set_lane<uint32_t>(offset, lane, static_cast<uint32_t>(value));
  if (e.register_bytes == 2) return w.set_lane<uint16_t>(offset, lane, static_cast<uint16_t>(value));
  w.set_lane<uint64_t>(offset, lane, value);
}
void put_in_all(Warp& w, uint32_t offset, const Element& e, uint64_t value) {
  if (offset == kNoRegister) return;
  if (e.register_bytes == 4) return write_lanes<uint32_t>(w, offset, [&](int) { return static_cast<uint32_t>(value); });
  if (e.register_bytes == 2) return write_lanes<uint16_t>(w, offset, [&](int) { return static_cast<uint16_t>(value); });
  write_lanes<uint64_t>(w, offset, [&](int) { return value; });
}

template <class T>
void load_plain(Warp& w, const Instruction& i) {  // one element of the register's width, the frequent case
  const Element e = element_of(i);
  const bool is_fast = e.space == Space::global && !w.block->launch().work;
  const Allocation* hint = is_fast ? w.block->hint(w.pc - 1) : nullptr;
  each_lane(w.active, [&](int l) {
    T value;
    // What access() would do if nothing is wrong.
    if (const uint64_t address = address_of(w, i, l); hint && address % sizeof(T) == 0 &&
                                                      hint->holds(address, sizeof(T)) &&
                                                      hint->is_written(address - hint->address, sizeof(T))) {
      std::memcpy(&value, hint->storage + (address - hint->address), sizeof value);
      w.set_lane<T>(i.d, l, value);
      return;
    }
    std::memcpy(&value, access(w, i, l, e.space, address_of(w, i, l), sizeof(T), Use::read, nullptr), sizeof value);
    w.set_lane<T>(i.d, l, value);
  });
}

void load(Warp& w, const Instruction& i) {
  const Element e = element_of(i);
  const uint32_t* to = &w.kernel->lists[i.list];
  const uint64_t bytes = uint64_t{e.bytes} * i.count;
  each_lane(w.active, [&](int l) {
    const std::byte* from = access(w, i, l, e.space, address_of(w, i, l), bytes, Use::read, nullptr);
    for (uint32_t n = 0; n < i.count; ++n) put(w, to[n], l, e, from + n * e.bytes);
  });
}

// Parameters are the same for all lanes if the address is.
void load_parameter(Warp& w, const Instruction& i) {
  const Element e = element_of(i);
  const uint32_t* to = &w.kernel->lists[i.list];
  if (w.active == 0) return;
  const int first = std::countr_zero(w.active);
  const uint64_t address = address_of(w, i, first);
  const std::byte* from = access(w, i, first, Space::param, address, uint64_t{e.bytes} * i.count, Use::read, nullptr);
  for (uint32_t n = 0; n < i.count; ++n) put_in_all(w, to[n], e, extended(e, from + n * e.bytes));
}

void store(Warp& w, const Instruction& i) {
  const Element e = element_of(i);
  const uint32_t* from = &w.kernel->lists[i.list];
  const uint64_t bytes = uint64_t{e.bytes} * i.count;
  each_lane(w.active, [&](int l) {
    std::byte value[32];
    for (uint32_t n = 0; n < i.count; ++n)
      std::memcpy(value + n * e.bytes, w.registers + from[n] + static_cast<size_t>(l) * e.register_bytes, e.bytes);
    std::memcpy(access(w, i, l, e.space, address_of(w, i, l), bytes, Use::write, value), value, bytes);
  });
}

uint32_t packed_element(const Element& e) {
  uint32_t packed = 0;
  static_assert(sizeof e == sizeof packed);
  std::memcpy(&packed, &e, sizeof e);
  return packed;
}

bool decode_ld_st(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool loads = m.opcode() == "ld" || m.opcode() == "ldu";
  take_order(m);
  const Space space = take_space(m);
  take_hints(m);
  const int count = m.accept("v2") ? 2 : m.accept("v4") ? 4 : m.accept("v8") ? 8 : 1;
  const auto type = m.type();
  if (!type || *type == PtxType::pred || s.operands.size() != 2) return false;
  if (!loads && (space == Space::constant || space == Space::param)) return false;
  const Operand& values = s.operands[loads ? 0 : 1];
  coder.address(s.operands[loads ? 1 : 0], i);
  if ((values.kind == Operand::Kind::vector) != (count > 1)) return false;
  if (count > 1 && values.parts.size() != static_cast<size_t>(count)) return false;
  // Widest access: 16 bytes; 32 from sm_100 on, in global memory.
  const int bytes = bits_of(*type) / 8;
  if (bytes * count > (coder.module().capability >= 100 && space == Space::global ? 32 : 16)) return false;
  i.count = static_cast<uint16_t>(count);
  i.list = static_cast<uint32_t>(coder.kernel().lists.size());
  int width = 0;
  for (int n = 0; n < count; ++n) {
    const Operand& value = count > 1 ? values.parts[static_cast<size_t>(n)] : values;
    int actual = 0;
    const uint32_t offset = loads ? coder.destination_of_width_from(value, bits_of(*type), actual)
                                  : coder.source_of_width_up_to(value, bits_of(*type), actual);
    if (value.kind != Operand::Kind::sink) {
      if (width && width != actual) coder.fail("registers of different widths in one vector");
      width = actual;
    }
    coder.kernel().lists.push_back(offset);
  }
  if (width == 0) width = bits_of(*type);
  i.d = coder.kernel().lists[i.list];
  i.c = packed_element(
      {static_cast<uint8_t>(bytes), static_cast<uint8_t>(width / 8), kind_of(*type) == PtxKind::signed_integer, space});
  i.run = !loads ? store : load;
  if (loads && space == Space::param && s.operands[1].parts.size() == 1 &&
      s.operands[1].parts[0].kind == Operand::Kind::variable)
    i.run = load_parameter;
  else if (loads && count == 1 && width == 8 * bytes && i.d != kNoRegister)
    i.run = width == 16 ? load_plain<uint16_t> : width == 32 ? load_plain<uint32_t> : load_plain<uint64_t>;
  return true;
}

enum class Atomic : uint8_t { add, min, max, inc, dec, exch, cas, bit_and, bit_or, bit_xor };
struct AtomicRow {
  std::string_view name;
  Atomic operation;
};
constexpr AtomicRow kAtomics[] = {{"add", Atomic::add},    {"min", Atomic::min},     {"max", Atomic::max},
                                  {"inc", Atomic::inc},    {"dec", Atomic::dec},     {"exch", Atomic::exch},
                                  {"cas", Atomic::cas},    {"and", Atomic::bit_and}, {"or", Atomic::bit_or},
                                  {"xor", Atomic::bit_xor}};

template <class T>
T atomic_result(Atomic operation, T old, T b, T c) {
  if constexpr (std::is_integral_v<T>) {
    switch (operation) {
      case Atomic::inc:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case Atomic::dec:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
      case Atomic::bit_and:
        return old & b;
      case Atomic::bit_or:
        return old | b;
      case Atomic::bit_xor:
        return old ^ b;
      case Atomic::add:
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(b));
      case Atomic::min:
        return std::min(old, b);
      case Atomic::max:
        return std::max(old, b);
      case Atomic::exch:
        return b;
      case Atomic::cas:
        return old == b ? c : old;
    }
    return old;
  } else {
    return operation == Atomic::add ? old + b : old;
  }
}

template <class T>
void atomic(Warp& w, const Instruction& i) {
  const Element e = element_of(i);
  const auto operation = static_cast<Atomic>(i.count);
  const uint32_t* operands = &w.kernel->lists[i.list];
  each_lane(w.active, [&](int l) {
    std::byte* at = access(w, i, l, e.space, address_of(w, i, l), sizeof(T), Use::atomic, nullptr);
    T old;
    std::memcpy(&old, at, sizeof old);
    const T b = w.lane<T>(operands[0], l), c = operands[1] == kNoRegister ? b : w.lane<T>(operands[1], l);
    const T result = atomic_result(operation, old, b, c);
    std::memcpy(at, &result, sizeof result);
    if (i.d != kNoRegister) w.set_lane<T>(i.d, l, old);
  });
}

bool decode_atomic(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  const bool returns = m.opcode() == "atom";
  take_order(m);
  (void)(m.accept("cta") || m.accept("cluster") || m.accept("gpu") || m.accept("sys"));
  const Space space = take_space(m);
  std::optional<Atomic> operation;
  for (const AtomicRow& row : kAtomics)
    if (!operation && m.accept(row.name)) operation = row.operation;
  m.accept("noftz");
  const auto type = m.type();
  if (!operation || !type || (space != Space::global && space != Space::shared && space != Space::generic))
    return false;
  const size_t wanted = (returns ? 2u : 1u) + (*operation == Atomic::cas ? 2u : 1u);
  if (s.operands.size() != wanted) return false;
  using enum Atomic;
  const bool bits =
      *operation == exch || *operation == cas || *operation == bit_and || *operation == bit_or || *operation == bit_xor;
  if (bits != (kind_of(*type) == PtxKind::bits)) return false;
  if ((*operation == inc || *operation == dec) && *type != PtxType::u32) return false;
  if (*type == PtxType::u32 || *type == PtxType::b32) i.run = atomic<uint32_t>;
  if (*type == PtxType::s32) i.run = atomic<int32_t>;
  if (*type == PtxType::u64 || *type == PtxType::b64) i.run = atomic<uint64_t>;
  if (*type == PtxType::s64) i.run = atomic<int64_t>;
  if (*type == PtxType::f32 && *operation == add) i.run = atomic<float>;
  if (*type == PtxType::f64 && *operation == add) i.run = atomic<double>;
  if (!i.run) return false;
  const size_t first = returns ? 1 : 0;
  const int width = bits_of(*type);
  if (returns) i.d = coder.destination(s.operands[0], width);
  coder.address(s.operands[first], i);
  i.list = static_cast<uint32_t>(coder.kernel().lists.size());
  const uint32_t b = coder.source(s.operands[first + 1], width);
  const uint32_t c = *operation == cas ? coder.source(s.operands[first + 2], width) : kNoRegister;
  coder.kernel().lists.push_back(b), coder.kernel().lists.push_back(c);
  i.count = static_cast<uint16_t>(*operation);
  i.c = packed_element({static_cast<uint8_t>(width / 8), static_cast<uint8_t>(width / 8), false, space});
  return true;
}

void nothing(Warp&, const Instruction&) {}
void proxy_fence(Warp& w, const Instruction&) {
  each_lane(w.active, [&](int l) { ++w.proxy_fences[static_cast<size_t>(l)]; });
}

bool decode_fence(Coder&, const Statement& s, Modifiers& m, Instruction& i) {
  if (!s.operands.empty()) return false;
  i.run = nothing;
  if (m.opcode() == "membar") return m.accept("cta") || m.accept("gl") || m.accept("sys");
  if (m.accept("mbarrier_init")) return m.accept("release") && m.accept("cluster");
  if (m.accept("proxy")) {
    i.run = proxy_fence;
    if (!m.accept("async")) return false;
    (void)(m.accept("global") || m.accept("shared::cta"));
    return true;
  }
  (void)(m.accept("sc") || m.accept("acq_rel") || m.accept("acquire") || m.accept("release"));
  return m.accept("cta") || m.accept("cluster") || m.accept("gpu") || m.accept("sys");
}

}  // namespace

void add_memory_decoders(Decoders& all) {
  all["ld"] = all["ldu"] = all["st"] = decode_ld_st;
  all["atom"] = all["red"] = decode_atomic;
  all["fence"] = all["membar"] = decode_fence;
}

}  // namespace halfmark::kernels::software_gpu
