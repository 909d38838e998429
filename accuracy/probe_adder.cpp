// How the nodes of a tree add: which bits they keep, what they do with the others, how they round. Each question puts a
// few terms into one node, whose other terms are zeros; the derivation stands above each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "accuracy/probe.h"

namespace halfmark::probe {
namespace {

// A node and the leaves through which terms reach it: its own products first, then one product of each sum below it,
// then c.
struct Site {
  size_t node = 0, products = 0;
  std::vector<size_t> slots;
  bool has_c = false;
  std::optional<size_t> later;  // a leaf that is added after this node

  size_t terms() const { return slots.size(); }
};

std::vector<std::optional<size_t>> parents_of(const SumTree& tree) {
  std::vector<std::optional<size_t>> parents(tree.nodes.size());
  for (size_t i = 0; i < tree.nodes.size(); ++i)
    for (const size_t child : tree.nodes[i].children) parents[child] = i;
  return parents;
}

// A leaf among the descendants of `node` outside `but`; products before c.
std::optional<size_t> leaf_below(const SumTree& tree, size_t node, std::optional<size_t> but = {}) {
  std::optional<size_t> found;
  for (const size_t child : tree.nodes[node].children) {
    if (child == but) continue;
    const size_t leaf = tree.nodes[child].leaf ? *tree.nodes[child].leaf : tree.leaves_of(child).front();
    if (!found || leaf < *found) found = leaf;  // c has the largest number
  }
  return found;
}

Site site_at(const SumTree& tree, size_t node, const std::vector<std::optional<size_t>>& parents) {
  Site site{node, 0, tree.products_of(node), false, {}};
  site.products = site.slots.size();
  for (const size_t child : tree.nodes[node].children) {
    if (!tree.nodes[child].leaf) site.slots.push_back(tree.leaves_of(child).front());
    site.has_c = site.has_c || tree.nodes[child].leaf == tree.k;
  }
  if (site.has_c) site.slots.push_back(tree.k);
  for (std::optional<size_t> below = node, above = parents[node]; above && !site.later;
       below = above, above = parents[*above])
    site.later = leaf_below(tree, *above, below);
  return site;
}

// The node to be asked: of the wanted kind and with as many products as any. One that others follow, or one whose sum
// no node of its kind takes up again.
enum class Place { followed, last };
std::optional<Site> site_of(const SumTree& tree, bool blocks, Place place) {
  const auto parents = parents_of(tree);
  const auto is_block = [&](size_t node) { return !tree.products_of(node).empty(); };
  std::optional<Site> best;
  const auto rank = [](const Site& s) {
    return std::tuple(s.products, s.later.has_value(), s.terms() > 2 ? s.has_c : !s.has_c, s.terms());
  };
  for (size_t node = 0; node < tree.nodes.size(); ++node) {
    if (tree.nodes[node].leaf || is_block(node) != blocks) continue;
    bool last = true;
    for (auto above = parents[node]; above; above = parents[*above]) last = last && is_block(*above) != blocks;
    if (place == Place::last && !last) continue;
    Site site = site_at(tree, node, parents);
    // Two products that open a chain say nothing of a sum and a product.
    if (site.products == 2 && site.terms() == 2 && products_per_block(tree) == 1) continue;
    if (!best || rank(site) > rank(*best)) best = site;
  }
  return best;
}

class Laboratory {
 public:
  Laboratory(Witness& witness, const Site& site, int kept, int digits = 23)
      : witness_(witness), box_(witness.box()), site_(site), kept_(kept), exact_(kept >= kAllBits), digits_(digits) {}

  using Terms = std::vector<std::optional<Term>>;
  using Answer = std::optional<double>;  // nothing: the types have no such term

  std::vector<Answer> ask(const std::vector<Terms>& all) {
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
    const std::vector<double> values = witness_.values(std::move(questions));
    for (size_t i = 0; i < of.size(); ++i) answers[of[i]] = values[i];
    return answers;
  }

