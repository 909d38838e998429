#include "reports/gate/unjudged.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_numbers.h"
#include "reports/gate/gate_reference.h"
#include "reports/gate/time_limits.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr double kMovedBy = 2;  // numbers of kind information may move: only a factor of 2 is worth a word

std::string_view words_of(Unjudged kind) {
  switch (kind) {
    case Unjudged::not_measured:
      return "cases without a measurement in both reports";
    case Unjudged::lost_proof:
      return "proved to be deterministic in the base and not here, so that other bits prove nothing";
    case Unjudged::fewer_processes:
      return "measured in fewer processes than the base";
    case Unjudged::unproved_bits:
      return "different bits that were not judged, because determinism is not proved (halfmark run --processes 2)";
    case Unjudged::no_fingerprint:
      return "a fingerprint in one report only, where bits are not compared";
    case Unjudged::lost_curve:
      return "curves of the base that are missing";
    case Unjudged::other_curve:
      return "curves that changed by a factor of 2 or more, or in their length, places or units, or are no numbers any "
             "more";
    case Unjudged::other_kernels:
      return "other kernels ran, or their list is missing";
    case Unjudged::lost_expectation:
      return "results of a negative control that are missing or different";
    case Unjudged::lost_numerics:
      return "the statement how exact the arithmetic is changed";
    case Unjudged::lost_information:
      return "numbers for information that are missing";
    case Unjudged::added_number:
      return "numbers that the base does not have, so that only their own bounds were judged";
    case Unjudged::other_definition:
      return "numbers for information with another unit, direction or kind";
    case Unjudged::moved_information:
      return "numbers that no rule judges and that changed (those of kind information by a factor of 2 or more)";
    case Unjudged::fewer_samples:
      return "numbers with fewer samples than in the base, or without their interval";
    case Unjudged::looser_bound:
      return "numbers whose own bound became wider";
    case Unjudged::moved_interval:
      return "ratios whose intervals do not overlap or became twice as wide (halfmark ab decides about times)";
    case Unjudged::no_control:
      return "times called ok although their control, the same work twice, does not come out as 1";
    case Unjudged::no_reference:
      return "the mathematics was not judged, because neither report has numbers of the fp64 reference (reference.*)";
    case Unjudged::edited:
      return "the fingerprint is that of the base, but curves differ: was a report edited?";
    case Unjudged::new_nan:
      return "numbers that are NaN in cases without a base";
    case Unjudged::worse_within:
      return "worse than the base, or below zero, within the limits";
  }
  return "";
}

// The factor by which a number changed; infinite for a change of sign, from or to zero, and to a value that is no number.
double factor_between(double base, double found) {
  if (base == found || (std::isnan(base) && std::isnan(found))) return 1;
  const double ratio = found / base;
  if (!(ratio > 0) || !std::isfinite(ratio)) return HUGE_VAL;
  return std::max(ratio, 1 / ratio);
}

// Numbers about the machine during a time measurement. They differ between any two runs and say nothing about the code.
bool is_about_the_machine(std::string_view metric) {
  return metric.starts_with("contention.") || metric.starts_with("timing.") || metric.starts_with("device.");
}

// Exists only where a GPU gave that reason.
constexpr std::string_view kComesAndGoes = "device.slowed_by";

// Judged when it was measured, by its interval: the record is suspect if that does not hold 1.
constexpr std::string_view kControl = "speedup.control";

bool is_broken_control(const Measurement& one) {
  return one.metric == kControl && (!one.interval || !std::isfinite(one.interval->upper) || one.interval->lower <= 0 ||
                                    one.interval->lower > 1 || one.interval->upper < 1);
}

std::string words_of_intervals(const Range& before, const Range& after) {
  const bool apart = after.upper < before.lower || before.upper < after.lower;
  const bool wider = after.upper - after.lower > kMovedBy * (before.upper - before.lower);
  if (!apart && !wider) return "";
  return fmt::format("{:.3g} to {:.3g}, was {:.3g} to {:.3g}", after.lower, after.upper, before.lower, before.upper);
}

