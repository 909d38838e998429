// Finds how operands are converted, and what happens at the ends of the range: subnormals, zeros, infinities, NaNs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accuracy/probe/probe.h"

namespace halfmark::accuracy::probe {
namespace {

using Terms = std::vector<std::optional<Term>>;

// The answer to a question of these terms; nullopt if the types do not have them.
std::optional<double> ask(RecordingBox& recorder, const Terms& terms) {
  std::vector<Term> all;
  for (const auto& term : terms) {
    if (!term) return {};
    all.push_back(*term);
  }
  return recorder.value(question_of(recorder.box(), all));
}

std::string code_text(const BlackBox& box, uint64_t code) {
  return fmt::format("{:0{}X}", code, static_cast<size_t>(box.d.bits() + 3) / 4);
}

// Fraction bits that are kept of one operand: in a single product, and in two products.
void find_operand_bits(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  const BlackBox& box = recorder.box();
  int lone = 0, pair = 0;
  const int stored = box.a.fraction_bits;
  const auto alone = [&](double a) { return recorder.value(question_of(box, std::array{Term{0, a}})); };
  while (lone < stored && alone(1 + std::ldexp(1.0, -lone - 1)) == 1 + std::ldexp(1.0, -lone - 1)) ++lone;
  while (pair < stored &&
         ask(recorder, {Term{0, 1}, term_of(box, 1, std::ldexp(1.0, -pair - 1))}) == 1 + std::ldexp(1.0, -pair - 1))
    ++pair;
  const std::string seen =
      box.terms_only
          ? fmt::format("1 + 2^-t of one device is kept up to t = {}, 1 and 2^-t of two up to t = {}", lone, pair)
          : fmt::format("(1 + 2^-t) 1 is kept up to t = {}, 1 1 + 2^-t 1 up to t = {}", lone, pair);
  model.operand = box.a.fraction_bits < box.b.fraction_bits ? box.b : box.a;
  if (lone == stored) return findings.push_back({"operands", "as stored", seen});
  if (pair <= lone) return findings.push_back({"operands", std::string(kNotObservable), seen + ": the sum hides them"});
  const double unit = std::ldexp(1.0, -lone);
  std::array<double, 3> steps{};
  const std::array<double, 3> parts{0.5, 0.75, 1.5};
  for (size_t i = 0; i < 3; ++i) steps[i] = (alone(1 + parts[i] * unit) - 1) / unit;
  std::string how = "rounded in an unknown way";
  if (steps == std::array<double, 3>{0, 0, 1}) how = "cut", model.operand_rounding = Rounding::toward_zero;
  if (steps == std::array<double, 3>{0, 1, 2})
    how = "rounded to nearest even", model.operand_rounding = Rounding::near_even;
  if (steps == std::array<double, 3>{1, 1, 2})
    how = "rounded to nearest, ties away", model.operand_rounding = Rounding::near_away;
  model.operand = {"", box.a.exponent_bits, lone, box.a.specials};
  const std::string format = lone == 10 ? "tf32" : lone == 7 ? "bf16" : fmt::format("{} fraction bits", lone);
  model.operand_change = fmt::format("{} to {}", how, format);
  findings.push_back(
      {"operands", model.operand_change,
       fmt::format("{}; 1/2, 3/4 and 3/2 units above 1 become {}, {}, {}", seen, steps[0], steps[1], steps[2])});
}

// (1 + 2^-h)^2 = 1 + 2^(1-h) + 2^-2h. If 2h > p, its last bit lies below a result of p bits. Adding -(1 + 2^(1-h))
// shows whether the product was rounded before the sum.
void find_product_rounding(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  const BlackBox& box = recorder.box();
  const int p = model.block.out.fraction_bits, h = p / 2 + 1;
  if (std::min({model.operand.fraction_bits, box.a.fraction_bits, box.b.fraction_bits}) < h ||
      model.block.kept_bits < 2 * h || box.k < 3) {
    findings.push_back(
        {"products",
         model.block.kept_bits < kAllBits ? "aligned as they are, not rounded" : "exact in the sum's format",
         "the product of two operands has no more bits"});
    return;
  }
  const double digit = 1 + std::ldexp(1.0, -h), whole = std::ldexp(1.0, -2 * h);
  // `leaf` holds the square; another leaf of the same node holds the number that it is compared with.
  const auto survives = [&](size_t leaf, size_t other) {
    const Term square{leaf, digit, digit}, minus{other, -(1 + std::ldexp(1.0, 1 - h)), 1};
    return recorder.value(question_of(box, std::array{square, minus})) == whole;
  };
  std::string seen = fmt::format("(1 + 2^-{})^2 - (1 + 2^-{}) leaves ", h, h - 1), opening;
  std::optional<bool> with_sum, early, late;  // the first node of each kind
  for (size_t i = 0; i < model.tree.nodes.size(); ++i) {
    const std::vector<size_t> products = model.tree.products_of(i);
    std::optional<size_t> sum;
    for (const size_t child : model.tree.nodes[i].children)
      if (!model.tree.nodes[child].leaf) sum = model.tree.leaves_of(child).front();
    if (products.size() == 1 && sum && *sum != box.k && !with_sum) {
      with_sum = survives(products[0], *sum);
      seen += fmt::format("{} at k = {}", *with_sum ? "the last bit" : "nothing", products[0]);
    } else if (products.size() == 2 && model.tree.nodes[i].children.size() == 2 && !early) {
      early = survives(products[0], products[1]), late = survives(products[1], products[0]);
      opening = fmt::format("; of two products alone {}", *early && *late ? "both last bits"
                                                          : *early        ? "that of the first"
                                                          : *late         ? "that of the second"
                                                                          : "nothing");
    }
  }
  if (!with_sum && !early) return findings.push_back({"products", std::string(kNotObservable), "no node for it"});
  model.exact_products = with_sum.value_or(false) || early.value_or(false) || late.value_or(false);
  model.last_leaf_exact = !(early.value_or(false) && !late.value_or(false));
  findings.push_back({"products",
                      model.exact_products ? "added unrounded (fused multiply-add)" : "rounded before they are added",
                      seen + opening});
}

// The lower limit ("zero floor") of the alignment exponent: a zero term counts as
// exponent e_zero. It is observable only if all other terms are smaller. Then bits
// below 2^(e_zero - F) are lost although they lie within F bits of the largest term.
void find_zero_floor(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  const BlackBox& box = recorder.box();
  const std::string parameter = "zero floor";
  const int kept = model.block.kept_bits;
  if (kept >= kAllBits)
    return findings.push_back({parameter, std::string(kNotObservable), "no truncation was observed"});
  // Terms of the last block. The result of an earlier block is an addend of the next one, and its exponent is at least
  // that of the smallest normal number of its format.
  const std::vector<size_t> order = model.tree.bottom_up();
  size_t last = model.tree.root;
  for (const size_t node : order)
    if (!model.tree.products_of(node).empty()) last = node;
  const std::vector<size_t> block = model.tree.products_of(last);
  int least = std::max(box.d.min_subnormal_exponent(), model.block.out.min_subnormal_exponent());
  if (model.partial) least = std::max(least, model.partial->min_subnormal_exponent());
  // The exponent by which a term is aligned: a subnormal factor counts as the smallest normal number.
  const auto aligned_at = [&](const Term& term) {
    return std::max(std::ilogb(term.a), box.a.min_exponent()) + std::max(std::ilogb(term.b), box.b.min_exponent());
  };
  // A single term 2^-t has the largest exponent itself, so that only the floor can remove it.
  const int top = std::min(box.d.max_exponent() - 2, 4);
  int t = -top;
  std::optional<double> answer;
  bool lost = false;
  for (; - t >= least; ++t) {
    const auto term = term_of(box, block[0], std::ldexp(1.0, -t));
    if (!term || aligned_at(*term) != -t) break;
    answer = ask(recorder, {term});
    if (answer != std::ldexp(1.0, -t)) {
      lost = true;
      break;
    }
  }
  bool bits_known = false;
  for (const Finding& finding : findings)
    bits_known = bits_known || (finding.parameter == "bits of sums" && finding.value != kNotObservable);
  if (lost && !bits_known && -t < box.d.min_exponent())
    return findings.push_back({parameter, std::string(kNotObservable),
                               fmt::format("2^-{} alone is lost, to a floor or to a result of few bits", t)});
  if (lost) {
    model.block.zero_exponent = kept - (t - 1);
    return findings.push_back(
        {parameter, fmt::format("{}", model.block.zero_exponent),
         fmt::format("2^-{} alone is lost, 2^-{} is kept: {} places below the floor", t, t - 1, kept)});
  }
  if (-t >= least)
    return findings.push_back(
        {parameter, std::string(kNotObservable),
         fmt::format("2^{} alone is kept, and no product is smaller: at most {}", 1 - t, kept - t + 1)});
  if (model.partial)
    return findings.push_back({parameter, std::string(kNotObservable),
                               fmt::format("2^{} alone is kept, and partial sums hide what lies lower", 1 - t)});
  // A sum that just reaches the smallest number of the result. With rounding to nearest, that is half of it and one
  // more bit. With truncation, it is the sum of all bits below it, with the last one twice.
  const bool nearest = model.block.rounding == Rounding::near_even;
  const int digits = std::min(box.a.fraction_bits, model.operand.fraction_bits) + 1;
  int last_seen = 0;
  bool ended = false;
  for (t = -least + 2; t <= -least + 60; ++t) {
    Terms terms;
    size_t used = 0;
    bool possible = true;
    const auto put = [&](double value) {
      if (used >= block.size())
        possible = false;
      else
        terms.push_back(term_of(box, block[used++], value));
    };
    if (nearest) {
      put(std::ldexp(1.0, least - 1));
    } else {
      for (int high = least - 1; high >= -t; high -= digits) {  // bits high .. low in one product
        const int low = std::max(high - digits + 1, -t);
        put(std::ldexp(1.0, high + 1) - std::ldexp(1.0, low));
      }
    }
    put(std::ldexp(1.0, -t));
    for (const auto& term : terms) possible = possible && term && aligned_at(*term) < least;
    if (!possible) break;
    if (ask(recorder, terms) != std::ldexp(1.0, least)) {
      ended = true;
      break;
    }
    last_seen = t;
  }
  // Without a floor, the first of these terms, 2^(least - 1), is the largest, and bits F places below it are cut.
  const std::string seen = fmt::format("a sum that just reaches 2^{} keeps bits down to 2^-{}", least, last_seen);
  const int floor_at = kept - last_seen;
  if (!ended || last_seen == 0)
    findings.push_back({parameter, std::string(kNotObservable),
                        last_seen ? seen + ", the last that these types have" : "no such sum with these types"});
  else if (floor_at <= least - 1)
    findings.push_back(
        {parameter, fmt::format("none above {}", least - 1), seen + ", as expected from its largest term"});
  else
    model.block.zero_exponent = floor_at, findings.push_back({parameter, fmt::format("{}", floor_at), seen});
}

void find_subnormals(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  const BlackBox& box = recorder.box();
  const auto honoured = [&](const std::optional<double>& answer, double expected) {
    return !answer               ? std::string(kNotObservable)
           : *answer == expected ? "honoured"
           : *answer == 0        ? "flushed to zero"
                                 : "changed";
  };
  // A subnormal operand times a number that makes the product normal.
  if (box.a.specials != Specials::none && box.a.fraction_bits > 0) {
    const int lowest = box.a.min_subnormal_exponent();
    const int lift = std::min(box.b.max_exponent() - 1, -lowest);
    const double expected = std::ldexp(1.0, lowest + lift);
    std::string value(kNotObservable), seen = "the product is subnormal as well";
    if (lowest + lift >= box.d.min_exponent()) {
      const double answer =
          recorder.value(question_of(box, std::array{Term{0, std::ldexp(1.0, lowest), std::ldexp(1.0, lift)}}));
      value = honoured(answer, expected);
      seen = fmt::format("2^{} 2^{} gives {}", lowest, lift, answer);
      model.flush_inputs = answer == 0 && model.operand.fraction_bits >= box.a.fraction_bits;
    }
    findings.push_back({"subnormal operands", value, seen});
  }
  const int small = box.d.min_exponent() - 1;
  const auto passage = [&](size_t leaf, const std::string& parameter) {
    const auto answer = ask(recorder, {term_of(box, leaf, std::ldexp(1.0, small))});
    const auto above = ask(recorder, {term_of(box, leaf, std::ldexp(1.0, small + 1))});
    std::string value = honoured(answer, std::ldexp(1.0, small));
    std::string seen = answer ? fmt::format("2^{} gives {}", small, *answer) : "no product is so small";
    // If normal numbers are lost as well, the cause is a narrow intermediate format or the zero floor, not flushing.
    if (answer == 0.0 && above == 0.0) value = kNotObservable, seen = fmt::format("2^{} is lost as well", small + 1);
    findings.push_back({parameter, value, seen});
    return value == "flushed to zero";
  };
  model.flush_results = passage(0, "subnormal results") && model.block.kept_bits >= kAllBits;
  if (box.takes_c) passage(box.k, "subnormal c");
}

void find_specials(RecordingBox& recorder, const Model& model, std::vector<Finding>& findings) {
  const BlackBox& box = recorder.box();
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto code = [&](std::initializer_list<Term> terms) {
    return code_text(box, recorder.code(question_of(box, std::span(terms.begin(), terms.size()))));
  };
  if (box.a.has_nan())
    findings.push_back({"NaN", code({{0, nan}}), fmt::format("NaN 1; -NaN 1 gives {}", code({{0, -nan}}))});
  if (box.a.has_infinity())
    findings.push_back(
        {"invalid", code({{0, infinity}, {1, -infinity}}),
         fmt::format("Inf - Inf; Inf 0 gives {}, Inf 1 {}", code({{0, infinity, 0}}), code({{0, infinity}}))});
  Question zeros = question_of(box, {});
  for (double& a : zeros.a) a = -0.0;
  if (box.takes_c) zeros.c = -0.0;
  const std::string all_zeros = code_text(box, recorder.code(zeros));
  const bool signed_zero = std::signbit(decode(box.d_type, recorder.code(zeros)));
  findings.push_back(
      {"negative zero", signed_zero ? "kept" : "becomes +0", fmt::format("a sum of -0 alone gives {}", all_zeros)});
  // A negative number that is too small for the result.
  if (const auto tiny = term_of(box, 0, -std::ldexp(1.0, box.d.min_subnormal_exponent() - 2)))
    findings.push_back({"negative underflow", code({*tiny}), fmt::format("-2^{}", box.d.min_subnormal_exponent() - 2)});
  // Twice the largest power of two, as two terms of one node if there are blocks.
  const auto half = term_of(box, 0, std::ldexp(1.0, box.d.max_exponent())),
             other = term_of(box, 1, std::ldexp(1.0, box.d.max_exponent()));
  if (half && other) {
    const std::string over = code({*half, *other});
    findings.push_back({"overflow", over, fmt::format("2^{0} + 2^{0}", box.d.max_exponent())});
    // The same, cancelled by a later term: shows whether an intermediate sum has a wider range than the result.
    const auto back = term_of(box, box.k - 1, -std::ldexp(1.0, box.d.max_exponent()));
    if (back && model.tree.k > 2) {
      const double left = recorder.value(question_of(box, std::array{*half, *other, *back}));
      findings.push_back({"overflow in between", std::isfinite(left) ? "passes" : "stays",
                          fmt::format("2^{0} + 2^{0} - 2^{0}, the last at k = {1}, gives {2}", box.d.max_exponent(),
                                      box.k - 1, left)});
    }
  }
}

}  // namespace

void find_operands(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  find_operand_bits(recorder, model, findings);
}

void find_ranges(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  if (!model.tree.nodes.empty()) {
    find_product_rounding(recorder, model, findings);
    find_zero_floor(recorder, model, findings);
  }
  find_subnormals(recorder, model, findings);
  find_specials(recorder, model, findings);
}

}  // namespace halfmark::accuracy::probe