  std::optional<Term> power(size_t leaf, int exponent, double factor = 1) const {
    return term_of(box_, leaf, std::ldexp(factor, exponent));
  }
  // 1.5 times 1.5: 2.25, of exponent 0 as a product and 1 as a number.
  std::optional<Term> square(size_t leaf, int exponent, double sign = 1) const {
    auto term = power(leaf, exponent);
    if (!term) return {};
    if (leaf == box_.k) return term_of(box_, leaf, sign * std::ldexp(2.25, exponent));
    term->a *= 1.5 * sign, term->b *= 1.5;
    if (round_to(box_.a, term->a) != term->a || round_to(box_.b, term->b) != term->b) return {};
    return term;
  }
  int lowest() const {  // exponent of the smallest product with a digit to spare, which the result can show
    return std::max(box_.a.min_subnormal_exponent() + box_.b.min_subnormal_exponent() + 2,
                    box_.d.min_subnormal_exponent());
  }
  int highest() const { return std::min(box_.a.max_exponent() + box_.b.max_exponent() - 1, 14); }

  // ---- three terms and more

  // F: of X, -X and 2^(x - t) the last is what is left, as long as t is not above F.
  void find_kept(Adder& adder, std::vector<Finding>& findings) {
    const auto scan = [&](int x) {
      std::vector<Terms> all;
      for (int t = 1; x - t >= lowest() && t <= 64; ++t)
        all.push_back({power(site_.slots[0], x), power(site_.slots[1], x, -1), power(site_.slots[2], x - t)});
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
           kept ? fmt::format("X - X + X 2^-t keeps its last term up to t = {}, the most these types allow", kept)
                : "X - X + X / 2 loses its last term"});
      exact_ = true;
      return;
    }
    if (kept != again && !all_seen_again) {
      findings.push_back({parameter, std::string(kNotObservable),
                          fmt::format("{} below 2^{} but {} below 2^{}: zeros or something else raise the exponent",
                                      kept, x, again, x - 3)});
      exact_ = true;
      return;
    }
    adder.kept_bits = kept_ = kept, exact_ = false;
    findings.push_back({parameter, fmt::format("{}", kept),
                        fmt::format("X - X + X 2^-t keeps its last term up to t = {}, with X = 2^{}", kept, x)});
  }

