#include "reports/gate/gate_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kReferenceFamily = "reference.";

using ReferencePlace = std::pair<std::string_view, std::string_view>;  // metric, at
using ReferenceValues = std::map<ReferencePlace, double>;

ReferenceValues reference_values(const Record& record) {
  ReferenceValues numbers;
  for (const Measurement& one : record.measurements)
    if (is_reference(one)) numbers.try_emplace({one.metric, one.at}, one.value);
  return numbers;
}

std::string words_about(const ReferencePlace& place) {
  return place.second.empty() ? std::string(place.first) : fmt::format("{} at {}", place.first, place.second);
}

std::string words_about(const std::vector<ReferencePlace>& places) {
  std::vector<std::string> texts;
  for (const ReferencePlace& place : places) texts.push_back(words_about(place));
  return some_of(texts);
}

std::string_view group_of(std::string_view at) { return at.substr(0, at.find('/')); }

bool is_of_a_tensor(std::string_view metric) { return metric == "reference.norm" || metric == "reference.projection"; }

// The largest finite norm: of the places of the same kind, or of all for a number that is not of a tensor.
double largest_norm(const ReferenceValues& numbers, const ReferencePlace& place) {
  double largest = 0;
  for (const auto& [other, value] : numbers) {
    if (other.first != "reference.norm" || !std::isfinite(value)) continue;
    if (!is_of_a_tensor(place.first) || group_of(other.second) == group_of(place.second))
      largest = std::max(largest, value);
  }
  return largest;
}

double tolerance_of(const ReferenceValues& base, const ReferencePlace& place, double value) {
  if (place.first == kReferenceAll) return Acknowledgements::kReferenceAgreement;
  double size = std::fabs(value);
  // A projection is a sum with cancellation: its rounding errors are relative to the norm.
  if (is_of_a_tensor(place.first))
    if (const auto norm = base.find({"reference.norm", place.second}); norm != base.end())
      size = std::max(size, std::fabs(norm->second));
  return kReferenceShare * size + kReferenceNoise * largest_norm(base, place);
}

struct ChangedReference {
  ReferencePlace place;
  double base, found, tolerance;
  // A number that became NaN or infinite comes first, the sum of all comes last.
  double times() const {
    if (place.first == kReferenceAll) return 0;
    const double times = std::fabs(found - base) / tolerance;
    return std::isnan(times) ? HUGE_VAL : times;
  }
};

struct ReferenceDifferences {
  std::vector<ChangedReference> changed;                // the worst first
  std::vector<ReferencePlace> missing, added, useless;  // useless: NaN or infinite in both
};

ReferenceDifferences reference_differences(const ReferenceValues& base, const ReferenceValues& found) {
  ReferenceDifferences all;
  for (const auto& [place, value] : base) {
    const auto other = found.find(place);
    if (other == found.end()) {
      all.missing.push_back(place);
    } else if (!std::isfinite(value) && !std::isfinite(other->second)) {
      all.useless.push_back(place);
    } else {
      const ChangedReference one{place, value, other->second, tolerance_of(base, place, value)};
      if (!(std::fabs(one.found - one.base) <= one.tolerance)) all.changed.push_back(one);
    }
  }
  for (const auto& [place, value] : found)
    if (!base.contains(place)) all.added.push_back(place);
  std::stable_sort(all.changed.begin(), all.changed.end(),
                   [](const ChangedReference& a, const ChangedReference& b) { return a.times() > b.times(); });
  return all;
}

