// What a sum is rounded to, and how.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "accuracy/probe/node_probe.h"

namespace halfmark::accuracy::probe {
namespace {

constexpr int kMostBits = 52;  // what fp64 shows

}  // namespace

// A large B and what can be added to it: B = 2.25 2^x from each of 2^g products, so that more bits than F lie between
// its first and the last kept one; s goes into the last slot. False where there is no product to fill it with.
bool Laboratory::prepare() {
  base_.clear();
  const bool two = site_.terms() == 2;
  small_ = site_.slots.back();
  if (two) {
    small_ = site_.products ? site_.slots[0] : site_.slots[1];
    const size_t big = site_.products ? site_.slots[1] : site_.slots[0];
    x_ = highest() - 1;  // far above what a zero floor may take
    base_.push_back(power(big, x_));
    top_ = x_, value_ = std::ldexp(1.0, x_);
    return true;
  }
  const size_t products = site_.products - (site_.slots.size() == site_.products ? 1 : 0);
  if (products == 0 || site_.products == 0) return false;
  int g = 0;
  while ((size_t{2} << g) <= products) ++g;
  const int deepest = std::max(lowest(), small_ == box_.k ? box_.c.min_subnormal_exponent() + 1 : -10000);
  const int kept = exact_ ? box_.d.fraction_bits : kept_;
  x_ = std::max(0, deepest + kept + 2);
  // For results that round to few bits a small B does, and it stays within their range.
  if (box_.d.fraction_bits < 13) g = std::min(g, std::max(0, box_.d.fraction_bits + 1 - kept));
  const int roof = std::min(box_.d.max_exponent() - 1, box_.a.max_exponent() + box_.b.max_exponent());
  while (g > 0 && x_ + g + 2 > roof) --g;
  for (size_t i = 0; i < (size_t{1} << g); ++i) base_.push_back(square(site_.slots[i], x_));
  top_ = x_ + g + 1, value_ = std::ldexp(2.25, x_ + g);
  return true;
}

Laboratory::Terms Laboratory::terms(bool cancel, double sign, int exponent, double factor) const {
  Terms all = base_;
  if (sign < 0)
    for (auto& term : all)
      if (term) term->a = -term->a;
  all.push_back(power(small_, exponent, sign * factor));
  if (cancel) {
    const int e = std::ilogb(value_);
    all.push_back(site_.terms() == 2 ? power(*site_.later, e, -sign) : square(*site_.later, e - 1, -sign));
  }
  return all;
}

int Laboratory::width(bool cancel) {
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

Format Laboratory::format_of_bits(int bits) const {
  for (const Format& format : {kFp64, kFp32, kBf16})
    if (format.fraction_bits == bits) return format;
  if (bits == 10) return box_.d == kFp16 ? kFp16 : kTf32;
  return {"", 8, bits};
}

// What is assumed where nothing can be seen: results of few bits are rounded to nearest, sums that cut their terms are
// cut.
void Laboratory::unknown_rounding(Adder& adder, const std::string& name, const std::string& why,
                                  std::vector<Finding>& findings) const {
  adder.out = format_of_bits(box_.d.fraction_bits);
  adder.rounding = exact_ || box_.d.fraction_bits < 13 ? Rounding::near_even : Rounding::toward_zero;
  findings.push_back({"bits of " + name, std::string(kNotObservable), why});
  findings.push_back({"rounding of " + name, std::string(kNotObservable), why});
}

// What B + s keeps of s, as B shows it in the result, or (cancel) once a later term has taken B away again.
void Laboratory::find_rounding(Adder& adder, std::vector<Finding>& findings, const std::string& name, bool cancel,
                               int bits) {
  const bool two = site_.terms() == 2;
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
      fmt::format("B + s keeps s down to 2^-{} B{}", bits, cancels_ ? ", seen when B is taken away later" : "");
  for (size_t i = 0; i < all.size(); ++i) {
    if (!answers[i]) break;
    const double sign = i < 2 ? 1 : -1;
    steps.push_back(std::ldexp(*answers[i] - (cancels_ ? 0 : sign * value_), -unit));
    text += fmt::format(", {}: {}", sign * parts[i % 2], steps.back());
  }
  adder.out = format_of_bits(bits);
  // Where the cut of the terms takes the bits before they can be rounded, nothing is seen of the rounding.
  // Nor where the types have no smaller s.
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

// Two terms: a difference X - 2^(x - t) falls below X as long as the last bit is kept, whatever the rounding toward
// zero drops; where sums are rounded to nearest, a tie that a further bit breaks shows the same.
void Laboratory::find_two(Adder& adder, const std::string& rounding, const std::string& text,
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
                        fmt::format("a tie is broken by a bit {} places lower", kept)});
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
    if (!all_seen && kept <= bits) {  // the cut comes before the rounding
      return unknown_rounding(adder, name, "the cut of the terms comes before it", findings);
    }
  } else {
    findings.push_back({"kept fraction bits", std::string(kNotObservable), text});
  }
  findings.push_back({"bits of " + name, fmt::format("{}", bits), text});
  findings.push_back({"rounding of " + name, rounding, text});
}

}  // namespace halfmark::accuracy::probe
