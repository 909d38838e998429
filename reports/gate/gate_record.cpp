#include "reports/gate/gate_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_numbers.h"
#include "reports/gate/gate_reference.h"
#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

using Place = std::pair<std::string_view, std::string_view>;  // metric, at
using Numbers = std::map<Place, const Measurement*>;

Numbers numbers_of(const Record& record) {
  Numbers numbers;
  for (const Measurement& one : record.measurements)
    if (!is_reference(one)) numbers.try_emplace({one.metric, one.at}, &one);
  return numbers;
}

Question question_of(std::string_view metric) {
  return family_of(metric) == "memory" ? Question::memory : Question::accuracy;
}

// "; grown at train: casts +2 MiB": the parts by which a sum has grown.
std::string parts_that_grew(const Measurement& whole, const Numbers& base, const Record& found) {
  std::vector<std::pair<double, std::string>> grown;
  const std::string prefix = whole.metric + ".";
  for (const Measurement& part : found.measurements) {
    if (!part.metric.starts_with(prefix) || part.at != whole.at) continue;
    const auto before = base.find({part.metric, part.at});
    const double more = part.value - (before == base.end() ? 0 : before->second->value);
    if (more > 0)
      grown.emplace_back(-more, fmt::format("{} +{}", part.metric.substr(prefix.size()), human(more, part.unit)));
  }
  std::sort(grown.begin(), grown.end());
  std::vector<std::string> names;
  for (const auto& [size, name] : grown) names.push_back(name);
  if (names.empty()) return "";
  return fmt::format("; grown{}{}: {}", whole.at.empty() ? "" : " at ", whole.at, some_of(names));
}

// The first difference in unit, direction, kind or bound that makes two measurements incomparable; "" if there is none.
// A bound in the new report only is not a difference: it makes the judgement stricter.
std::string definition_difference(const Measurement& base, const Measurement& found) {
  if (base.unit != found.unit) return fmt::format("its unit is {}, was {}", found.unit, base.unit);
  if (base.better != found.better) return "its direction of improvement is different";
  if (base.kind != found.kind) return "its kind is different (exact, bounded, sampled, information)";
  if (base.bound && !found.bound) return "it has no bound of its own any more";
  if (base.standard_error && !found.standard_error) return "it has no standard error any more";
  // Of a share of 1,000 samples it is at most 0.016. Wider ones would make the limit of the rule wide.
  constexpr double kWideError = 0.016, kMostWidening = 2;
  if (found.standard_error && !(*found.standard_error >= 0 && std::isfinite(*found.standard_error)))
    return fmt::format("its standard error is {}", human(*found.standard_error, "1"));
  if (base.standard_error && *found.standard_error > std::max(kWideError, kMostWidening * *base.standard_error))
    return fmt::format("its standard error is {}, was {}", human(*found.standard_error, "1"),
                       human(*base.standard_error, "1"));
  // A bound follows from the inputs, so that another seed may move it a little.
  constexpr double kMostGrowth = 2;
  if (base.bound && (found.better == Better::higher ? *found.bound < *base.bound / kMostGrowth
                                                    : *found.bound > kMostGrowth * std::fabs(*base.bound)))
    return fmt::format("its own bound is {}, was {}", human(*found.bound, found.unit), human(*base.bound, base.unit));
  return "";
}

// Shares of values that are zero here: as stored, or beside the reference.
constexpr std::string_view kZeroShares[] = {"error.zeroed", "error.arithmetic.zeroed", "range.zero", "range.underflow",
                                            "range.cast_underflow"};

struct PlacedVerdict {
  std::string at, unit;
  NumberVerdict verdict;
};

class RecordJudge {
 public:
  RecordJudge(const Record& base, const Record& found, EnvironmentDifference& environment, GateContext& context,
              Judgement& judgement)
      : base_(base),
        found_(found),
        environment_(environment),
        same_keys_(environment.in(context.rules.bits_keys, found.device).empty()),
        context_(context),
        judgement_(judgement),
        before_(numbers_of(base)),
        after_(numbers_of(found)) {}

  void run() {
    for (const auto& [place, one] : after_) {
      const auto other = before_.find(place);
      look_at(*one, other == before_.end() ? nullptr : other->second, one);
    }
    for (const auto& [place, one] : before_)
      if (!after_.contains(place)) look_at(*one, one, nullptr);
    for (const auto& [metric, sum] : sums_) take(*sum.rule, sum.base, sum.found);
    write_lines();
    write_passes();
  }

 private:
  struct Sum {
    const NumberRule* rule;
    Measurement base, found;
  };

