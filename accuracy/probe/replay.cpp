// Computes a question in software from the findings: if the bits differ from the device's, the findings are incomplete
// or wrong. It uses exact integers and shares no code with the simulated tensor cores.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/probe/probe.h"
#include "kernels/tensor/random.h"

namespace halfmark::accuracy::probe {
namespace {

__extension__ using Wide = __int128;
__extension__ using Magnitude = unsigned __int128;

// A term significand * 2^last, and the exponent by which it is aligned.
struct Part {
  int64_t significand = 0;
  int last = 0, exponent = 0;
};

// x decomposed in a format: subnormal numbers have the exponent of the smallest normal number.
Part part_of(double x, const Format& format) {
  if (x == 0) return {};
  const int exponent = std::max(std::ilogb(x), format.min_exponent());
  const int last = exponent - format.fraction_bits;
  return {static_cast<int64_t>(std::ldexp(x, -last)), last, exponent};
}

Part product_of(double a, double b, const Format& format_a, const Format& format_b, bool normalised) {
  const Part x = part_of(a, format_a), y = part_of(b, format_b);
  if (!x.significand || !y.significand) return {};
  Part product{x.significand * y.significand, x.last + y.last, x.exponent + y.exponent};
  if (normalised)
    product.exponent =
        product.last + static_cast<int>(std::bit_width(static_cast<uint64_t>(std::abs(product.significand)))) - 1;
  return product;
}

// significand * 2^shift; bits below one are cut as the adder does, or kept as a sticky bit.
Wide shifted(int64_t significand, int shift, const Adder& adder) {
  if (shift >= 0) return Wide{significand} << std::min(shift, 100);
  const int right = std::min(-shift, 64);
  const Wide magnitude = std::abs(significand);
  const Wide whole = magnitude >> right, rest = magnitude - (whole << right), half = Wide{1} << (right - 1);
  const bool negative = significand < 0;
  Wide moved = whole;
  if (adder.kept_bits >= kAllBits) {
    moved |= rest != 0;
  } else if (rest != 0) {
    switch (adder.cut) {
      case Cut::toward_zero:
        break;
      case Cut::down:
        moved += negative;
        break;
      case Cut::near_even:
        moved += rest > half || (rest == half && (whole & 1));
        break;
      case Cut::near_away:
        moved += rest >= half;
        break;
    }
  }
  return negative ? -moved : moved;
}

// sum * 2^last rounded to the format.
double rounded(Wide sum, int last, const Format& format, Rounding rounding) {
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  Magnitude magnitude = negative ? static_cast<Magnitude>(-sum) : static_cast<Magnitude>(sum);
  const auto high = static_cast<uint64_t>(magnitude >> 64);
  const int width = high ? 64 + static_cast<int>(std::bit_width(high))
                         : static_cast<int>(std::bit_width(static_cast<uint64_t>(magnitude)));
  const int lowest = std::max(last + width - 1, format.min_exponent()) - format.fraction_bits;
  if (const int drop = lowest - last; drop > 0) {
    const int by = std::min(drop, 126);
    const Magnitude whole = magnitude >> by, rest = magnitude - (whole << by);
    const Magnitude half = static_cast<Magnitude>(1) << (by - 1);
    const bool up = rounding == Rounding::near_even   ? rest > half || (rest == half && (whole & 1))
                    : rounding == Rounding::near_away ? rest >= half
                                                      : false;
    magnitude = whole + up;
    last = lowest;
  }
  // At most fraction_bits + 2 bits remain if bits were dropped; if none were, fp64 also holds the sum.
  const double value = std::ldexp(static_cast<double>(magnitude), last);
  const double limited = value > format.max_finite() ? std::numeric_limits<double>::infinity() : value;
  return negative ? -limited : limited;
}

class ModelEvaluator {
 public:
  ModelEvaluator(const Model& model, const Question& question) : model_(model), question_(question) {}

  double evaluate() {
    std::vector<double> values(model_.tree.nodes.size(), 0.0);
    for (const size_t node : model_.tree.bottom_up())
      if (!model_.tree.nodes[node].leaf) values[node] = sum(node, values);
    return values[model_.tree.root];
  }

  double evaluate(std::span<const KnownSum> known) {
    std::vector<double> values(model_.tree.nodes.size(), 0.0);
    for (const KnownSum& one : known) values[one.node] = one.sum;
    for (const size_t node : model_.tree.bottom_up())
      if (!model_.tree.nodes[node].leaf && model_.tree.products_of(node).empty()) values[node] = sum(node, values);
    return values[model_.tree.root];
  }

  double operand(double x, const Format& stored) const {
    if (model_.flush_inputs && std::fabs(x) < std::ldexp(1.0, stored.min_exponent())) return std::copysign(0.0, x);
    if (model_.operand.fraction_bits >= stored.fraction_bits) return x;
    const Format narrow{"", stored.exponent_bits, model_.operand.fraction_bits, stored.specials};
    return round_to(narrow, x, model_.operand_rounding);
  }

 private:
  double flushed(double x, const Format& format) const {
    const bool tiny = std::fabs(x) < std::ldexp(1.0, format.min_exponent());
    return model_.flush_results && tiny ? std::copysign(0.0, x) : x;
  }

