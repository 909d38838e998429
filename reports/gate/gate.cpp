#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_numbers.h"
#include "reports/gate/gate_record.h"
#include "reports/gate/gate_reference.h"
#include "reports/gate/gate_time.h"
#include "reports/gate/rules_review.h"
#include "reports/gate/summation_changes.h"
#include "reports/gate/time_limits.h"
#include "reports/record/glob.h"
#include "reports/record/provenance.h"
#include "reports/record/subject_facts.h"
#include "reports/text/compare.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

using Index = std::unordered_map<std::string, const Record*>;

Index index_of(const NamedReport& report) {
  Index index;
  for (const Record& record : report.report.records)
    if (!index.emplace(record.id, &record).second)
      throw ReportError(
          fmt::format("{}: the case {} is used twice and cannot be compared; merge the reports or run it again",
                      report.name, printable(record.id)));
  for (const Record& record : report.report.records) {
    std::set<std::pair<std::string_view, std::string_view>> places;
    for (const Measurement& one : record.measurements)
      if (!places.emplace(one.metric, one.at).second)
        throw ReportError(fmt::format("{}: {} has {} at \"{}\" twice and cannot be compared; run it again", report.name,
                                      printable(record.id), printable(one.metric), printable(one.at)));
  }
  return index;
}

bool was_measured(const Record& record) { return record.status == Status::ok || record.status == Status::suspect; }

std::string with_reason(std::string_view what, const Record& record) {
  return record.reason.empty() ? std::string(what) : fmt::format("{}: {}", what, printable(record.reason));
}

// "matmul forward f16,f16->f16: upcast -> onednn": the changes of the kernels that ran.
std::string other_kernels(const Record& base, const Record& found) {
  const auto rows_of = [](const Record& record) {
    std::map<std::string, std::string> rows;
    for (const KernelUse& use : record.kernels) {
      std::string& row = rows[fmt::format("{} {} {}", use.operation, use.phase, use.dtypes)];
      row += (row.empty() ? "" : "+") + use.row;
    }
    return rows;
  };
  const auto before = rows_of(base), after = rows_of(found);
  std::vector<std::string> changes;
  for (const auto& [work, row] : before)
    if (const auto now = after.find(work); now != after.end() && now->second != row)
      changes.push_back(fmt::format("{}: {} -> {}", work, row, now->second));
  return changes.empty() ? "" : "; other kernels: " + printable(some_of(changes));
}

// The data on which the record was not measured, unlike the base: "mnist 3f1c... -> drawn"; empty if they are the same.
std::string other_data(const Record& base, const Record& found) {
  const SubjectFacts before{.definition = "", .data = subject_facts(base).data, .numbers = {}},
      now{.definition = "", .data = subject_facts(found).data, .numbers = {}};
  return difference_of(before, now);
}

// What makes two records of one id different cases, apart from their data; empty if nothing does.
std::string other_identity(const Record& base, const Record& found) {
  std::vector<std::string> changes;
  const auto compare = [&](std::string_view what, const std::string& before, const std::string& now) {
    if (before != now) changes.push_back(fmt::format("{} {} -> {}", what, before, now));
  };
  compare("subject", base.subject, found.subject), compare("device", base.device, found.device);
  compare("policy", base.policy, found.policy), compare("harness", base.harness, found.harness);
  if (base.axes != found.axes) changes.emplace_back("other axes");
  SubjectFacts before = subject_facts(base), now = subject_facts(found);
  before.data.clear(), now.data.clear();
  if (const std::string facts = difference_of(before, now); !facts.empty()) changes.push_back(facts);
  return changes.empty() ? "" : some_of(changes);
}

class Gate {
 public:
  Gate(const NamedReport& base, const NamedReport& found, const GateRules& rules, const GateOptions& options)
      : base_(base),
        found_(found),
        rules_(rules),
        options_(options),
        context_{rules, options, options.acknowledgements},
        review_(rules),
        environment_(base.report, found.report) {
    const uint64_t before = base.report.run.seed, now = found.report.run.seed;
    if (before != now)
      other_seed_ = fmt::format("the seed is {}, was {}, so the data are different; use the same seed", now, before);
  }