  // Either may be null; `known` is the found one if it exists, else the base's.
  void look_at(const Measurement& known, const Measurement* base, const Measurement* found) {
    const NumberRule* rule = context_.rules.rule_for(found_, known);
    if (!rule) {
      if (known.kind == Kind::exact || known.kind == Kind::bounded) context_.unruled.insert(known.metric);
      if (found) take_own_bound(*found);
      return;
    }
    if (rule->judge == Judging::information && rule->untrusted_above == HUGE_VAL && rule->untrusted_below == -HUGE_VAL)
      return;
    Measurement absent = known;
    absent.value = rule->absent.value_or(0);
    absent.bound.reset();
    if (rule->together) {
      const auto [sum, is_new] = sums_.try_emplace(known.metric, Sum{rule, known, known});
      if (is_new) {
        sum->second.base.at = sum->second.found.at = "";
        sum->second.base.value = sum->second.found.value = 0;
      }
      sum->second.base.value += base ? base->value : absent.value;
      sum->second.found.value += found ? found->value : absent.value;
      return;
    }
    if (!found && !rule->absent) return lose(*rule, *base, "is not measured any more");
    if (base && found) {
      std::string why = definition_difference(*base, *found);
      if (why.empty() && has_histogram(*rule, *base, base_) && !has_histogram(*rule, *found, found_))
        why = fmt::format("{} at that place is missing, so the limit is unknown", rule->elements_in);
      if (!why.empty()) return lose(*rule, *base, "cannot be compared: " + why);
    }
    if (!base && !rule->absent) return take_own_bound(*found);
    take(*rule, base ? *base : absent, found ? *found : absent);
  }

  void take(const NumberRule& rule, const Measurement& base, const Measurement& found) {
    const bool proved = base_.determinism.proof() == Determinism::Proof::proved &&
                        found_.determinism.proof() == Determinism::Proof::proved;
    NumberVerdict verdict = judge_number(rule, base, found, {base_, found_, proved});
    if (verdict.outcome == Outcome::information) return;
    if (verdict.outcome == Outcome::pass)
      if (auto wider = judge_spread(base, found)) verdict = std::move(*wider);
    const Question question = question_of(found.metric);
    ++judged_[question];
    if (verdict.wide_ratio > 0) {
      ++wide_[question], ++context_.wide_limits;
      context_.widest = std::max(context_.widest, verdict.wide_ratio);
    }
    if (!verdict.remark.empty()) remarks_[found.metric].push_back(verdict.remark);
    if (verdict.outcome == Outcome::pass || (verdict.outcome == Outcome::changed && !same_keys_)) {
      const double by = is_worse(rule, base, found);
      if (by > 0)
        context_.unjudged.note(Unjudged::worse_within, fmt::format("{} of {}", place_of(found), found_.id), by);
      return;
    }
    if (verdict.outcome == Outcome::improved) question_improvement(verdict, found);
    if (verdict.outcome == Outcome::breach || verdict.outcome == Outcome::changed)
      verdict.parts = parts_that_grew(found, before_, found_);
    acknowledge(verdict, base, found);
    doubt(rule, verdict, found);
    if (verdict.outcome == Outcome::changed && context_.options.strict_bits) verdict.outcome = Outcome::breach;
    keep(found, std::move(verdict));
  }

  // How much larger the error or the distance became, as a factor less 1; 0 if it is not worse and kept its sign.
  static double is_worse(const NumberRule& rule, const Measurement& base, const Measurement& found) {
    const double before = rule.magnitude ? std::fabs(base.value) : base.value;
    const double after = rule.magnitude ? std::fabs(found.value) : found.value;
    double more = found.better == Better::higher && !rule.magnitude ? before - after : after - before;
    if (found.better == Better::neither && !rule.magnitude) more = std::fabs(more);
    const bool crossed = found.better == Better::lower && before >= 0 && after < 0;
    if (crossed) more = std::fabs(more);
    if (!(more > 0)) return 0;
    return before == 0 ? HUGE_VAL : more / std::fabs(before);
  }

  // A tensor that lost its values has small errors, no infinities and much headroom. That is no improvement.
  void question_improvement(NumberVerdict& verdict, const Measurement& found) {
    for (const std::string_view metric : kZeroShares) {
      const auto now = after_.find({metric, found.at}), then = before_.find({metric, found.at});
      if (now == after_.end()) continue;
      const double share = now->second->value, was = then == before_.end() ? 0 : then->second->value;
      if (!(share > was) && share < 1) continue;
      verdict.outcome = Outcome::untrusted;
      verdict.words += fmt::format("; but {} there is {}, was {}: values that became zero improve nothing", metric,
                                   human_share(share), human_share(was));
      return;
    }
    if (std::isfinite(found.value)) return;
    verdict.outcome = Outcome::untrusted;
    verdict.times_limit = HUGE_VAL;  // shown before other places
    verdict.words += "; an infinite value improves nothing: all values of the tensor may be zero";
  }

