#include "reports/statistics/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "reports/record/error.h"
#include "reports/statistics/noise_facts.h"

namespace halfmark::reports {

namespace {

using Indices = std::vector<size_t>;

constexpr size_t kSampleAtRandom = 30, kSampleOfSlowest = 10;  // the sample if too many cases are routed

class Judge {
 public:
  Judge(std::span<const JudgedCase> cases, const DecisionRules& rules, PairSource& source, uint64_t seed)
      : cases_(cases), rules_(rules), source_(source), seed_(seed) {
    decision_.cases.resize(cases.size());
    decision_.placement = rules.layout_spread > 0;
    for (size_t i = 0; i < cases.size(); ++i)
      decision_.cases[i].minimum_effect = std::max(rules.minimum_effect, cases[i].minimum_effect);
  }

  Decision run() {
    screen();
    Indices routed = seeming([](double shift, double limit) { return shift >= limit; });
    const Indices faster = seeming([](double shift, double limit) { return shift <= -limit; });
    decision_.routed = routed.size(), decision_.seem_faster = faster.size();
    for (const size_t i : routed) at(i).stage = Stage::routed;
    if (routed.size() > rules_.most_routed) routed = widespread_or_all(routed);
    if (!decision_.widespread) confirm(routed);
    watch_controls();
    extend(routed);
    if (rules_.improvements) look_for_improvements(faster);
    conclude();
    return std::move(decision_);
  }

 private:
  CaseDecision& at(size_t i) { return decision_.cases[i]; }

  std::vector<std::vector<Pair>> measured(const Indices& which, int pairs) {
    if (which.empty()) return {};
    std::vector<std::vector<Pair>> found = source_.measure(which, pairs);
    decision_.process_runs += 2 * static_cast<int64_t>(which.size()) * pairs;
    for (size_t k = 0; k < which.size(); ++k)
      for (const Pair& pair : found.at(k))
        for (const double seconds : {pair.a, pair.b})
          if (!(seconds > 0) || !std::isfinite(seconds))
            throw ReportError(
                fmt::format("{}: a process run took {} seconds, which is not a valid time; check what its build "
                            "prints when run alone",
                            cases_[which[k]].name, seconds));
    return found;
  }