  double sum(size_t at, const std::vector<double>& values) {
    const SumTree& tree = model_.tree;
    const SumTree::Node& node = tree.nodes[at];
    const bool has_products = !tree.products_of(at).empty();
    const Adder& adder = has_products ? model_.block : model_.join;
    if (has_products && adder.out.fraction_bits == 52 && node.children.size() == 2) return fused64(node, values);
    // Of two products that start a chain, one is computed before the other.
    std::optional<size_t> early;
    if (!model_.exact_products || opens(node)) {
      const std::vector<size_t> products = tree.products_of(at);
      if (opens(node)) early = model_.last_leaf_exact ? products.front() : products.back();
    }
    parts_.clear();
    beyond_.reset();
    // A block without a previous sum or c starts from zero.
    bool zero =
        std::all_of(node.children.begin(), node.children.end(), [this](size_t child) { return is_product(child); });
    for (const size_t child : node.children) {
      Part part = child_part(child, values, adder, has_products, early);
      zero = zero || part.significand == 0;
      if (part.significand) parts_.push_back(part);
    }
    if (beyond_) return *beyond_;
    if (parts_.empty()) return 0;
    int largest = zero ? adder.zero_exponent : std::numeric_limits<int>::min();
    for (const Part& part : parts_) largest = std::max(largest, part.exponent);
    const int last = largest - adder.kept_bits;
    Wide total = 0;
    for (const Part& part : parts_) total += shifted(part.significand, part.last - last, adder);
    return flushed(rounded(total, last, adder.out, adder.rounding), adder.out);
  }

  bool opens(const SumTree::Node& node) const {
    return model_.block.kept_bits >= kAllBits && node.children.size() == 2 && is_product(node.children[0]) &&
           is_product(node.children[1]);
  }
  bool is_product(size_t child) const {
    const auto& leaf = model_.tree.nodes[child].leaf;
    return leaf && *leaf != model_.tree.k;
  }

  Part child_part(size_t child, const std::vector<double>& values, const Adder& adder, bool has_products,
                  std::optional<size_t> early) {
    const SumTree::Node& node = model_.tree.nodes[child];
    if (!is_product(child)) {
      double value = node.leaf ? question_.c : values[child];
      if (model_.flush_inputs && node.leaf) value = flushed(value, adder.out);
      if (!node.leaf && !has_products && model_.partial && !model_.tree.products_of(child).empty())
        value = round_to(*model_.partial, value);
      if (!std::isfinite(value)) {
        beyond_ = beyond_.value_or(0) + value;
        return {};
      }
      // Results of other sums have the format of those sums, c has its own; both have the exponent range of the result.
      return part_of(value, Format{"", adder.out.exponent_bits, 52});
    }
    const double a = operand(question_.a[*node.leaf], model_.a), b = operand(question_.b[*node.leaf], model_.b);
    if (model_.exact_products && early != *node.leaf) return product_of(a, b, model_.a, model_.b, adder.normalised);
    const Part exact = product_of(a, b, model_.a, model_.b, false);
    const double product = rounded(exact.significand, exact.last, adder.out, adder.rounding);
    return part_of(flushed(product, adder.out), Format{"", adder.out.exponent_bits, 52});
  }

  // fp64: the products have more bits than the integers here, so the fma of the host is used.
  double fused64(const SumTree::Node& node, const std::vector<double>& values) {
    const auto value = [&](size_t child) {
      const auto& leaf = model_.tree.nodes[child].leaf;
      if (!leaf) return values[child];
      return *leaf == model_.tree.k ? question_.c : question_.a[*leaf] * question_.b[*leaf];
    };
    size_t exact = node.children[0], other = node.children[1];
    if (!is_product(exact) || (is_product(other) && (*model_.tree.nodes[other].leaf > *model_.tree.nodes[exact].leaf) ==
                                                        model_.last_leaf_exact))
      std::swap(exact, other);
    if (!model_.exact_products) return value(exact) + value(other);
    const size_t k = *model_.tree.nodes[exact].leaf;
    return std::fma(question_.a[k], question_.b[k], value(other));
  }

