// Building blocks for inputs of dot products: numbers and products with a requested exponent, for any types, including
// scales. The classes of inputs built from them: tensor_core_inputs_testing.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sim/exact_model_testing.h"

namespace halfmark::kernels::exact {

struct Row {
  std::vector<uint64_t> a, b;
  uint64_t c = 0;
  std::vector<uint8_t> scale_a, scale_b;
  Inputs inputs() const { return {a, b, c, scale_a, scale_b}; }
};

class Dice {  // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014)
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  bool coin() { return bits() >> 63; }
  bool one_in(int n) { return between(1, n) == 1; }
  int between(int low, int high) {  // both included
    return low >= high ? low : low + static_cast<int>((bits() >> 33) % static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t state_;
};

enum class Digits : uint8_t { random, ones, one };  // of a significand: any, 1.11..1, 1.00..0

// One row under construction.
class Draw {
 public:
  Draw(const Machine& machine, size_t k, Dice& random) : m(machine), dice(random) {
    row.a.assign(k, 0), row.b.assign(k, 0);
    if (m.scale_block) {
      row.scale_a.assign(k / static_cast<size_t>(m.scale_block), 0), row.scale_b = row.scale_a;
      for (size_t i = 0; i < row.scale_a.size(); ++i) set_scales(i, dice.between(-6, 6));
    }
  }

  const Machine& m;
  Dice& dice;
  Row row;

  int k() const { return static_cast<int>(row.a.size()); }
  int block() const { return m.way == Way::fma ? k() : m.block; }
  int result_bits() const {
    return m.d == Type::fp64 ? 53 : m.d == Type::fp16 ? 11 : m.output == Output::cut_e8m13 ? 14 : 24;
  }
  int result_lowest() const {
    return m.d == Type::fp64 ? -1074 : m.d == Type::fp16 ? -24 : m.output == Output::cut_e8m13 ? -139 : -149;
  }
  Digits digits() { return static_cast<Digits>(dice.between(0, 2)); }

  // Numbers of a type.
  static int highest(Type type) {
    const Code& code = code_of(type);
    return code.bias + (code.specials == Code::ieee ? 0 : 1);
  }
  static int lowest(Type type) { return 1 - code_of(type).bias - significant(type); }
  static int significant(Type type) { return type == Type::tf32 ? 10 : code_of(type).fraction_bits; }

  // A number whose leading bit is 2^e, or the nearest such e that the type supports.
  uint64_t number(Type type, int e, bool negative, Digits how) {
    const Code& code = code_of(type);
    e = std::clamp(e, lowest(type), highest(type));
    const int smallest = 1 - code.bias;
    uint64_t fraction = how == Digits::one ? 0 : how == Digits::ones ? ~uint64_t{0} : dice.bits();
    fraction &= (uint64_t{1} << code.fraction_bits) - 1;
    if (type == Type::tf32) fraction &= ~uint64_t{0x1FFF};
    uint64_t result;
    if (e < smallest) {
      result = (fraction | uint64_t{1} << code.fraction_bits) >> (smallest - e);
      if (type == Type::tf32) result &= ~uint64_t{0x1FFF};
    } else {
      result = (static_cast<uint64_t>(e + code.bias) << code.fraction_bits) | fraction;
    }
    if (code.specials == Code::nan_is_all_ones && result + 1 == sign_bit(code)) --result;
    return result | (negative ? sign_bit(code) : 0);
  }
  static uint64_t negated(Type type, uint64_t code) { return code ^ sign_bit(code_of(type)); }

  // Products and the addend. Exponents are those of the term in the sum, including scales.
  int scale_exponent(int at) const {
    if (!m.scale_block) return 0;
    const auto i = static_cast<size_t>(at / m.scale_block);
    return scale_of(m.scale, row.scale_a[i], Mistake::none).exponent +
           scale_of(m.scale, row.scale_b[i], Mistake::none).exponent;
  }
  int highest_product() const { return highest(m.a) + highest(m.b); }
  int lowest_product() const { return lowest(m.a) + lowest(m.b); }

  void product(int at, int e, bool negative, Digits x, Digits y) {
    e -= scale_exponent(at);
    const int low = std::max(lowest(m.a), e - highest(m.b)), high = std::min(highest(m.a), e - lowest(m.b));
    // Mostly in the middle, where both are normal.
    const int normal_low = std::max(low, std::max(1 - code_of(m.a).bias, e - highest(m.b))),
              normal_high = std::min(high, e - (1 - code_of(m.b).bias));
    const int ea = normal_low <= normal_high && !dice.one_in(8)
                       ? dice.between(normal_low, normal_high)
                       : dice.between(std::min(low, high), std::max(low, high));
    const bool turned = dice.coin();
    row.a[static_cast<size_t>(at)] = number(m.a, ea, turned, x);
    row.b[static_cast<size_t>(at)] = number(m.b, e - ea, turned != negative, y);
  }
  void product(int at, int e) { product(at, e, dice.coin(), digits(), digits()); }
  void zero_product(int at) {
    row.a[static_cast<size_t>(at)] = dice.coin() ? 0 : sign_bit(code_of(m.a));
    row.b[static_cast<size_t>(at)] = dice.coin()
                                         ? number(m.b, dice.between(lowest(m.b), highest(m.b)), dice.coin(), digits())
                                     : dice.coin() ? 0
                                                   : sign_bit(code_of(m.b));
  }
  // The same product with the other sign.
  void opposite(int at, int of) {
    row.a[static_cast<size_t>(at)] = row.a[static_cast<size_t>(of)];
    row.b[static_cast<size_t>(at)] = negated(m.b, row.b[static_cast<size_t>(of)]);
    if (m.a == m.b && dice.coin()) std::swap(row.a[static_cast<size_t>(at)], row.b[static_cast<size_t>(at)]);
  }
  void addend(int e, bool negative, Digits how) { row.c = number(m.c, e, negative, how); }
  void addend(int e) { addend(e, dice.coin(), digits()); }
  void zero_addend() { row.c = dice.coin() ? 0 : sign_bit(code_of(m.c)); }

  // Scales that bring products near 2^e, if there are scales.
  void aim(int e) {
    if (m.way != Way::blocks) return;
    for (size_t i = 0; i < row.scale_a.size(); ++i)
      set_scales(i, e - dice.between(lowest_product() / 2, highest_product() / 2));
  }
  // An exponent for the largest term, such that a term `below` it is still a product, if possible.
  int base(int below = 0) {
    if (m.scale_block && dice.coin()) aim(dice.between(-160, 130));
    const int s = scale_exponent(0), high = highest_product() + s, low = lowest_product() + s;
    return dice.between(std::min(high, low + below), high);
  }
  void fill(int from, int low, int high) {
    for (int i = from; i < k(); ++i) product(i, dice.between(low, high));
  }
  // The places of k in random order, so that no class depends on where a block begins.
  void shuffle() {
    if (m.scale_block) return;
    for (int i = k() - 1; i > 0; --i) {
      const auto x = static_cast<size_t>(i), y = static_cast<size_t>(dice.between(0, i));
      std::swap(row.a[x], row.a[y]), std::swap(row.b[x], row.b[y]);
    }
  }
  void shuffle_blocks() {  // each block by itself
    if (m.scale_block || m.way == Way::interleaved) return;
    for (int begin = 0; begin < k(); begin += block())
      for (int i = std::min(begin + block(), k()) - 1; i > begin; --i) {
        const auto x = static_cast<size_t>(i), y = static_cast<size_t>(dice.between(begin, i));
        std::swap(row.a[x], row.a[y]), std::swap(row.b[x], row.b[y]);
      }
  }

  // Scales of one block whose exponents add to about e.
  void set_scales(size_t at, int e) {
    if (m.scale == Type::e8m0) {
      e = std::clamp(e, -254, 254);
      const int x = dice.between(std::max(-127, e - 127), std::min(127, e + 127));
      row.scale_a[at] = static_cast<uint8_t>(x + 127), row.scale_b[at] = static_cast<uint8_t>(e - x + 127);
    } else {
      e = std::clamp(e, -12, 16);
      const int x = dice.between(std::max(-6, e - 8), std::min(8, e + 6));
      row.scale_a[at] = static_cast<uint8_t>(number(Type::e4m3, x, dice.one_in(4), digits()));
      row.scale_b[at] = static_cast<uint8_t>(number(Type::e4m3, e - x, dice.one_in(4), digits()));
    }
  }
};

}  // namespace halfmark::kernels::exact