  void screen() {
    Indices all(cases_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const std::vector<std::vector<Pair>> pairs = measured(all, rules_.screen_pairs);
    std::vector<double> shifts;
    for (const size_t i : all) {
      std::vector<double> a, b;
      for (const Pair& pair : pairs[i]) a.push_back(std::log(pair.a)), b.push_back(std::log(pair.b));
      at(i).screened = median(b) - median(a);
      at(i).pairs = rules_.screen_pairs;
      at(i).ratio = std::exp(at(i).screened);
      shifts.push_back(at(i).screened);
    }
    if (!shifts.empty()) decision_.global_shift = median(shifts);
    decision_.global_shift_is_large = std::fabs(decision_.global_shift) > rules_.global_limit;
  }

  template <class Beyond>
  Indices seeming(Beyond beyond) {
    Indices found;
    for (size_t i = 0; i < cases_.size(); ++i)
      if (beyond(at(i).screened, std::log1p(rules_.route))) found.push_back(i);
    return found;
  }

  // Measures fresh pairs of these cases, and computes their estimates, intervals and exact p values.
  void test(const Indices& which, int pairs, Stage stage, double sign) {
    const std::vector<std::vector<Pair>> found = measured(which, pairs);
    for (size_t k = 0; k < which.size(); ++k) {
      std::vector<double> shifts;
      for (const Pair& pair : found[k]) shifts.push_back(sign * (std::log(pair.b) - std::log(pair.a)));
      CaseDecision& one = at(which[k]);
      one.stage = stage, one.pairs = pairs;
      if (rules_.layouts > 0) {
        shifts = means_of_layouts(shifts, static_cast<size_t>(rules_.layouts));
        one.layouts = static_cast<int>(shifts.size());
      }
      const Interval interval = hodges_lehmann_interval(shifts);
      const double low = std::exp(sign * interval.lower), high = std::exp(sign * interval.upper);
      one.interval = {std::min(low, high), std::max(low, high)};
      one.ratio = std::exp(sign * hodges_lehmann(shifts));
      one.p = signed_rank_p(shifts, std::log1p(rules_.margin));
      std::vector<double> mirrored;
      for (const double shift : shifts) mirrored.push_back(-shift);
      one.p_moved = std::min(1.0, 2 * std::min(signed_rank_p(shifts), signed_rank_p(mirrored)));
    }
  }

  // The mean over the pairs of each layout.
  static std::vector<double> means_of_layouts(const std::vector<double>& shifts, size_t layouts) {
    std::vector<double> sums(std::min(layouts, shifts.size())), counts(sums.size());
    for (size_t pair = 0; pair < shifts.size(); ++pair) sums[pair % layouts] += shifts[pair], ++counts[pair % layouts];
    for (size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
    return sums;
  }

  // Layouts are the same in all stages, so that a family chosen by an earlier stage is no fresh sample of them: the
  // correction is then for all cases.
  std::vector<double> corrected(const std::vector<double>& p) const {
    if (rules_.layouts == 0) return holm(p);
    std::vector<double> all;
    for (const double one : p) all.push_back(std::min(1.0, one * static_cast<double>(cases_.size())));
    return all;
  }

  // Whether the placement of code may explain this effect (ln), which is known up to a standard error.
  bool may_be_placement(double effect, double error, size_t family) const {
    if (rules_.layout_spread <= 0) return false;
    const double spread = std::hypot(spread_between_two(rules_.layout_spread), error);
    return upper_normal_p(effect / spread) * static_cast<double>(family) > rules_.alpha_layout;
  }

  // Of the estimate; its 95 % interval is 1.96 standard errors on either side.
  static double error_of(const CaseDecision& one) {
    return std::log(one.interval.upper / one.interval.lower) / (2 * normal_quantile_above(0.025));
  }

  // The cases of the tested family that are significant beyond the margin and reach the minimum effect.
  Indices found_in(const Indices& family, double level, double sign) {
    std::vector<double> p;
    for (const size_t i : family) p.push_back(at(i).p);
    const std::vector<double> after = corrected(p);
    Indices found;
    for (size_t k = 0; k < family.size(); ++k) {
      CaseDecision& one = at(family[k]);
      one.corrected_p = after[k], one.placement = false;
      const double effect = sign * std::log(one.ratio);
      if (after[k] > level || effect < std::log1p(one.minimum_effect)) continue;
      one.placement = !cases_[family[k]].control && may_be_placement(effect, error_of(one), cases_.size());
      if (!one.placement) found.push_back(family[k]);
    }
    if (sign > 0)
      for (const size_t i : family)
        if (at(i).placement) at(i).verdict = Verdict::inconclusive;
    return found;
  }

  // The controls are always measured with the first family, so that they are exposed to the same disturbances.
  void confirm(const Indices& family) {
    Indices fresh;
    for (const size_t i : family)
      if (at(i).stage != Stage::confirmed) fresh.push_back(i);
    for (size_t i = 0; i < cases_.size(); ++i)
      if (cases_[i].control && at(i).stage == Stage::screened) fresh.push_back(i);
    test(fresh, rules_.confirm_pairs, Stage::confirmed, +1);
    for (const size_t i : found_in(family, rules_.alpha_confirm, +1)) at(i).verdict = Verdict::regression;
  }

  // If too many cases are routed, a random sample and the slowest ones are measured. If half of the random sample is
  // confirmed, it decides for all cases that were not measured; otherwise all are measured.
  Indices widespread_or_all(const Indices& routed) {
    Indices shuffled = routed;
    std::mt19937_64 random(seed_);
    // std::shuffle may give different orders in different standard libraries.
    for (size_t i = shuffled.size() - 1; i > 0; --i) std::swap(shuffled[i], shuffled[random() % (i + 1)]);
    Indices at_random(shuffled.begin(),
                      shuffled.begin() + static_cast<std::ptrdiff_t>(std::min(kSampleAtRandom, shuffled.size())));
    Indices others(shuffled.begin() + static_cast<std::ptrdiff_t>(at_random.size()), shuffled.end());
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return at(a).screened > at(b).screened; });
    others.resize(std::min(kSampleOfSlowest, others.size()));
    Indices sample = at_random;
    sample.insert(sample.end(), others.begin(), others.end());
    confirm(sample);
    const auto confirmed = std::count_if(at_random.begin(), at_random.end(), [&](size_t i) {
      return at(i).verdict == Verdict::regression || at(i).placement;
    });
    decision_.widespread = 2 * static_cast<size_t>(confirmed) >= at_random.size();
    if (!decision_.widespread) {
      // Judged again, together with all routed cases.
      for (const size_t i : sample) at(i).verdict = Verdict::pass, at(i).placement = false;
      return routed;
    }
    // An offset that all cases of a build share counts as one, so the limit for the common effect is that of one case.
    const bool placement = may_be_placement(decision_.global_shift, 0, 1);
    for (const size_t i : routed) {
      if (at(i).stage != Stage::routed && !at(i).placement) continue;
      at(i).placement = placement;
      at(i).verdict = placement ? Verdict::inconclusive : Verdict::regression;
    }
    return sample;
  }

  void watch_controls() {
    const auto controls = static_cast<double>(
        std::count_if(cases_.begin(), cases_.end(), [](const JudgedCase& one) { return one.control; }));
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (!cases_[i].control) continue;
      const double shift = std::fabs(std::log(at(i).ratio));
      decision_.largest_control = std::max(decision_.largest_control, shift);
      // On a noisy machine, the estimate of an unchanged control is often beyond the limit, so it must be significant.
      at(i).moved = shift > rules_.control_limit && at(i).p_moved * controls <= rules_.alpha_control;
    }
  }