  void acknowledge(NumberVerdict& verdict, const Measurement& base, const Measurement& found) {
    const bool can_be = verdict.outcome == Outcome::changed ||
                        (verdict.outcome == Outcome::breach && !verdict.own_bound && !std::isnan(found.value));
    if (!can_be) return;
    const Acknowledgement* entry =
        context_.acknowledgements.find_number(found_.id, base, found.value, context_.options.today);
    if (!entry) return;
    verdict.outcome = Outcome::acknowledged;
    verdict.words += fmt::format("; acknowledged until {}: {}", entry->expires, entry->reason);
  }

  // A number that another processor or library changes without a change of the code. NaN and a broken bound are no doubt.
  void doubt(const NumberRule& rule, NumberVerdict& verdict, const Measurement& found) {
    if (verdict.outcome != Outcome::breach || verdict.own_bound || std::isnan(found.value)) return;
    const std::vector<std::string>& facts = environment_.in(rule.undecided_across, found_.device);
    if (facts.empty()) return;
    verdict.outcome = Outcome::inconclusive;
    verdict.words += fmt::format("; undecided, because {} differ{} and may explain it: measure both on one machine",
                                 some_of(facts), facts.size() == 1 ? "s" : "");
  }

  void take_own_bound(const Measurement& found) {
    auto verdict = judge_own_bound(found);
    if (found.bound) ++judged_[question_of(found.metric)];
    if (verdict) keep(found, std::move(*verdict));
  }

  // A missing number is lost, because it might be the one that would have failed. The same holds for a number whose
  // definition differs between the reports.
  void lose(const NumberRule& rule, const Measurement& base, const std::string& what) {
    if (rule.judge == Judging::information) return;
    NumberVerdict verdict;
    verdict.outcome = Outcome::lost;
    verdict.base = base.value;
    verdict.words = fmt::format("{}{}{} was {} and {}", base.metric, base.at.empty() ? "" : " at ", base.at,
                                human(base.value, base.unit), what);
    keep(base, std::move(verdict));
  }

  void keep(const Measurement& one, NumberVerdict verdict) {
    auto& lines = found_lines_[{one.metric, verdict.outcome}];
    lines.push_back({one.at, one.unit, std::move(verdict)});
  }

  // One line per metric: the numbers of the worst place, and the names of the other places.
  void write_lines() {
    for (auto& [key, places] : found_lines_) {
      const auto worst = std::max_element(places.begin(), places.end(), [](const auto& a, const auto& b) {
        return a.verdict.times_limit < b.verdict.times_limit;
      });
      JudgedLine line;
      line.id = found_.id, line.rerun = found_.repro.empty() ? base_.repro : found_.repro;
      line.question = question_of(key.first), line.outcome = key.second;
      line.metric = key.first, line.at = worst->at, line.unit = worst->unit;
      line.base = worst->verdict.base, line.found = worst->verdict.found, line.limit = worst->verdict.limit;
      line.words = worst->verdict.words;
      std::vector<std::string> others;
      std::string parts = worst->verdict.parts;  // not every place has parts
      for (auto place = places.begin(); place != places.end(); ++place)
        if (place != worst) {
          others.push_back(place->at.empty() ? "the whole case" : place->at);
          if (parts.empty()) parts = place->verdict.parts;
        }
      if (!others.empty()) line.words += "; also at " + some_of(others);
      line.words = printable(line.words + parts);
      with_lines_.insert(line.question);
      judgement_.lines.push_back(std::move(line));
    }
    for (const auto& [metric, lines] : remarks_)
      judgement_.remarks.push_back(
          fmt::format("{}: {}{}", printable(found_.id), printable(lines.front()),
                      lines.size() > 1 ? fmt::format("; also at {} more places", lines.size() - 1) : ""));
  }

  void write_passes() {
    for (const auto& [question, count] : judged_) {
      if (with_lines_.contains(question)) continue;
      JudgedLine line;
      line.id = found_.id, line.question = question, line.rerun = found_.repro;
      line.words = fmt::format("{} number{} within the rules", count, count == 1 ? "" : "s");
      if (const size_t wide = wide_[question]; wide > 0)
        line.words +=
            fmt::format("; {} of them {} too few values for a narrow limit", wide, wide == 1 ? "has" : "have");
      judgement_.lines.push_back(std::move(line));
    }
  }

  const Record &base_, &found_;
  EnvironmentDifference& environment_;
  bool same_keys_;
  GateContext& context_;
  Judgement& judgement_;
  Numbers before_, after_;
  std::map<std::string, Sum> sums_;
  std::map<std::pair<std::string, Outcome>, std::vector<PlacedVerdict>> found_lines_;
  std::map<std::string, std::vector<std::string>> remarks_;
  std::map<Question, size_t> judged_, wide_;
  std::set<Question> with_lines_;
};

}  // namespace

void judge_record(const Record& base, const Record& found, EnvironmentDifference& environment, GateContext& context,
                  Judgement& judgement) {
  RecordJudge(base, found, environment, context, judgement).run();
}

}  // namespace halfmark::reports