  Judgement run() {
    require_records(base_);
    const Index before = index_of(base_), after = index_of(found_);
    check_times(base_), check_times(found_);
    judgement_.base = base_.name, judgement_.candidate = found_.name;
    judgement_.where = {found_.report.run.started, fact(found_.report.environment, "/machine"),
                        fact(base_.report.environment, "/halfmark/git"),
                        fact(found_.report.environment, "/halfmark/git")};
    judgement_.differences = environment_.lines();
    judgement_.rules = {{"rules", rules_.source},
                        {"options",
                         {{"strict_bits", options_.strict_bits},
                          {"same_environment", options_.same_environment},
                          {"time", options_.time}}}};
    for (const Record& record : base_.report.records) {
      const auto other = after.find(record.id);
      if (other != after.end())
        compare(record, *other->second);
      else
        add_line(record, Outcome::lost, "is in the base but not in the new report");
    }
    for (const Record& record : found_.report.records)
      if (!before.contains(record.id)) {
        add_line(record, Outcome::added,
                 was_measured(record)
                     ? "is not in the base"
                     : with_reason(fmt::format("is not in the base, and {}", name_of(record.status)), record));
        judge_own_bounds(record);
      }
    std::set<std::string> tested;
    if (options_.time)
      tested = judge_times(pairs_, rules_.time, rules_.time_keys, options_.time_history, environment_, judgement_);
    compare_stored_times(pairs_, StoredTimeRule{}, rules_, options_.time_history, tested, environment_, judgement_);
    look_at_environment();
    look_at_origin();
    remark();
    for (std::string& change : summation_changes(base_.report, found_.report))
      judgement_.remarks.push_back(std::move(change));
    conclude(judgement_);
    return std::move(judgement_);
  }

 private:
  void add_line(const Record& record, Outcome outcome, std::string words) {
    JudgedLine line;
    line.id = record.id, line.outcome = outcome, line.words = std::move(words), line.rerun = record.repro;
    judgement_.lines.push_back(std::move(line));
  }

  // Of a case without a base to compare with.
  void judge_own_bounds(const Record& found) {
    Record bounded = found, none = found;
    std::erase_if(bounded.measurements, [](const Measurement& one) { return !one.bound; });
    none.measurements.clear();
    if (!bounded.measurements.empty()) judge_record(none, bounded, environment_, context_, judgement_);
    for (const Measurement& one : found.measurements)
      if (!one.bound && std::isnan(one.value))
        context_.unjudged.note(Unjudged::new_nan, fmt::format("{} of {}", place_of(one), found.id));
  }

  void compare(const Record& base, const Record& found) {
    if (base.case_version != found.case_version) return compare_versions(base, found);
    // Another subject under the same id and version: the case of the base was not measured, so it is lost.
    if (const std::string other = other_identity(base, found); !other.empty())
      return add_line(found, Outcome::lost,
                      fmt::format("is another subject of the same name ({}), so nothing is compared; give it other "
                                  "sizes, or make a new base",
                                  printable(other)));
    // No fault of the program: the same case on other files, which says nothing about it.
    if (const std::string other = other_data(base, found); !other.empty()) {
      add_line(
          found, Outcome::inconclusive,
          fmt::format("was measured on other data than the base ({}), so nothing is compared; run it on the data of "
                      "the base, or make a new base",
                      printable(other)));
      judgement_.lines.back().rerun = base.repro;
      return;
    }
    if (!was_measured(found)) {
      const bool lost = was_measured(base) || (base.status == Status::skipped && found.status == Status::failed);
      const std::string what =
          fmt::format("{}{}", name_of(found.status), found.status == base.status ? " in both reports" : " now");
      if (!lost) context_.unjudged.note(Unjudged::not_measured, fmt::format("{}, {}", found.id, name_of(found.status)));
      return add_line(found, lost ? Outcome::lost : Outcome::information, with_reason(what, found));
    }
    if (!was_measured(base)) {
      judge_own_bounds(found);
      return add_line(found, base.status == Status::failed ? Outcome::improved : Outcome::added,
                      with_reason(fmt::format("is measured now, was {}", name_of(base.status)), base));
    }
    // No fault of the program either: a software GPU in the place of a GPU, or the other way round, under one name.
    if (found.device.starts_with("cuda:") && base.numerics.empty() != found.numerics.empty()) {
      const auto text = [](const Record& one) { return one.numerics.empty() ? "hardware" : one.numerics; };
      return add_line(found, Outcome::inconclusive,
                      printable(fmt::format("was measured on another kind of device than the base ({} -> {}), so "
                                            "nothing is compared; make a base on this one",
                                            text(base), text(found))));
    }
    add_line(found, Outcome::pass, "measured in both");
    if (base.status == Status::ok && found.status == Status::suspect)
      judgement_.remarks.push_back(fmt::format("{}: suspect now: {}", printable(found.id), printable(found.reason)));
    if (base.status == Status::suspect && found.status == Status::ok)
      judgement_.remarks.push_back(
          fmt::format("{}: ok now, was suspect: {}", printable(found.id), printable(base.reason)));
    pairs_.emplace_back(&base, &found);
    context_.unjudged.compare(base, found, rules_);
    review_.compare(base, found, environment_);
    compare_bits(base, found);
    judge_record(base, found, environment_, context_, judgement_);
    judge_reference(base, found, other_seed_, context_.acknowledgements, options_.today, judgement_);
  }

