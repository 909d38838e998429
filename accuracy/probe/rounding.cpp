// Finds the format that a sum is rounded to, and the rounding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "accuracy/probe/node_probe.h"

namespace halfmark::accuracy::probe {
namespace {

constexpr int kMostBits = 52;  // the fraction bits of fp64

}  // namespace

// B is the sum of 2^g products 2.25 2^x, so that more than F bits lie between its first bit and the last kept one. The
// last slot is left for s. False if no product is left for B.
bool NodeProbe::prepare() {
  base_.clear();
  const bool two = inputs_.terms() == 2;
  small_ = inputs_.slots.back();
  if (two) {
    small_ = inputs_.products ? inputs_.slots[0] : inputs_.slots[1];
    const size_t big = inputs_.products ? inputs_.slots[1] : inputs_.slots[0];
    x_ = highest() - 1;  // far above a possible zero floor
    base_.push_back(power(big, x_));
    top_ = x_, value_ = std::ldexp(1.0, x_);
    return true;
  }
  const size_t products = inputs_.products - (inputs_.slots.size() == inputs_.products ? 1 : 0);
  if (products == 0 || inputs_.products == 0) return false;
  int g = 0;
  while ((size_t{2} << g) <= products) ++g;
  const int deepest = std::max(lowest(), small_ == box_.k ? box_.c.min_subnormal_exponent() + 1 : -10000);
  const int kept = exact_ ? box_.d.fraction_bits : kept_;
  x_ = std::max(0, deepest + kept + 2);
  // For results of few bits a small B is enough and stays within their range.
  if (box_.d.fraction_bits < 13) g = std::min(g, std::max(0, box_.d.fraction_bits + 1 - kept));
  const int limit = std::min(box_.d.max_exponent() - 1, box_.a.max_exponent() + box_.b.max_exponent());
  while (g > 0 && x_ + g + 2 > limit) --g;
  for (size_t i = 0; i < (size_t{1} << g); ++i) base_.push_back(square(inputs_.slots[i], x_));
  top_ = x_ + g + 1, value_ = std::ldexp(2.25, x_ + g);
  return true;
}

NodeProbe::Terms NodeProbe::terms(bool cancel, double sign, int exponent, double factor) const {
  Terms all = base_;
  if (sign < 0)
    for (auto& term : all)
      if (term) term->a = -term->a;
  all.push_back(power(small_, exponent, sign * factor));
  if (cancel) {
    const int e = std::ilogb(value_);
    all.push_back(inputs_.terms() == 2 ? power(*inputs_.later, e, -sign) : square(*inputs_.later, e - 1, -sign));
  }
  return all;
}

int NodeProbe::width(bool cancel) {
  std::vector<Terms> all;
  std::vector<double> expected;
  for (int bits = 1; bits <= kMostBits && top_ - bits >= lowest(); ++bits) {
    all.push_back(terms(cancel, 1, top_ - bits, 1));
    expected.push_back(std::ldexp(1.0, top_ - bits) + (cancel ? 0 : value_));
  }
  const std::vector<Answer> answers = ask(all);
  int kept = -1;
  for (size_t i = 0; i < answers.size() && answers[i] == expected[i]; ++i) kept = static_cast<int>(i) + 1;
  return kept;
}

Format NodeProbe::format_of_bits(int bits) const {
  for (const Format& format : {kFp64, kFp32, kBf16})
    if (format.fraction_bits == bits) return format;
  if (bits == 10) return box_.d == kFp16 ? kFp16 : kTf32;
  return {"", 8, bits};
}

// The assumption if nothing can be observed: results of few bits are
// rounded to nearest, and sums that truncate their terms are truncated.
void NodeProbe::unknown_rounding(Adder& adder, const std::string& name, const std::string& why,
                                 std::vector<Finding>& findings) const {
  adder.out = format_of_bits(box_.d.fraction_bits);
  adder.rounding = exact_ || box_.d.fraction_bits < 13 ? Rounding::near_even : Rounding::toward_zero;
  findings.push_back({"bits of " + name, std::string(kNotObservable), why});
  findings.push_back({"rounding of " + name, std::string(kNotObservable), why});
}

// Finds the rounding of B + s from the result or, with `cancel`, from the result after a later term has subtracted B.
void NodeProbe::find_rounding(Adder& adder, std::vector<Finding>& findings, const std::string& name, bool cancel,
                              int bits) {
  const bool two = inputs_.terms() == 2;
  cancels_ = cancel, seen_bits_ = bits;
  if (bits < 0) return unknown_rounding(adder, name, "B + s loses s", findings);
  const int unit = top_ - bits;
  const double parts[] = {0.5, 1.5};
  std::vector<Terms> all;
  for (const double sign : {1.0, -1.0})
    for (const double part : parts) all.push_back(terms(cancels_, sign, unit, part));
  const std::vector<Answer> answers = ask(all);
  std::vector<double> steps;
  std::string text =
      fmt::format("B + s keeps s down to 2^-{} B{}", bits, cancels_ ? ", observed after a later term subtracts B" : "");
  for (size_t i = 0; i < all.size(); ++i) {
    if (!answers[i]) break;
    const double sign = i < 2 ? 1 : -1;
    steps.push_back(std::ldexp(*answers[i] - (cancels_ ? 0 : sign * value_), -unit));
    text += fmt::format(", {}: {}", sign * parts[i % 2], steps.back());
  }
  adder.out = format_of_bits(bits);
  // The rounding is not observable if the terms are truncated before it, or if the types have no smaller s.
  const bool in_range = top_ - bits - 1 >= lowest();
  const bool before_cut =
      two || exact_ || (top_ - bits - 1 >= x_ - kept_ + (adder.normalised ? 1 : 0) && !(cancel && bits >= kept_));
  const bool reached = in_range && before_cut;
  std::string rounding(kNotObservable);
  if (steps.size() == 4 && reached) {
    if (steps == std::vector<double>{0, 1, 0, -1}) rounding = "toward_zero", adder.rounding = Rounding::toward_zero;
    if (steps == std::vector<double>{0, 2, 0, -2}) rounding = "near_even", adder.rounding = Rounding::near_even;
    if (steps == std::vector<double>{1, 2, -1, -2}) rounding = "near_away", adder.rounding = Rounding::near_away;
    if (steps == std::vector<double>{0, 1, -1, -2}) rounding = "down";
    if (steps == std::vector<double>{1, 2, 0, -1}) rounding = "up";
  }
  if (two && reached) return find_two(adder, rounding, text, findings, name);
  if (!reached) return unknown_rounding(adder, name, text, findings);
  findings.push_back({"bits of " + name, fmt::format("{}", bits), text});
  findings.push_back({"rounding of " + name, rounding, text});
}

// Two terms: if sums are truncated, X - 2^(x - t) is below X as long as the last bit is kept. If sums are rounded to
// nearest, a further bit that breaks a tie shows the same.
void NodeProbe::find_two(Adder& adder, const std::string& rounding, const std::string& text,
                         std::vector<Finding>& findings, const std::string& name) {
  const int bits = seen_bits_;
  if (rounding == "near_even") {
    std::vector<Terms> all;
    for (int i = 1; i <= digits_; ++i) all.push_back(terms(cancels_, 1, top_ - bits - 1, 1 + std::ldexp(1.0, -i)));
    const std::vector<Answer> answers = ask(all);
    const double up = std::ldexp(1.0, top_ - bits) + (cancels_ ? 0 : value_);
    int kept = 0;
    while (kept < digits_ && answers[static_cast<size_t>(kept)] == up) ++kept;
    const bool refused = kept == digits_ || !answers[static_cast<size_t>(kept)];
    if (!refused) adder.kept_bits = bits + 1 + kept;
    findings.push_back({"kept fraction bits",
                        adder.kept_bits < kAllBits ? fmt::format("{}", adder.kept_bits) : "all that were asked for",
                        fmt::format("a bit {} places lower breaks a tie", kept)});
  } else if (rounding == "toward_zero") {
    std::vector<Terms> all;
    for (int t = bits; t <= 64; ++t) {
      all.push_back(terms(cancels_, 1, top_ - t, -1));
    }
    const std::vector<Answer> answers = ask(all);
    const double unchanged = cancels_ ? 0 : value_;
    size_t seen = 0;
    while (seen < answers.size() && answers[seen] && *answers[seen] < unchanged) ++seen;
    const bool all_seen = seen == answers.size() || !answers[seen];
    const int kept = bits + static_cast<int>(seen) - 1;
    if (all_seen) {
      findings.push_back(
          {"kept fraction bits", "all that were asked for", fmt::format("X - X 2^-t is below X up to t = {}", kept)});
    } else {
      adder.kept_bits = kept_ = kept, exact_ = false;
      findings.push_back(
          {"kept fraction bits", fmt::format("{}", kept), fmt::format("X - X 2^-t is below X up to t = {}", kept)});
    }
    if (!all_seen && kept <= bits) {  // terms are truncated before the rounding
      return unknown_rounding(adder, name, "the terms are truncated before it", findings);
    }
  } else {
    findings.push_back({"kept fraction bits", std::string(kNotObservable), text});
  }
  findings.push_back({"bits of " + name, fmt::format("{}", bits), text});
  findings.push_back({"rounding of " + name, rounding, text});
}

}  // namespace halfmark::accuracy::probe