void describe_change(const Record& base, const Record& found, const ReferenceDifferences& all,
                     Acknowledgements& acknowledgements, std::string_view today, JudgedLine& line) {
  const ChangedReference& worst = all.changed.front();
  line.outcome = Outcome::breach;
  line.metric = worst.place.first, line.at = worst.place.second;
  line.base = worst.base, line.found = worst.found, line.limit = worst.base + worst.tolerance;
  const double size = std::fabs(worst.base);
  line.words = fmt::format("{} is {}, was {}: the mathematics changed; rounding in fp64 explains {:.1e}",
                           words_about(worst.place), worst.found, worst.base, worst.tolerance);
  if (size > 0 && std::isfinite(worst.found))
    line.words += fmt::format(" and this is {:.1e}", std::fabs(worst.found - worst.base));
  std::vector<ReferencePlace> others;
  for (const ChangedReference& one : all.changed)
    if (&one != &worst) others.push_back(one.place);
  if (!others.empty()) line.words += "; also " + words_about(others);
  if (!all.missing.empty()) line.words += "; missing now: " + words_about(all.missing);
  const Measurement *before = find(base, kReferenceAll), *now = find(found, kReferenceAll);
  const bool comparable = before && now && std::isfinite(before->value) && std::isfinite(now->value);
  // A missing place and a NaN are not a change that somebody could have reviewed.
  if (!comparable || !all.missing.empty() || !std::isfinite(worst.found)) return;
  if (const Acknowledgement* entry = acknowledgements.find_reference(found.id, before->value, now->value, today)) {
    line.outcome = Outcome::acknowledged;
    line.words += fmt::format("; acknowledged until {}: {}", entry->expires, entry->reason);
  } else {
    line.words +=
        fmt::format("; if this is intended, acknowledge {} from {} to {}", kReferenceAll, before->value, now->value);
  }
}

// The first number whose unit, direction or kind is different; "" if there is none.
std::string other_definition(const Record& base, const Record& found) {
  for (const Measurement& one : base.measurements) {
    if (!is_reference(one)) continue;
    const Measurement* now = find(found, one.metric, one.at);
    if (now && (now->unit != one.unit || now->better != one.better || now->kind != one.kind))
      return words_about({one.metric, one.at});
  }
  return "";
}

}  // namespace

bool is_reference(const Measurement& measurement) { return measurement.metric.starts_with(kReferenceFamily); }

void judge_reference(const Record& base, const Record& found, std::string_view not_comparable,
                     Acknowledgements& acknowledgements, std::string_view today, Judgement& judgement) {
  const ReferenceValues before = reference_values(base), after = reference_values(found);
  if (before.empty() && after.empty()) return;
  JudgedLine line;
  line.id = found.id, line.question = Question::reference, line.rerun = found.repro.empty() ? base.repro : found.repro;
  const ReferenceDifferences all = reference_differences(before, after);
  if (after.empty()) {
    line.outcome = Outcome::lost;
    line.words = "the numbers of the fp64 reference are missing, so that a changed layer would not be seen";
  } else if (before.empty()) {
    line.outcome = Outcome::inconclusive;
    line.words = "the base has no numbers of the fp64 reference, so the mathematics was not judged; make a new base";
  } else if (!not_comparable.empty()) {
    line.outcome = Outcome::inconclusive;
    line.words = fmt::format("the mathematics was not judged: {}", not_comparable);
  } else if (const std::string other = other_definition(base, found); !other.empty()) {
    line.outcome = Outcome::lost;
    line.words = fmt::format("{} cannot be compared: its unit, direction or kind is different", other);
  } else if (!all.changed.empty()) {
    describe_change(base, found, all, acknowledgements, today, line);
  } else if (!all.missing.empty()) {
    line.outcome = Outcome::lost;
    line.words = fmt::format("numbers of the fp64 reference are missing: {}", words_about(all.missing));
  } else if (!all.added.empty()) {
    line.outcome = Outcome::inconclusive;
    line.words = fmt::format("the base has no {}, so that was not judged; make a new base", words_about(all.added));
  } else if (!all.useless.empty()) {
    line.outcome = Outcome::inconclusive;
    line.words = fmt::format("{} is NaN or infinite in both reports, which proves nothing", words_about(all.useless));
  } else {
    line.words =
        fmt::format("{} number{} of the fp64 reference as in the base", before.size(), before.size() == 1 ? "" : "s");
  }
  line.words = printable(line.words);
  judgement.lines.push_back(std::move(line));
}

}  // namespace halfmark::reports