  // Another version of a case is another measurement: its numbers have no base, but it must not end what was measured.
  void compare_versions(const Record& base, const Record& found) {
    const std::string words =
        fmt::format("is version {} of the case, the base has version {}", found.case_version, base.case_version);
    if (found.case_version < base.case_version) return add_line(found, Outcome::lost, words + ": an older one");
    if (was_measured(base) && !was_measured(found))
      return add_line(found, Outcome::lost,
                      with_reason(fmt::format("{}, and {}", words, name_of(found.status)), found));
    add_line(found, Outcome::added, words + ": a new series");
    judge_own_bounds(found);
    ++other_versions_;
  }

  void compare_bits(const Record& base, const Record& found) {
    using Proof = Determinism::Proof;
    const auto skips = [&](const std::string& glob) { return glob_matches(glob, found.id); };
    if (std::any_of(rules_.bits_skip.begin(), rules_.bits_skip.end(), skips)) {
      if (base.fingerprint.empty() != found.fingerprint.empty())
        context_.unjudged.note(Unjudged::no_fingerprint, found.id);
      return;
    }
    JudgedLine line;
    line.id = found.id, line.question = Question::bits, line.rerun = found.repro;
    const std::vector<std::string>& moved = environment_.in(rules_.bits_keys, found.device);
    const std::string bits = fmt::format("{} -> {}", printable(base.fingerprint), printable(found.fingerprint));
    const Proof before = base.determinism.proof(), now = found.determinism.proof();
    // What --strict-bits could not compare is no pass.
    const Outcome not_compared = options_.strict_bits ? Outcome::inconclusive : Outcome::information;
    if (base.fingerprint.empty() && !options_.strict_bits) {
      if (!found.fingerprint.empty()) context_.unjudged.note(Unjudged::no_fingerprint, found.id);
      return;
    }
    if (base.fingerprint.empty()) {
      line.outcome = not_compared;
      line.words = "the base has no fingerprint of its bits";
    } else if (found.fingerprint.empty()) {
      line.outcome = Outcome::lost;
      line.words = fmt::format("the fingerprint of its bits was {} and is missing now", printable(base.fingerprint));
    } else if (before == Proof::proved && now == Proof::refuted && moved.empty()) {
      line.outcome = Outcome::breach;
      line.words = fmt::format(
          "not deterministic any more: {} of {} processes gave different bits than the first; in the base all {} "
          "agreed{}",
          found.determinism.differing, found.determinism.processes, base.determinism.processes,
          other_kernels(base, found));
    } else if (options_.strict_bits && (before == Proof::refuted || now == Proof::refuted)) {
      line.outcome = Outcome::inconclusive;
      line.words =
          fmt::format("the bits are not deterministic ({} in the base, {} here), so --strict-bits cannot judge them",
                      name_of(before), name_of(now));
    } else if (base.fingerprint == found.fingerprint) {
      line.words = moved.empty() ? "the same bits" : fmt::format("the same bits, although {} changed", some_of(moved));
    } else if (!moved.empty()) {
      if (options_.strict_bits) line.outcome = Outcome::inconclusive;
      line.words = fmt::format("different bits ({}), as expected because {} changed", bits, some_of(moved));
    } else if (before != Proof::proved || now != Proof::proved) {
      line.outcome = not_compared;
      if (!options_.strict_bits) context_.unjudged.note(Unjudged::unproved_bits, found.id);
      line.words = fmt::format(
          "different bits ({}); determinism is {} in the base and {} here: halfmark run --processes 2 checks it", bits,
          name_of(before), name_of(now));
    } else if (const Acknowledgement* entry =
                   context_.acknowledgements.find_bits(found.id, base.fingerprint, found.fingerprint, options_.today)) {
      line.outcome = Outcome::acknowledged;
      line.words = fmt::format("different bits ({}), acknowledged until {}: {}", bits, entry->expires, entry->reason);
    } else {
      line.outcome = options_.strict_bits ? Outcome::breach : Outcome::changed;
      line.words = fmt::format("different bits ({}) in the same environment{}; review and acknowledge them", bits,
                               other_kernels(base, found));
    }
    judgement_.lines.push_back(std::move(line));
  }

