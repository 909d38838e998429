#include "reports/gate/gate_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_numbers.h"
#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

using Place = std::pair<std::string_view, std::string_view>;  // metric, at
using Numbers = std::map<Place, const Measurement*>;

Numbers numbers_of(const Record& record) {
  Numbers numbers;
  for (const Measurement& one : record.measurements) numbers.try_emplace({one.metric, one.at}, &one);
  return numbers;
}

Question question_of(std::string_view metric) {
  return family_of(metric) == "memory" ? Question::memory : Question::accuracy;
}

// "; grown at train: casts +2 MiB": what a number that sums up others owes to which of them.
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

struct PlacedFinding {
  std::string at, unit;
  NumberFinding finding;
};

class RecordJudge {
 public:
  RecordJudge(const Record& base, const Record& found, bool same_keys, GateContext& context, Judgement& judgement)
      : base_(base),
        found_(found),
        same_keys_(same_keys),
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

  // Either may be missing; `known` is the later of the two.
  void look_at(const Measurement& known, const Measurement* base, const Measurement* found) {
    const NumberRule* rule = context_.rules.rule_for(found_, known);
    if (!rule) {
      if (known.kind == Kind::exact || known.kind == Kind::bounded) context_.unruled.insert(known.metric);
      if (found) take_own_bound(*found);
      return;
    }
    if (rule->judge == Judging::information && rule->untrusted_above == HUGE_VAL) return;
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
    if (!found && !rule->absent) return lose(*rule, *base);
    if (!base && !rule->absent) return take_own_bound(*found);
    take(*rule, base ? *base : absent, found ? *found : absent);
  }

  void take(const NumberRule& rule, const Measurement& base, const Measurement& found) {
    const bool proved = base_.determinism.proof() == Determinism::Proof::proved &&
                        found_.determinism.proof() == Determinism::Proof::proved;
    NumberFinding finding = judge_number(rule, base, found, {base_, found_, proved});
    if (finding.outcome == Outcome::information) return;
    if (finding.outcome == Outcome::pass)
      if (auto wider = judge_spread(base, found)) finding = std::move(*wider);
    ++judged_[question_of(found.metric)];
    if (!finding.remark.empty()) remarks_[found.metric].push_back(finding.remark);
    if (finding.outcome == Outcome::pass || (finding.outcome == Outcome::changed && !same_keys_)) return;
    if (finding.outcome == Outcome::breach || finding.outcome == Outcome::changed)
      finding.parts = parts_that_grew(found, before_, found_);
    acknowledge(finding, base, found);
    if (finding.outcome == Outcome::changed && context_.options.strict_bits) finding.outcome = Outcome::breach;
    keep(found, std::move(finding));
  }

  void acknowledge(NumberFinding& finding, const Measurement& base, const Measurement& found) {
    const bool can_be = finding.outcome == Outcome::changed ||
                        (finding.outcome == Outcome::breach && !finding.own_bound && !std::isnan(found.value));
    if (!can_be) return;
    const Acknowledgement* entry =
        context_.acknowledgements.find_number(found_.id, base, found.value, context_.options.today);
    if (!entry) return;
    finding.outcome = Outcome::acknowledged;
    finding.words += fmt::format("; acknowledged until {}: {}", entry->expires, entry->reason);
  }

  void take_own_bound(const Measurement& found) {
    auto finding = judge_own_bound(found);
    if (found.bound) ++judged_[question_of(found.metric)];
    if (finding) keep(found, std::move(*finding));
  }

  // A number that is gone was perhaps the one that would have failed.
  void lose(const NumberRule& rule, const Measurement& base) {
    if (rule.judge == Judging::information) return;
    NumberFinding finding;
    finding.outcome = Outcome::lost;
    finding.base = base.value;
    finding.words = fmt::format("{}{}{} was {} and is not measured any more", base.metric,
                                base.at.empty() ? "" : " at ", base.at, human(base.value, base.unit));
    keep(base, std::move(finding));
  }

  void keep(const Measurement& one, NumberFinding finding) {
    auto& lines = found_lines_[{one.metric, finding.outcome}];
    lines.push_back({one.at, one.unit, std::move(finding)});
  }

  // The worst place of a metric has the word, the others are named.
  void write_lines() {
    for (auto& [key, places] : found_lines_) {
      const auto worst = std::max_element(places.begin(), places.end(), [](const auto& a, const auto& b) {
        return a.finding.times_limit < b.finding.times_limit;
      });
      JudgedLine line;
      line.id = found_.id, line.rerun = found_.repro.empty() ? base_.repro : found_.repro;
      line.question = question_of(key.first), line.outcome = key.second;
      line.metric = key.first, line.at = worst->at, line.unit = worst->unit;
      line.base = worst->finding.base, line.found = worst->finding.found, line.limit = worst->finding.limit;
      line.words = worst->finding.words;
      std::vector<std::string> others;
      std::string parts = worst->finding.parts;  // not every place is divided into parts
      for (auto place = places.begin(); place != places.end(); ++place)
        if (place != worst) {
          others.push_back(place->at.empty() ? "the whole case" : place->at);
          if (parts.empty()) parts = place->finding.parts;
        }
      if (!others.empty()) line.words += "; likewise at " + some_of(others);
      line.words = printable(line.words + parts);
      spoken_.insert(line.question);
      judgement_.lines.push_back(std::move(line));
    }
    for (const auto& [metric, lines] : remarks_)
      judgement_.remarks.push_back(
          fmt::format("{}: {}{}", printable(found_.id), printable(lines.front()),
                      lines.size() > 1 ? fmt::format("; likewise at {} more places", lines.size() - 1) : ""));
  }

  void write_passes() {
    for (const auto& [question, count] : judged_) {
      if (spoken_.contains(question)) continue;
      JudgedLine line;
      line.id = found_.id, line.question = question, line.rerun = found_.repro;
      line.words = fmt::format("{} number{} within the rules", count, count == 1 ? "" : "s");
      judgement_.lines.push_back(std::move(line));
    }
  }

  const Record &base_, &found_;
  bool same_keys_;
  GateContext& context_;
  Judgement& judgement_;
  Numbers before_, after_;
  std::map<std::string, Sum> sums_;
  std::map<std::pair<std::string, Outcome>, std::vector<PlacedFinding>> found_lines_;
  std::map<std::string, std::vector<std::string>> remarks_;
  std::map<Question, size_t> judged_;
  std::set<Question> spoken_;
};

}  // namespace

void judge_record(const Record& base, const Record& found, bool same_keys, GateContext& context, Judgement& judgement) {
  RecordJudge(base, found, same_keys, context, judgement).run();
}

}  // namespace halfmark::reports