  const Model& model_;
  const Question& question_;
  std::vector<Part> parts_;
  std::optional<double> beyond_;  // the sum of the terms that are infinite or NaN
};

}  // namespace

std::string_view name_of(Cut cut) {
  switch (cut) {
    case Cut::toward_zero:
      return "toward zero";
    case Cut::down:
      return "down";
    case Cut::near_even:
      return "near_even";
    case Cut::near_away:
      return "near_away";
  }
  return "?";
}

uint64_t replay(const Model& model, const Question& question) {
  return encode(model.d, ModelEvaluator(model, question).evaluate());
}

uint64_t replay(const Model& model, const Question& question, std::span<const KnownSum> known) {
  return encode(model.d, ModelEvaluator(model, question).evaluate(known));
}

Question converted(const Model& model, Question question) {
  const ModelEvaluator evaluator(model, question);
  for (double& a : question.a) a = evaluator.operand(a, model.a);
  for (double& b : question.b) b = evaluator.operand(b, model.b);
  return question;
}

namespace {

// Numbers of similar and of distant exponents, with all digits and with few, pairs that cancel, and numbers about the
// smallest normal one. No sum of them overflows.
std::vector<Question> random_terms(const BlackBox& box, size_t count, uint64_t seed) {
  const RandomKey key = RandomKey(seed).child("terms");
  const int room = 1 + static_cast<int>(std::bit_width(box.k));
  const int top = std::min(box.d.max_exponent() - room, 12), low = std::max(box.a.min_exponent(), -20);
  std::vector<Question> all;
  for (uint64_t i = 0; i < count; ++i) {
    const RandomKey draw = key.child(i);
    const uint64_t kind = i % 5;
    const int widest = kind == 0 ? 1 : kind == 1 ? box.d.fraction_bits + 2 : top - low;
    const int span = kind == 4 ? 4 : std::clamp(widest, 0, top - low);
    const int highest = kind == 4 ? box.a.min_exponent() + 2 : top;
    Question question{std::vector<double>(box.k), std::vector<double>(box.k, 1.0), 0};
    for (size_t k = 0; k < box.k; ++k) {
      const int exponent = highest - static_cast<int>(draw.below(4 * k, static_cast<uint64_t>(span) + 1));
      const double digits = kind == 3 ? 2 - std::ldexp(1.0, -box.a.fraction_bits) : 1 + draw.uniform(4 * k + 1);
      const double sign = draw.bits(4 * k + 2) & 1 ? -1 : 1;
      question.a[k] = round_to(box.a, sign * std::ldexp(digits, exponent), Rounding::toward_zero);
      const bool cancels = kind == 2 && k > 0 && (draw.bits(4 * k + 3) & 1);
      if (cancels) question.a[k] = -question.a[k - 1];
    }
    all.push_back(std::move(question));
  }
  return all;
}

}  // namespace

std::vector<Question> random_questions(const BlackBox& box, size_t count, uint64_t seed) {
  if (box.terms_only) return random_terms(box, count, seed);
  const RandomKey key = RandomKey(seed).child("probe");
  // Exponents of products are such that the result does not overflow and, except for the last kind, is not subnormal.
  const int top = std::min({box.a.max_exponent() - 1, box.b.max_exponent() - 1, (box.d.max_exponent() - 10) / 2, 12});
  const int low_a = std::max(box.a.min_exponent(), -20), low_b = std::max(box.b.min_exponent(), -20);
  std::vector<Question> all;
  // Sixteen vectors a are paired with sixteen b, so that one matmul answers many questions.
  constexpr size_t kSide = 16;
  for (uint64_t group = 0; all.size() < count; ++group) {
    const RandomKey here = key.child(group);
    const uint64_t kind = group % 4;
    const auto vector = [&](std::string_view side, size_t index, const Format& format, int low) {
      const RandomKey draw = here.child(side).child(index);
      std::vector<double> x(box.k);
      for (size_t i = 0; i < box.k; ++i) {
        const int span = kind == 0 ? 3 : top - low;
        const int exponent = top - static_cast<int>(draw.below(3 * i, static_cast<uint64_t>(std::max(span, 0)) + 1));
        double digits = 1 + draw.uniform(3 * i + 1);
        if (kind == 3) digits = 2 - std::ldexp(1.0, -format.fraction_bits);  // all ones: truncation loses most here
        const double sign = draw.bits(3 * i + 2) & 1 ? -1 : 1;
        x[i] = round_to(format, sign * std::ldexp(digits, exponent), Rounding::toward_zero);
      }
      return x;
    };
    std::vector<std::vector<double>> a(kSide), b(kSide);
    for (size_t i = 0; i < kSide; ++i) {
      a[i] = vector("a", i, box.a, low_a), b[i] = vector("b", i, box.b, low_b);
      if (kind != 2) continue;
      // Pairs that cancel exactly or up to a bit of b.
      const size_t step = 1 + here.child("step").below(i, std::max<uint64_t>(box.k / 2, 1));
      for (size_t j = 0; j + step < box.k; j += 2 * step) a[i][j + step] = -a[i][j];
    }
    if (kind == 2)
      for (size_t i = 0; i < kSide; ++i)
        for (size_t j = 0; j + 1 < box.k; ++j)
          if (here.child("b").child(i).bits(3 * box.k + j) & 1) b[i][j + 1] = b[i][j];
    for (size_t i = 0; i < kSide * kSide && all.size() < count; ++i) {
      double c = 0;
      if (box.takes_c) {
        const RandomKey draw = here.child("c");
        const int exponent = std::min(2 * top, box.c.max_exponent() - 4) - static_cast<int>(draw.below(3 * i, 24));
        const double sign = draw.bits(3 * i + 1) & 1 ? -1 : 1;
        c = round_to(box.c, sign * std::ldexp(1 + draw.uniform(3 * i + 2), exponent), Rounding::toward_zero);
      }
      all.push_back({a[i / kSide], b[i % kSide], c});
    }
  }
  return all;
}

}  // namespace halfmark::accuracy::probe