  void look_at_environment() {
    std::set<std::string> devices, moved;
    for (const auto& [base, found] : pairs_) devices.insert(found->device);
    for (const std::string& device : devices)
      for (const Keys* keys : {&rules_.bits_keys, &rules_.time_keys})
        for (const std::string& fact : environment_.in(*keys, device)) moved.insert(fact);
    if (moved.empty()) return;
    const std::string words = fmt::format("the environments differ in {}", some_of({moved.begin(), moved.end()}));
    if (!options_.same_environment) {
      judgement_.remarks.push_back(words + "; limits still apply, fingerprints and times are not compared");
      return;
    }
    JudgedLine line;
    line.id = "environment", line.outcome = Outcome::environment_suspect;
    line.words = words + ", but --same-environment allows no difference";
    judgement_.lines.push_back(std::move(line));
  }

  // Two runs never measure the same times at the same second, and the base is the earlier one.
  void look_at_origin() {
    const std::string &before = base_.report.run.started, &now = found_.report.run.started;
    if (before.ends_with('Z') && now.ends_with('Z') && now < before)
      judgement_.remarks.push_back(fmt::format("{} started before {} ({}, {}): are they in this order?", found_.name,
                                               base_.name, printable(now), printable(before)));
    const auto are_equal = [](const MeasuredPair& pair) {
      return std::all_of(pair.first->measurements.begin(), pair.first->measurements.end(), [&](const Measurement& one) {
        const Measurement* other = find(*pair.second, one.metric, one.at);
        return !is_stored_time(one) || (other && other->samples == one.samples);
      });
    };
    const auto is_timed = [](const MeasuredPair& pair) {
      return std::any_of(pair.first->measurements.begin(), pair.first->measurements.end(),
                         [](const Measurement& one) { return is_stored_time(one) && !one.samples.empty(); });
    };
    if (before == now && std::any_of(pairs_.begin(), pairs_.end(), is_timed) &&
        std::all_of(pairs_.begin(), pairs_.end(), are_equal))
      judgement_.remarks.push_back("both reports have the same start and the same times: is one a copy of the other?");
    if (pairs_.empty() && other_versions_ > 0) {
      JudgedLine line;
      line.id = "all cases", line.outcome = Outcome::inconclusive;
      line.words = "nothing was compared: every case has another version; make a new base";
      judgement_.lines.push_back(std::move(line));
    }
  }

  void remark() {
    std::vector<std::string>& remarks = judgement_.remarks;
    const auto is_common = [](const JudgedLine& line) { return line.outcome == Outcome::lost; };
    if (pairs_.empty() && !base_.report.records.empty() &&
        std::all_of(judgement_.lines.begin(), judgement_.lines.end(), [&](const JudgedLine& line) {
          return is_common(line) || line.outcome == Outcome::added || line.question != Question::presence;
        }))
      remarks.insert(remarks.begin(),
                     "the reports have no measured case in common; check that these are the reports to compare");
    for (const NamedReport* named : {&base_, &found_})
      if (const std::string partial = partial_text(named->report); !partial.empty())
        remarks.push_back(fmt::format("{} is partial, {}", named->name, partial));
    for (const NamedReport* named : {&base_, &found_})
      for (const std::string& line : substitutes(named->report))
        remarks.push_back(fmt::format("{}: {}", named->name, printable(line)));
    for (const std::string& metric : context_.unruled)
      remarks.push_back(fmt::format("no rule matches {}: it was not judged", printable(metric)));
    if (context_.wide_limits > 0)
      remarks.push_back(fmt::format(
          "{} error{} of few values may grow up to {} times: chance alone can make them so small (--all: which cases)",
          context_.wide_limits, context_.wide_limits == 1 ? "" : "s", human(context_.widest, "1")));
    for (std::vector<std::string> more : {review_.remarks(), context_.unjudged.remarks()})
      remarks.insert(remarks.end(), more.begin(), more.end());
    const std::vector<std::string> about = context_.acknowledgements.remarks(options_.today);
    remarks.insert(remarks.end(), about.begin(), about.end());
  }

  const NamedReport &base_, &found_;
  const GateRules& rules_;
  const GateOptions& options_;
  GateContext context_;
  RulesReview review_;
  EnvironmentDifference environment_;
  std::string other_seed_{};  // why numbers of the data cannot be equal; empty if they can
  std::vector<MeasuredPair> pairs_;
  size_t other_versions_ = 0;  // cases
  Judgement judgement_;
};

}  // namespace

Judgement judge(const NamedReport& base, const NamedReport& candidate, const GateRules& rules,
                const GateOptions& options) {
  return Gate(base, candidate, rules, options).run();
}

}  // namespace halfmark::reports