  void extend(const Indices& confirmed) {
    Indices open;
    for (const size_t i : confirmed)
      if (at(i).verdict != Verdict::regression && !at(i).placement &&
          std::log(at(i).ratio) >= std::log1p(rules_.extend_from))
        open.push_back(i);
    test(open, rules_.extend_pairs, Stage::extended, +1);
    for (const size_t i : found_in(open, rules_.alpha_extend, +1)) at(i).verdict = Verdict::regression;
    for (const size_t i : open)
      if (at(i).verdict != Verdict::regression && std::log(at(i).ratio) >= std::log1p(rules_.extend_from))
        at(i).verdict = Verdict::inconclusive;
  }

  void look_for_improvements(const Indices& faster) {
    Indices family;
    for (const size_t i : faster)
      if (at(i).stage == Stage::screened) family.push_back(i);
    test(family, rules_.confirm_pairs, Stage::confirmed, -1);
    for (const size_t i : found_in(family, rules_.alpha_confirm, -1)) at(i).improved = true;
  }

  void conclude() {
    const auto any = [&](Verdict verdict, bool of_controls) {
      for (size_t i = 0; i < cases_.size(); ++i)
        if (at(i).verdict == verdict && of_controls == cases_[i].control) return true;
      return false;
    };
    const bool any_moved =
        std::any_of(decision_.cases.begin(), decision_.cases.end(), [](const CaseDecision& one) { return one.moved; });
    if (any(Verdict::regression, true) || any_moved)
      decision_.verdict = Verdict::environment_suspect;
    else if (any(Verdict::regression, false))
      decision_.verdict = Verdict::regression;
    else if (any(Verdict::inconclusive, false))
      decision_.verdict = Verdict::inconclusive;
  }

  std::span<const JudgedCase> cases_;
  const DecisionRules& rules_;
  PairSource& source_;
  uint64_t seed_;
  Decision decision_;
};

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::regression:
      return "REGRESSION";
    case Verdict::inconclusive:
      return "INCONCLUSIVE";
    case Verdict::environment_suspect:
      return "ENV_SUSPECT";
  }
  return "";
}

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return 0;
    case Verdict::regression:
      return 1;
    default:
      return 3;
  }
}

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::screened:
      return "screened";
    case Stage::routed:
      return "routed";
    case Stage::confirmed:
      return "confirmed";
    case Stage::extended:
      return "extended";
  }
  return "";
}

void check(const DecisionRules& rules) {
  if (rules.screen_pairs < 1)
    throw ReportError(fmt::format("screen pairs = {}: nothing would be measured; at least 1", rules.screen_pairs));
  const auto check_stage = [&](const char* name, int pairs, double level) {
    if (rules.layouts > 0) return;  // decide() knows the number of cases
    const double needed = level / static_cast<double>(std::max<size_t>(rules.most_routed, 1));
    if (pairs >= 1 && least_signed_rank_p(pairs) <= needed) return;
    throw ReportError(fmt::format(
        "{} = {} can find nothing: the smallest p value of that many pairs is {:.2g}, and up to {} cases that seem "
        "slower in the screening, at level {}, need {:.2g}; use {} pairs or more",
        name, pairs, pairs < 1 ? 1 : least_signed_rank_p(pairs), rules.most_routed, level, needed,
        static_cast<int>(std::ceil(-std::log2(needed)))));
  };
  check_stage("confirm pairs", rules.confirm_pairs, rules.alpha_confirm);
  check_stage("extend pairs", rules.extend_pairs, rules.alpha_extend);
}

std::vector<bool> balanced_order(int pairs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> first;
  for (int pair = 0; pair < pairs; ++pair) first.push_back(pair % 2 ? !first.back() : random() >> 63 != 0);
  return first;
}

Decision decide(std::span<const JudgedCase> cases, const DecisionRules& rules, PairSource& source, uint64_t seed) {
  check(rules);
  if (rules.layouts > 0) {
    const double needed =
        std::min(rules.alpha_confirm, rules.alpha_extend) / static_cast<double>(std::max<size_t>(cases.size(), 1));
    const int replicates = std::min({rules.layouts, rules.confirm_pairs, rules.extend_pairs});
    if (replicates < 1 || least_signed_rank_p(replicates) > needed)
      throw ReportError(
          fmt::format("{} layouts in {} and {} pairs can find nothing: {} cases need {} layouts of each build, and as "
                      "many pairs",
                      rules.layouts, rules.confirm_pairs, rules.extend_pairs, cases.size(),
                      static_cast<int>(std::ceil(-std::log2(needed)))));
  }
  return Judge(cases, rules, source, seed).run();
}

}  // namespace halfmark::reports