bool is_judged(const NumberRule* rule) { return rule && rule->judge != Judging::information; }

bool has_numbers_only(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The sum of the magnitudes of all finite values of a curve.
double size_of(const std::vector<double>& values) {
  double size = 0;
  for (const double value : values)
    if (std::isfinite(value)) size += std::fabs(value);
  return size;
}

// The sum of the distances of all pairs of finite values.
double distance_of(const std::vector<double>& a, const std::vector<double>& b) {
  double distance = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) distance += std::fabs(a[i] - b[i]);
  return distance;
}

bool has_same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool is_other_curve(const Series& base, const Series& found) {
  return base.y.size() != found.y.size() || base.x_unit != found.x_unit || base.y_unit != found.y_unit ||
         size_of(base.x) != size_of(found.x) || has_numbers_only(base.y) != has_numbers_only(found.y) ||
         factor_between(size_of(base.y), size_of(found.y)) >= kMovedBy ||
         distance_of(base.y, found.y) > std::max(size_of(base.y), size_of(found.y)) / kMovedBy;
}

// "matmul forward f16,f16->f16 by upcast (emulated)". How often a timed step runs is chance; otherwise with the calls.
std::multiset<std::string> kernels_of(const Record& record) {
  const bool is_timed = std::any_of(record.measurements.begin(), record.measurements.end(), is_stored_time);
  std::multiset<std::string> rows;
  for (const KernelUse& use : record.kernels)
    rows.insert(fmt::format("{} {} {} by {} ({}){}", use.operation, use.phase, use.dtypes, use.row, use.speed,
                            is_timed ? "" : fmt::format(" x {}", use.calls)));
  return rows;
}

std::string first_missing(const std::multiset<std::string>& rows, const std::multiset<std::string>& from) {
  for (const std::string& row : rows)
    if (!from.contains(row)) return row;
  return "nothing";
}

}  // namespace

void UnjudgedDifferences::note(Unjudged kind, const std::string& item, double weight) {
  items_[kind].emplace_back(-weight, printable(item));
}