  // What lies below the last kept bit U, term by term: X - X + s for s = 1/4, 1/2, 3/4 and 3/2 U of both signs.
  void find_cut(Adder& adder, std::vector<Finding>& findings) {
    if (exact_) return findings.push_back({"alignment", std::string(kNotObservable), "no cut was seen"});
    const int x = highest(), unit = x - kept_;
    const double parts[] = {0.5, 1.5, -0.5, -1.5, 0.25, 0.75, -0.25, -0.75};
    std::vector<Terms> all;
    for (const double part : parts)
      all.push_back({power(site_.slots[0], x), power(site_.slots[1], x, -1), power(site_.slots[2], unit, part)});
    // Two halves: one unit when the sum is cut, nothing when its terms are.
    if (site_.terms() >= 4)
      all.push_back({power(site_.slots[0], x), power(site_.slots[1], x, -1), power(site_.slots[2], unit, 0.5),
                     power(site_.slots[3], unit, 0.5)});
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

  // X = 1.5 1.5 2^x is 2.25 2^x. Aligned by the sum of the factors' exponents, 2^(x - F) is still kept beside it.
  void find_normalised(Adder& adder, std::vector<Finding>& findings) {
    const std::string parameter = "exponents of products";
    if (exact_ || site_.products < 2)
      return findings.push_back({parameter, std::string(kNotObservable), "no cut was seen"});
    const int x = highest() - 2;
    std::vector<Terms> all;
    for (const int above : {0, 1})
      all.push_back(
          {square(site_.slots[0], x), square(site_.slots[1], x, -1), power(site_.slots[2], x - kept_ + above)});
    const std::vector<Answer> answers = ask(all);
    std::string value(kNotObservable);
    if (answers[0] && answers[1] && *answers[1] == std::ldexp(1.0, x - kept_ + 1)) {
      adder.normalised = *answers[0] == 0;
      if (*answers[0] == 0) value = "of the value";
      if (*answers[0] == std::ldexp(1.0, x - kept_)) value = "of the factors, added";
    }
    findings.push_back({parameter, value, "2.25 X - 2.25 X + s, with s at the last kept bit of X"});
  }

  // A large B and what can be added to it: B = 2.25 2^x from each of 2^g products, so that more bits than F lie between
  // its first and the last kept one; s goes into the last slot. False where there is no product to fill it with.
  bool prepare() {
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

  // What B + s keeps of s, as B shows it in the result, or (cancel) once a later term has taken B away again.
  void find_rounding(Adder& adder, std::vector<Finding>& findings, const std::string& name, bool cancel, int bits) {
    const bool two = site_.terms() == 2;
    cancels_ = cancel, seen_bits_ = bits;
    if (bits < 0) return unknown_rounding(name, "B + s loses s", findings);
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
    if (!reached) {
      adder.out = format_of_bits(box_.d.fraction_bits);
      adder.rounding = box_.d.fraction_bits < 13 ? Rounding::near_even : Rounding::toward_zero;
      findings.push_back({"bits of " + name, std::string(kNotObservable), text});
    } else {
      findings.push_back({"bits of " + name, fmt::format("{}", bits), text});
    }
    findings.push_back({"rounding of " + name, rounding, text});
  }

 private:
  Format format_of_bits(int bits) const {
    for (const Format& format : {kFp64, kFp32, kBf16})
      if (format.fraction_bits == bits) return format;
    if (bits == 10) return box_.d == kFp16 ? kFp16 : kTf32;
    return {"", 8, bits};
  }

  void unknown_rounding(const std::string& name, const std::string& why, std::vector<Finding>& findings) {
    findings.push_back({"bits of " + name, std::string(kNotObservable), why});
    findings.push_back({"rounding of " + name, std::string(kNotObservable), why});
  }

  Terms terms(bool cancel, double sign, int exponent, double factor) const {
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

  static constexpr int kMostBits = 52;  // what fp64 shows

 public:
  int width(bool cancel) {
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

 private:
  // Two terms: a difference X - 2^(x - t) falls below X as long as the last bit is kept, whatever the rounding toward
  // zero drops; where sums are rounded to nearest, a tie that a further bit breaks shows the same.
  void find_two(Adder& adder, const std::string& rounding, const std::string& text, std::vector<Finding>& findings,
                const std::string& name) {
    const int bits = seen_bits_;
    if (rounding == "near_even" || rounding == "near_away") {
      std::vector<Terms> all;
      for (int i = 1; i <= digits_; ++i)
        all.push_back(terms(cancels_, 1, top_ - bits - 1,
                            rounding == "near_even" ? 1 + std::ldexp(1.0, -i) : 2 - std::ldexp(1.0, -i)));
      const std::vector<Answer> answers = ask(all);
      const double up = std::ldexp(1.0, top_ - bits) + (cancels_ ? 0 : value_);
      int kept = 0;
      while (kept < digits_ && answers[static_cast<size_t>(kept)] == up) ++kept;
      const bool refused = kept == digits_ || !answers[static_cast<size_t>(kept)];
      if (!refused && rounding == "near_even") adder.kept_bits = bits + 1 + kept;
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
        adder.out = format_of_bits(box_.d.fraction_bits);
        adder.rounding = box_.d.fraction_bits < 13 ? Rounding::near_even : Rounding::toward_zero;
        return unknown_rounding(name, "the cut of the terms comes before it", findings);
      }
    } else {
      findings.push_back({"kept fraction bits", std::string(kNotObservable), text});
    }
    findings.push_back({"bits of " + name, fmt::format("{}", bits), text});
    findings.push_back({"rounding of " + name, rounding, text});
  }

  Witness& witness_;
  const BlackBox& box_;
  const Site& site_;
  int kept_;
  bool exact_;
  int digits_;  // of a term that arrives unharmed
  Terms base_;
  size_t small_ = 0;
  int x_ = 0, top_ = 0, seen_bits_ = 0;
  double value_ = 0;
  bool cancels_ = false;
};

// Where 1, 2^-t meet in one slice and -1 in another: what is left of 2^-t went through the partial sum.
void find_partial(Witness& witness, Model& model, std::vector<Finding>& findings) {
  const SumTree& tree = model.tree;
  const auto parents = parents_of(tree);
  for (size_t child = 0; child < tree.nodes.size(); ++child) {
    if (tree.products_of(child).empty() || !parents[child] || !tree.products_of(*parents[child]).empty()) continue;
    const std::vector<size_t> inside = tree.leaves_of(child);
    const std::optional<size_t> outside = leaf_below(tree, *parents[child], child);
    if (inside.size() < 2 || inside[1] == tree.k || !outside) continue;
    Site site{*parents[child], 0, {}, false, {}};
    Laboratory lab(witness, site, kAllBits);
    std::vector<Laboratory::Terms> all;
    const int x = lab.highest() - 4;
    for (int t = 1; x - t >= lab.lowest() && t <= 60; ++t)
      all.push_back({lab.power(inside[0], x), lab.power(inside[1], x - t), lab.power(*outside, x, -1)});
    const auto answers = lab.ask(all);
    int bits = 0;
    while (static_cast<size_t>(bits) < answers.size() &&
           answers[static_cast<size_t>(bits)] == std::ldexp(1.0, x - bits - 1))
      ++bits;
    const int own = std::min(model.block.out.fraction_bits, model.block.kept_bits);
    std::string value = fmt::format("{} fraction bits", bits), more;
    if (bits < own && bits > 0) {
      model.partial = bits == 10 ? kTf32 : bits == 7 ? kBf16 : Format{"", 8, bits};
      if (bits == 10) {  // fp16 ends at 65520
        const auto large = lab.ask({{lab.power(inside[0], 15), lab.power(inside[1], 15), lab.power(*outside, 15, -1)}});
        if (large[0] && !std::isfinite(*large[0])) model.partial = kFp16;
        more = fmt::format("; 2^15 + 2^15 - 2^15 gives {}", large[0] ? fmt::format("{}", *large[0]) : "no answer");
      }
      value = fmt::format("rounded to {}", model.partial->name.empty() ? value : std::string(model.partial->name));
    } else {
      value = "as the sums of a slice";
    }
    findings.push_back(
        {"partial sums", value, fmt::format("1 + 2^-t in one part and -1 in another keeps t = {}", bits) + more});
    return;
  }
}

// The narrower of a sum and all that follow it shows in the result; of a sum alone, when a later term takes B away.
// Sums that are cut take their own results up again and cut them again, so the last one is asked for the former.
void find_rounding_of(Witness& witness, const SumTree& tree, bool blocks, Adder& adder, std::vector<Finding>& findings,
                      const std::string& name, int digits) {
  const auto last = site_of(tree, blocks, Place::last), followed = site_of(tree, blocks, Place::followed);
  if (!last || !followed) return;
  Laboratory direct(witness, *last, adder.kept_bits, digits), inner(witness, *followed, adder.kept_bits, digits);
  const int in_result = direct.prepare() ? direct.width(false) : -1;
  const int in_sum = followed->later && inner.prepare() ? inner.width(true) : -1;
  if (in_sum > in_result)
    inner.find_rounding(adder, findings, name, true, in_sum);
  else
    direct.find_rounding(adder, findings, name, false, in_result);
}

}  // namespace

void find_adders(Witness& witness, Model& model, std::vector<Finding>& findings) {
  if (const auto site = site_of(model.tree, true, Place::followed)) {
    if (site->terms() >= 3) {
      Laboratory lab(witness, *site, kAllBits);
      lab.find_kept(model.block, findings);
      lab.find_cut(model.block, findings);
      lab.find_normalised(model.block, findings);
    }
    find_rounding_of(witness, model.tree, true, model.block, findings, "sums", 23);
  }
  model.join = model.block;
  if (!site_of(model.tree, false, Place::last)) return;
  model.join = Adder{};
  std::vector<Finding> own;
  find_rounding_of(witness, model.tree, false, model.join, own, "sums of sums",
                   std::min(model.block.out.fraction_bits, model.block.kept_bits));
  for (Finding& finding : own)
    if (finding.parameter != "kept fraction bits") findings.push_back(std::move(finding));
  find_partial(witness, model, findings);
  // What a tie looks like through a narrow partial sum says nothing of the join itself.
  if (model.partial) model.join.kept_bits = kAllBits;
}

}  // namespace halfmark::probe
