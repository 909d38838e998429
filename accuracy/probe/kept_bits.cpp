// Sums of three or more terms: the bits kept below the largest term, and the rounding of lower bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/probe/node_probe.h"

namespace halfmark::accuracy::probe {

std::vector<NodeProbe::Answer> NodeProbe::ask(const std::vector<Terms>& all) {
  std::vector<Answer> answers(all.size());
  std::vector<Question> questions;
  std::vector<size_t> of;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Term> terms;
    for (const auto& term : all[i])
      if (term) terms.push_back(*term);
    if (terms.size() < all[i].size()) continue;
    questions.push_back(question_of(box_, terms));
    of.push_back(i);
  }
  if (questions.empty()) return answers;
  const std::vector<double> values = recorder_.values(std::move(questions));
  for (size_t i = 0; i < of.size(); ++i) answers[of[i]] = values[i];
  return answers;
}

std::optional<Term> NodeProbe::power(size_t leaf, int exponent, double factor) const {
  return term_of(box_, leaf, std::ldexp(factor, exponent));
}

// 1.5 * 1.5 = 2.25: its exponent is 0 as the sum of the factors' exponents and 1 as a number.
std::optional<Term> NodeProbe::square(size_t leaf, int exponent, double sign) const {
  auto term = power(leaf, exponent);
  if (!term) return {};
  if (leaf == box_.k || box_.terms_only) return term_of(box_, leaf, sign * std::ldexp(2.25, exponent));
  term->a *= 1.5 * sign, term->b *= 1.5;
  if (round_to(box_.a, term->a) != term->a || round_to(box_.b, term->b) != term->b) return {};
  return term;
}

int NodeProbe::lowest() const {
  return std::max(box_.a.min_subnormal_exponent() + box_.b.min_subnormal_exponent() + 2,
                  box_.d.min_subnormal_exponent());
}

// 14, in case an intermediate sum is fp16: twice 2^14 is finite there.
int NodeProbe::highest() const { return std::min(box_.a.max_exponent() + box_.b.max_exponent() - 1, 14); }

// F: X - X + 2^(x - t) leaves the last term as long as t <= F.
void NodeProbe::find_kept(Adder& adder, std::vector<Finding>& findings) {
  const auto scan = [&](int x) {
    std::vector<Terms> all;
    for (int t = 1; x - t >= lowest() && t <= 64; ++t)
      all.push_back({power(inputs_.slots[0], x), power(inputs_.slots[1], x, -1), power(inputs_.slots[2], x - t)});
    const std::vector<Answer> answers = ask(all);
    size_t t = 0;
    while (t < answers.size() && answers[t] == std::ldexp(1.0, x - static_cast<int>(t) - 1)) ++t;
    return std::pair(static_cast<int>(t), t == answers.size());
  };
  const int x = highest();
  const auto [kept, all_seen] = scan(x);
  const auto [again, all_seen_again] = scan(x - 3);
  const std::string parameter = "kept fraction bits";
  if (all_seen || kept == 0) {
    findings.push_back(
        {parameter, std::string(kNotObservable),
         kept ? fmt::format("X - X + X 2^-t keeps its last term up to t = {}, the limit of these types", kept)
              : "X - X + X / 2 loses its last term"});
    exact_ = true;
    return;
  }
  if (kept != again && !all_seen_again) {
    findings.push_back({parameter, std::string(kNotObservable),
                        fmt::format("{} below 2^{} but {} below 2^{}: zeros or another effect raise the exponent", kept,
                                    x, again, x - 3)});
    exact_ = true;
    return;
  }
  adder.kept_bits = kept_ = kept, exact_ = false;
  findings.push_back({parameter, fmt::format("{}", kept),
                      fmt::format("X - X + X 2^-t keeps its last term up to t = {}, with X = 2^{}", kept, x)});
}

// Rounding of bits below the last kept bit U, term by term: X - X + s for s = 1/4, 1/2, 3/4 and 3/2 U of both signs.
void NodeProbe::find_cut(Adder& adder, std::vector<Finding>& findings) {
  if (exact_) return findings.push_back({"alignment", std::string(kNotObservable), "no truncation was observed"});
  const int x = highest(), unit = x - kept_;
  const double parts[] = {0.5, 1.5, -0.5, -1.5, 0.25, 0.75, -0.25, -0.75};
  std::vector<Terms> all;
  for (const double part : parts)
    all.push_back({power(inputs_.slots[0], x), power(inputs_.slots[1], x, -1), power(inputs_.slots[2], unit, part)});
  // Two halves: one unit when the sum is cut, nothing when its terms are.
  if (inputs_.terms() >= 4)
    all.push_back({power(inputs_.slots[0], x), power(inputs_.slots[1], x, -1), power(inputs_.slots[2], unit, 0.5),
                   power(inputs_.slots[3], unit, 0.5)});
  const std::vector<Answer> answers = ask(all);
  std::vector<double> seen;
  std::string text;
  for (size_t i = 0; i < 8; ++i) {
    if (!answers[i]) continue;
    text += fmt::format("{}{}U: {}", text.empty() ? "" : ", ", parts[i], std::ldexp(*answers[i], -unit));
  }
  const auto fits = [&](Cut cut) {
    size_t known = 0;
    for (size_t i = 0; i < 8; ++i) {
      if (!answers[i]) continue;
      ++known;
      const double p = parts[i], a = std::fabs(p);
      const double nearest = cut == Cut::near_even ? std::nearbyint(p) : std::copysign(std::floor(a + 0.5), p);
      const double expected = cut == Cut::toward_zero ? std::trunc(p) : cut == Cut::down ? std::floor(p) : nearest;
      if (std::ldexp(*answers[i], -unit) != expected) return false;
    }
    return known >= 4;
  };
  std::string value(kNotObservable);
  for (const Cut cut : {Cut::toward_zero, Cut::down, Cut::near_even, Cut::near_away})
    if (fits(cut)) {
      adder.cut = cut;
      value = cut == Cut::toward_zero ? "terms cut toward zero" : fmt::format("terms rounded {}", name_of(cut));
      break;
    }
  if (answers.size() > 8 && answers[8]) {
    text += fmt::format("; two halves: {}", std::ldexp(*answers[8], -unit));
    if (adder.cut == Cut::toward_zero && *answers[8] != 0 && value != kNotObservable) value = "sum cut toward zero";
  }
  findings.push_back({"alignment", value, text});
}

// X = 1.5 * 1.5 * 2^x = 2.25 * 2^x. If it is aligned by the sum of the factors' exponents, 2^(x - F) is still kept.
void NodeProbe::find_normalised(Adder& adder, std::vector<Finding>& findings) {
  const std::string parameter = "exponents of products";
  if (exact_ || inputs_.products < 2)
    return findings.push_back({parameter, std::string(kNotObservable), "no truncation was observed"});
  const int x = highest() - 2;
  std::vector<Terms> all;
  for (const int above : {0, 1})
    all.push_back(
        {square(inputs_.slots[0], x), square(inputs_.slots[1], x, -1), power(inputs_.slots[2], x - kept_ + above)});
  const std::vector<Answer> answers = ask(all);
  std::string value(kNotObservable);
  if (answers[0] && answers[1] && *answers[1] == std::ldexp(1.0, x - kept_ + 1)) {
    adder.normalised = *answers[0] == 0;
    if (*answers[0] == 0) value = "of the value";
    if (*answers[0] == std::ldexp(1.0, x - kept_)) value = "of the factors, added";
  }
  findings.push_back({parameter, value, "2.25 X - 2.25 X + s, with s at the last kept bit of X"});
}

}  // namespace halfmark::accuracy::probe