void UnjudgedDifferences::compare(const Record& base, const Record& found, const GateRules& rules) {
  const auto of_case = [&](const std::string& what) { return fmt::format("{} of {}", what, found.id); };
  using Proof = Determinism::Proof;
  if (base.determinism.proof() == Proof::proved && found.determinism.proof() != Proof::proved)
    note(Unjudged::lost_proof, found.id);
  if (found.determinism.processes < base.determinism.processes)
    note(Unjudged::fewer_processes,
         fmt::format("{}: {} -> {}", found.id, base.determinism.processes, found.determinism.processes));
  if (const auto before = kernels_of(base), after = kernels_of(found); before != after && !before.empty())
    note(Unjudged::other_kernels,
         fmt::format("{}: {} -> {}", found.id, first_missing(before, after), first_missing(after, before)));
  if (base.expectation &&
      (!found.expectation || found.expectation->metric != base.expectation->metric ||
       found.expectation->at != base.expectation->at || found.expectation->relation != base.expectation->relation ||
       found.expectation->limit != base.expectation->limit || found.expectation->met != base.expectation->met))
    note(Unjudged::lost_expectation, found.id);
  if (base.numerics != found.numerics && !base.numerics.empty())
    note(Unjudged::lost_numerics,
         fmt::format("{}: {} -> {}", found.id, base.numerics, found.numerics.empty() ? "nothing" : found.numerics));
  for (const Series& curve : base.series) {
    const auto same = std::find_if(found.series.begin(), found.series.end(),
                                   [&](const Series& one) { return one.metric == curve.metric && one.at == curve.at; });
    const std::string name = curve.at.empty() ? curve.metric : fmt::format("{} at {}", curve.metric, curve.at);
    if (same == found.series.end())
      note(Unjudged::lost_curve, of_case(name));
    else if (!base.fingerprint.empty() && base.fingerprint == found.fingerprint && !has_same_bits(curve.y, same->y))
      note(Unjudged::edited, of_case(name));
    else if (is_other_curve(curve, *same))
      note(Unjudged::other_curve, of_case(name));
  }
  // Bytes and times have no reference; other judged numbers are beside one.
  const auto is_numeric = [](const Measurement& one) {
    return (one.kind == Kind::exact || one.kind == Kind::bounded) && !one.metric.starts_with("memory.");
  };
  const auto has = [](const Record& record, const auto& is) {
    return std::any_of(record.measurements.begin(), record.measurements.end(), is);
  };
  if (has(found, is_numeric) && !has(base, is_reference) && !has(found, is_reference))
    note(Unjudged::no_reference, found.id);
  using MetricPlace = std::pair<std::string_view, std::string_view>;
  std::map<MetricPlace, const Measurement*> added;
  for (const Measurement& one : found.measurements) added.emplace(MetricPlace(one.metric, one.at), &one);
  for (const Measurement& before : base.measurements) {
    const auto place = added.find({before.metric, before.at});
    const Measurement* after = place == added.end() ? nullptr : place->second;
    if (after) added.erase(place);
    const bool judged = is_reference(before) || is_stored_time(before) || is_judged(rules.rule_for(base, before));
    if (!after) {
      if (!judged && before.metric != kComesAndGoes) note(Unjudged::lost_information, of_case(place_of(before)));
      continue;
    }
    if (after->samples.size() < before.samples.size() && (before.kind != Kind::sampled || after->samples.empty()))
      note(Unjudged::fewer_samples,
           fmt::format("{}: {} -> {}", of_case(place_of(before)), before.samples.size(), after->samples.size()));
    if (before.interval && !after->interval)
      note(Unjudged::fewer_samples, of_case(place_of(before)) + ": its interval is missing");
    if (before.interval && after->interval && !is_about_the_machine(before.metric) && before.metric != kControl)
      if (const std::string words = words_of_intervals(*before.interval, *after->interval); !words.empty())
        note(Unjudged::moved_interval, fmt::format("{}: {}", of_case(place_of(before)), words),
             factor_between(before.value, after->value));
    if (found.status == Status::ok && is_broken_control(*after) && !is_broken_control(before))
      note(Unjudged::no_control, found.id);
    if (before.bound && after->bound && *before.bound != *after->bound &&
        (after->better == Better::higher ? *after->bound < *before.bound : *after->bound > *before.bound)) {
      const double factor = factor_between(*before.bound, *after->bound);
      const std::string words = std::isfinite(factor) ? human_ratio(factor) : "from a bound of 0 or another sign";
      note(Unjudged::looser_bound, fmt::format("{}: {}", of_case(place_of(before)), words), factor);
    }
    if (judged && (before.kind == after->kind || is_judged(rules.rule_for(found, *after)))) continue;
    if (before.unit != after->unit || before.better != after->better || before.kind != after->kind)
      note(Unjudged::other_definition, of_case(place_of(before)));
    else if (is_about_the_machine(before.metric))
      continue;
    else if (const double factor = factor_between(before.value, after->value);
             factor >= kMovedBy || (factor > 1 && before.kind != Kind::information && before.kind != Kind::sampled))
      note(Unjudged::moved_information, of_case(place_of(before)), factor);
  }
  for (const auto& [place, after] : added)
    if (!is_reference(*after) && after->metric != kComesAndGoes)
      note(Unjudged::added_number, of_case(place_of(*after)));
}

std::vector<std::string> UnjudgedDifferences::remarks() const {
  std::vector<std::string> remarks;
  for (const auto& [kind, items] : items_) {
    auto sorted = items;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a < b; });
    std::vector<std::string> names;
    for (const auto& [weight, item] : sorted) names.push_back(item);
    remarks.push_back(fmt::format("{}: {} ({})", words_of(kind), names.size(), some_of(names)));
  }
  return remarks;
}

}  // namespace halfmark::reports
