// Instructions in which the lanes of a warp exchange values: shfl, vote, match, redux, activemask, bar.warp.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"

namespace halfmark::kernels::software_gpu {
namespace {

// All lanes of the member mask that have not ended must execute the instruction together, and each with this mask.
uint32_t require_members(Warp& w, const Instruction& i, uint32_t mask_register, const char* name) {
  const int first = std::countr_zero(w.active);
  const auto members = w.lane<uint32_t>(mask_register, first);
  each_lane(w.active, [&](int l) {
    if (w.lane<uint32_t>(mask_register, l) != members || !(members >> l & 1))
      fault(w, i, l, cudaErrorIllegalInstruction, std::string(name) + ": the thread is not in its own member mask");
  });
  if (const uint32_t absent = members & w.live & ~w.active)
    fault(w, i, first, cudaErrorIllegalInstruction,
          std::string(name) + " in divergent code: thread " +
              std::to_string(w.index * kLanes + std::countr_zero(absent)) + " of the member mask does not execute it");
  ++w.lane_syncs;
  return members;
}

void warp_barrier(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  require_members(w, i, i.a, "bar.warp.sync");
  uint32_t products = 0;  // what one of the lanes knows of tcgen05.mma
  each_lane(w.active, [&](int l) { products = std::max(products, w.products_there[static_cast<size_t>(l)]); });
  each_lane(w.active, [&](int l) { w.products_there[static_cast<size_t>(l)] = products; });
}

enum class Shuffle : uint8_t { up, down, bfly, idx };
void shuffle(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  const uint32_t* operands = &w.kernel->lists[i.list];  // b, c, member mask, predicate
  require_members(w, i, operands[2], "shfl.sync");
  uint32_t source[kLanes], in_range = 0;
  uint32_t result[kLanes];
  w.load(i.a, source);
  w.load(i.d, result);
  const auto mode = static_cast<Shuffle>(i.count);
  each_lane(w.active, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    const uint32_t b = w.lane<uint32_t>(operands[0], l) & 31, c = w.lane<uint32_t>(operands[1], l);
    const uint32_t clamp = c & 31, segment = c >> 8 & 31;
    const uint32_t highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    int64_t from = 0;
    bool inside = false;
    switch (mode) {
      case Shuffle::up:
        from = int64_t{lane} - b, inside = from >= int64_t{highest};
        break;
      case Shuffle::down:
        from = lane + b, inside = from <= int64_t{highest};
        break;
      case Shuffle::bfly:
        from = lane ^ b, inside = from <= int64_t{highest};
        break;
      case Shuffle::idx:
        from = lowest | (b & ~segment), inside = from <= int64_t{highest};
        break;
    }
    if (!inside) from = lane;
    if (!(w.active >> from & 1))
      fault(w, i, l, cudaErrorIllegalInstruction,
            "shfl.sync reads lane " + std::to_string(from) + ", which does not execute it");
    result[l] = source[from];
    in_range |= static_cast<uint32_t>(inside) << l;
  });
  w.store(i.d, result);
  if (operands[3] != kNoRegister) w.set_predicate(operands[3], in_range);
}

bool decode_shfl(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync")) return false;
  constexpr std::pair<std::string_view, Shuffle> kModes[] = {
      {"up", Shuffle::up}, {"down", Shuffle::down}, {"bfly", Shuffle::bfly}, {"idx", Shuffle::idx}};
  bool known = false;
  for (const auto& [name, mode] : kModes)
    if (!known && m.accept(name)) known = true, i.count = static_cast<uint16_t>(mode);
  if (!known || !m.accept("b32") || s.operands.size() < 5 || s.operands.size() > 6) return false;
  const size_t a = s.operands.size() - 4;
  i.run = shuffle;
  i.d = coder.destination(s.operands[0], 32);
  i.a = coder.source(s.operands[a], 32);
  const uint32_t others[4] = {coder.source(s.operands[a + 1], 32), coder.source(s.operands[a + 2], 32),
                              coder.source(s.operands[a + 3], 32),
                              a == 2 ? coder.destination(s.operands[1], 1) : kNoRegister};
  i.list = static_cast<uint32_t>(coder.kernel().lists.size());
  for (const uint32_t other : others) coder.kernel().lists.push_back(other);
  return true;
}

enum class Vote : uint8_t { all, any, uni, ballot };
void vote(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  require_members(w, i, i.b, "vote.sync");
  const uint32_t yes = (i.flags ? ~w.predicate(i.a) : w.predicate(i.a)) & w.active;
  switch (static_cast<Vote>(i.count)) {
    case Vote::all:
      return w.set_predicate(i.d, yes == w.active ? kAllLanes : 0);
    case Vote::any:
      return w.set_predicate(i.d, yes ? kAllLanes : 0);
    case Vote::uni:
      return w.set_predicate(i.d, yes == 0 || yes == w.active ? kAllLanes : 0);
    case Vote::ballot:
      return write_lanes<uint32_t>(w, i.d, [&](int) { return yes; });
  }
}
bool decode_vote(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync") || s.operands.size() != 3) return false;
  const bool ballot = m.accept("ballot");
  const bool all = !ballot && m.accept("all"), any = !ballot && !all && m.accept("any");
  if (!ballot && !all && !any && !m.accept("uni")) return false;
  if (!m.accept(ballot ? "b32" : "pred")) return false;
  i.run = vote;
  i.count = static_cast<uint16_t>(ballot ? Vote::ballot : all ? Vote::all : any ? Vote::any : Vote::uni);
  i.d = coder.destination(s.operands[0], ballot ? 32 : 1);
  i.a = coder.predicate(s.operands[1]), i.flags = s.operands[1].negated;
  i.b = coder.source(s.operands[2], 32);
  return true;
}

void active_mask(Warp& w, const Instruction& i) {
  const uint32_t mask = w.active;
  write_lanes<uint32_t>(w, i.d, [&](int) { return mask; });
}
bool decode_activemask(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  i.run = active_mask;
  return m.accept("b32") && take_operands(coder, s, i, {32});
}

enum class Reduction : uint8_t { add, min, max, bit_and, bit_or, bit_xor };
template <class T>
void reduce(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  require_members(w, i, i.b, "redux.sync");
  bool first = true;
  T sum = 0;
  each_lane(w.active, [&](int l) {
    const T x = w.lane<T>(i.a, l);
    if (first) {
      sum = x, first = false;
      return;
    }
    switch (static_cast<Reduction>(i.count)) {
      case Reduction::add:
        sum = static_cast<T>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(x));
        break;
      case Reduction::min:
        sum = std::min(sum, x);
        break;
      case Reduction::max:
        sum = std::max(sum, x);
        break;
      case Reduction::bit_and:
        sum &= x;
        break;
      case Reduction::bit_or:
        sum |= x;
        break;
      case Reduction::bit_xor:
        sum ^= x;
        break;
    }
  });
  write_lanes<T>(w, i.d, [&](int) { return sum; });
}
bool decode_redux(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync")) return false;
  constexpr std::pair<std::string_view, Reduction> kOperations[] = {
      {"add", Reduction::add},     {"min", Reduction::min},   {"max", Reduction::max},
      {"and", Reduction::bit_and}, {"or", Reduction::bit_or}, {"xor", Reduction::bit_xor}};
  bool known = false;
  for (const auto& [name, operation] : kOperations)
    if (!known && m.accept(name)) known = true, i.count = static_cast<uint16_t>(operation);
  const bool bits = i.count >= static_cast<uint16_t>(Reduction::bit_and);
  const auto type = m.type();
  if (!known || !type || (kind_of(*type) == PtxKind::bits) != bits || bits_of(*type) != 32) return false;
  if (*type == PtxType::s32) i.run = reduce<int32_t>;
  if (*type == PtxType::u32 || *type == PtxType::b32) i.run = reduce<uint32_t>;
  return i.run && take_operands(coder, s, i, {32, 32, 32});
}

}  // namespace

bool decode_warp_barrier(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync") || s.operands.size() != 1) return false;
  i.run = warp_barrier;
  i.a = coder.source(s.operands[0], 32);
  return true;
}

void add_warp_decoders(Decoders& all) {
  all["shfl"] = decode_shfl;
  all["vote"] = decode_vote;
  all["activemask"] = decode_activemask;
  all["redux"] = decode_redux;
}

}  // namespace halfmark::kernels::software_gpu
