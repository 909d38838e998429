// Mutations of a measured report, for property tests of the gate: each hides or worsens something. The judge here knows
// nothing of the gate's rules: whatever was hidden or worsened must change the exit code or be named in the text.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reports/gate/gate.h"
#include "reports/outputs/text.h"

namespace halfmark::reports::gate_test {

// What was mutated. The text must name one of `names`.
struct Mutated {
  std::vector<std::string> names;
  std::string family;  // of the metric: "error"; empty: no metric
  int least_exit = 0;  // an exit code below is a failure, with or without a word
};

class Mutator {
 public:
  Mutator(Report& report, std::mt19937_64& random) : report_(report), random_(random) {}

  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }

  // A random record that holds, or null. Most kinds need a measured one.
  Record* record(const std::function<bool(const Record&)>& holds = [](const Record&) { return true; }) {
    std::vector<Record*> fitting;
    for (Record& one : report_.records)
      if ((one.status == Status::ok || one.status == Status::suspect) && holds(one)) fitting.push_back(&one);
    return fitting.empty() ? nullptr : fitting[below(fitting.size())];
  }

  // A random metric first, then one of its measurements: rare metrics are mutated as often as frequent ones.
  struct Found {
    Record* record = nullptr;
    Measurement* one = nullptr;
  };
  Found measurement(const std::function<bool(const Record&, const Measurement&)>& holds) {
    std::map<std::string, std::vector<Found>> by_metric;
    for (Record& record : report_.records)
      if (record.status == Status::ok || record.status == Status::suspect)
        for (Measurement& one : record.measurements)
          if (holds(record, one)) by_metric[one.metric].push_back({&record, &one});
    if (by_metric.empty()) return {};
    auto metric = by_metric.begin();
    std::advance(metric, static_cast<std::ptrdiff_t>(below(by_metric.size())));
    return metric->second[below(metric->second.size())];
  }

  Report& report() { return report_; }

 private:
  Report& report_;
  std::mt19937_64& random_;
};

using Mutation = std::function<std::optional<Mutated>(Mutator&)>;

inline std::string family_name(const std::string& metric) { return metric.substr(0, metric.find('.')); }

inline Mutated about(const Record& record, const Measurement& one, int least_exit = 0) {
  return {{one.metric, record.id}, family_name(one.metric), least_exit};
}

// Times of a record that is suspect in the base say nothing, and how busy the machine was says nothing about the code: a
// mutation of their values hides nothing.
inline bool says_something(const Record& record, const Measurement& one) {
  for (const char* family : {"timing.", "contention.", "device."})
    if (one.metric.starts_with(family)) return false;
  return record.status == Status::ok || one.kind != Kind::sampled;
}

// A change that makes the number worse by its own direction; a number without one may move either way, but a smaller
// magnitude of an error is no worsening.
inline Mutation changed(const std::function<double(double)>& change) {
  return [change](Mutator& mutate) -> std::optional<Mutated> {
    const auto is_worse = [&](const Record& record, const Measurement& one) {
      const double after = change(one.value);
      if (!says_something(record, one) || !(after != one.value) || std::isnan(one.value)) return false;
      if (std::isnan(after)) return true;
      if (one.kind == Kind::information)  // less than a factor of 2 is no news
        return one.value * after <= 0 || std::fabs(std::log2(after / one.value)) >= 1;
      // A difference of two losses, better near 0 from either side.
      if (one.metric == "evaluation.gap") return std::fabs(after) > std::fabs(one.value);
      if (one.better == Better::lower && one.value < 0) return false;  // a difference: either side may be the worse one
      if (one.better == Better::lower) return after > one.value || after < 0;
      if (one.better == Better::higher) return after < one.value || std::isinf(after);
      return std::fabs(after) > std::fabs(one.value);
    };
    const auto [record, one] = mutate.measurement(is_worse);
    if (!one) return {};
    one->value = change(one->value);
    for (double& sample : one->samples) sample = change(sample);
    return about(*record, *one);
  };
}

// A change of one measurement for which `holds`.
inline Mutation edited(const std::function<bool(const Record&, const Measurement&)>& holds,
                       const std::function<void(Measurement&)>& edit, int least_exit = 0) {
  return [=](Mutator& mutate) -> std::optional<Mutated> {
    const auto [record, one] = mutate.measurement(holds);
    if (!one) return {};
    const Mutated mutated = about(*record, *one, least_exit);
    edit(*one);
    return mutated;
  };
}

inline Mutation edited_record(const std::function<bool(const Record&)>& holds, const std::function<void(Record&)>& edit,
                              int least_exit = 0) {
  return [=](Mutator& mutate) -> std::optional<Mutated> {
    Record* record = mutate.record(holds);
    if (!record) return {};
    const Mutated mutated{{record->id}, "", least_exit};
    edit(*record);
    return mutated;
  };
}

inline Mutation edited_series(const std::function<bool(const Series&)>& holds,
                              const std::function<void(Series&)>& edit) {
  return [=](Mutator& mutate) -> std::optional<Mutated> {
    Record* record =
        mutate.record([&](const Record& one) { return std::any_of(one.series.begin(), one.series.end(), holds); });
    if (!record) return {};
    std::vector<Series*> fitting;
    for (Series& one : record->series)
      if (holds(one)) fitting.push_back(&one);
    Series& series = *fitting[mutate.below(fitting.size())];
    const Mutated mutated{{series.metric, record->id}, family_name(series.metric)};
    edit(series);
    std::erase_if(record->series, [](const Series& one) { return one.metric.empty(); });
    return mutated;
  };
}

inline bool is_time_of_ok(const Record& record, const Measurement& one) {
  return record.status == Status::ok && one.kind == Kind::sampled && (one.unit == "s" || one.unit.ends_with("/s"));
}

inline Mutation all_times(double factor) {
  return [factor](Mutator& mutate) -> std::optional<Mutated> {
    bool any = false;
    for (Record& record : mutate.report().records)
      for (Measurement& one : record.measurements) {
        if (one.kind != Kind::sampled || (one.unit != "s" && !one.unit.ends_with("/s"))) continue;
        any = any || is_time_of_ok(record, one);
        const double by = one.unit == "s" ? factor : 1 / factor;
        one.value *= by;
        for (double& sample : one.samples) sample *= by;
      }
    if (!any) return {};
    return Mutated{{"time."}, "time", 3};
  };
}

inline Mutation slower_and_suspect() {
  return [](Mutator& mutate) -> std::optional<Mutated> {
    Record* record = mutate.record([](const Record& one) {
      return std::any_of(one.measurements.begin(), one.measurements.end(),
                         [&](const Measurement& time) { return is_time_of_ok(one, time); });
    });
    if (!record) return {};
    for (Measurement& one : record->measurements)
      if (is_time_of_ok(*record, one)) {
        const double by = one.unit == "s" ? 10 : 0.1;
        one.value *= by;
        for (double& sample : one.samples) sample *= by;
      }
    record->status = Status::suspect, record->reason = "busy";
    return Mutated{{record->id}, "time", 3};
  };
}

// Every mutation with its name.
inline std::map<std::string, Mutation> mutations() {
  const auto any = [](const Record&, const Measurement&) { return true; };
  const auto any_record = [](const Record&) { return true; };
  const auto is_judged = [](const Record&, const Measurement& one) {
    return one.kind == Kind::exact || one.kind == Kind::bounded;
  };
  const auto any_series = [](const Series& one) {
    return std::any_of(one.y.begin(), one.y.end(), [](double y) { return y != 0 && std::isfinite(y); });
  };
  const double inf = std::numeric_limits<double>::infinity();
  std::map<std::string, Mutation> all;
  all["drop record"] = [](Mutator& mutate) -> std::optional<Mutated> {
    std::vector<Record>& records = mutate.report().records;
    const size_t index = mutate.below(records.size());
    const Mutated mutated{{records[index].id}, "", 1};
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(index));
    return mutated;
  };
  all["duplicate record"] = [](Mutator& mutate) -> std::optional<Mutated> {
    std::vector<Record>& records = mutate.report().records;
    records.push_back(records[mutate.below(records.size())]);
    return Mutated{{records.back().id}, "", 2};
  };
  all["rename record"] = edited_record(
      any_record, [](Record& one) { one.id += "x"; }, 1);
  all["another policy"] = edited_record(
      any_record, [](Record& one) { one.policy = "int8"; }, 1);
  all["another device"] = edited_record(
      any_record, [](Record& one) { one.device = "cuda:7"; }, 1);
  all["another harness"] = edited_record(
      any_record, [](Record& one) { one.harness = "other"; }, 1);
  all["another subject"] = edited_record(
      any_record, [](Record& one) { one.subject = "other/b1"; }, 1);
  all["another axis"] = edited_record(
      any_record, [](Record& one) { one.axes["cache"] = "lukewarm"; }, 1);
  all["another version"] = edited_record(any_record, [](Record& one) { ++one.case_version; });
  all["status failed"] = edited_record(
      any_record, [](Record& one) { one.status = Status::failed, one.reason = "crashed"; }, 1);
  all["status skipped"] = edited_record(
      any_record, [](Record& one) { one.status = Status::skipped, one.reason = "no row"; }, 1);
  all["status suspect"] = edited_record([](const Record& one) { return one.status == Status::ok; },
                                        [](Record& one) { one.status = Status::suspect, one.reason = "busy"; });
  all["status ok"] = edited_record([](const Record& one) { return one.status == Status::suspect; },
                                   [](Record& one) { one.status = Status::ok, one.reason = ""; });
  all["drop fingerprint"] = edited_record([](const Record& one) { return !one.fingerprint.empty(); },
                                          [](Record& one) { one.fingerprint = ""; });
  all["another fingerprint"] = edited_record(
      [](const Record& one) {
        return !one.fingerprint.empty() && one.harness != "throughput" && one.harness != "memory";
      },
      [](Record& one) { one.fingerprint = "0123"; });
  all["unproved"] = edited_record([](const Record& one) { return one.determinism.processes > 1; },
                                  [](Record& one) { one.determinism = {}; });
  all["refuted"] =
      edited_record([](const Record& one) { return one.determinism.proof() == Determinism::Proof::proved; },
                    [](Record& one) { one.determinism.differing = 1; });
  all["drop kernels"] =
      edited_record([](const Record& one) { return !one.kernels.empty(); }, [](Record& one) { one.kernels.clear(); });
  all["emulate"] =
      edited_record([](const Record& one) { return !one.kernels.empty() && one.kernels[0].speed != "emulated"; },
                    [](Record& one) { one.kernels[0].speed = "emulated"; });
  all["drop expectation"] = edited_record([](const Record& one) { return one.expectation.has_value(); },
                                          [](Record& one) { one.expectation.reset(); });
  all["drop measurements"] = edited_record([](const Record& one) { return !one.measurements.empty(); },
                                           [](Record& one) { one.measurements.clear(); });
  all["drop measurement"] = [any](Mutator& mutate) -> std::optional<Mutated> {
    const auto [record, one] = mutate.measurement(any);
    const Mutated mutated = about(*record, *one);
    record->measurements.erase(record->measurements.begin() + (one - record->measurements.data()));
    return mutated;
  };
  all["duplicate measurement"] = [any](Mutator& mutate) -> std::optional<Mutated> {
    const auto [record, one] = mutate.measurement(any);
    const Mutated mutated = about(*record, *one, 2);
    Measurement again = *one;
    again.value += 1;
    record->measurements.push_back(again);
    return mutated;
  };
  all["rename measurement"] = edited(any, [](Measurement& one) { one.metric += "x"; });
  all["move measurement"] = edited(any, [](Measurement& one) { one.at += "x"; });
  all["another unit"] = edited(any, [](Measurement& one) { one.unit = "ms"; });
  all["another direction"] =
      edited(any, [](Measurement& one) { one.better = one.better == Better::higher ? Better::lower : Better::higher; });
  all["for information only"] =
      edited([](const Record& record,
                const Measurement& one) { return one.kind != Kind::information && says_something(record, one); },
             [](Measurement& one) { one.kind = Kind::information; });
  all["sampled"] = edited(is_judged, [](Measurement& one) { one.kind = Kind::sampled; });
  all["drop samples"] = edited([](const Record&, const Measurement& one) { return !one.samples.empty(); },
                               [](Measurement& one) { one.samples.clear(); });
  all["drop interval"] = edited([](const Record&, const Measurement& one) { return one.interval.has_value(); },
                                [](Measurement& one) { one.interval.reset(); });
  // The control of a suspect record says nothing: its times are not judged.
  all["infinite interval"] = edited(
      [](const Record& record, const Measurement& one) {
        return one.interval.has_value() && (record.status == Status::ok || one.metric != "speedup.control");
      },
      [inf](Measurement& one) {
        one.interval = {0, inf};
      });
  all["interval beside its value"] =
      edited([](const Record&, const Measurement& one) { return one.interval.has_value(); },
             [](Measurement& one) {
               one.interval = {2 * one.value, 3 * one.value};
             });
  const auto has_standard_error = [](const Record&, const Measurement& one) { return one.standard_error.has_value(); };
  for (const double factor : {inf, std::nan(""), 100.0})
    all[fmt::format("standard error x {}", factor)] =
        edited(has_standard_error, [factor](Measurement& one) { *one.standard_error *= factor; });
  all["drop standard error"] = edited(has_standard_error, [](Measurement& one) { one.standard_error.reset(); });
  const auto is_speed_up = [](const Record& record, const Measurement& one) {
    return record.status == Status::ok && one.metric == "speedup.step";
  };
  all["no speed-up"] = edited(is_speed_up, [](Measurement& one) { one.metric = "speedup.other"; });
  all["half the speed-up"] = edited(is_speed_up, [](Measurement& one) {
    one.value /= 2, one.interval = {one.interval->lower / 2, one.interval->upper / 2};
    for (double& sample : one.samples) sample /= 2;
  });
  all["drop bound"] = edited([](const Record&, const Measurement& one) { return one.bound.has_value(); },
                             [](Measurement& one) { one.bound.reset(); });
  for (const double factor : {1.5, 2.0, 10.0, 1e6})
    all[fmt::format("bound x {}", factor)] =
        edited([](const Record&, const Measurement& one) { return one.bound && *one.bound > 0; },
               [factor](Measurement& one) { *one.bound *= factor; });
  all["bound NaN"] = edited([](const Record&, const Measurement& one) { return one.bound.has_value(); },
                            [](Measurement& one) { one.bound = std::nan(""); });
  for (const double factor : {2.0, 10.0, 0.1, 1000.0})
    all[fmt::format("value x {}", factor)] = changed([factor](double value) { return value * factor; });
  all["value plus 1"] = changed([](double value) { return value + 1; });
  all["value minus 1"] = changed([](double value) { return value - 1; });
  all["value NaN"] = changed([](double) { return std::nan(""); });
  all["value infinite"] = changed([inf](double) { return inf; });
  all["value minus infinite"] = changed([inf](double) { return -inf; });
  all["value negative"] = changed([](double value) { return -std::fabs(value); });
  all["value zero"] = edited(
      [](const Record& record, const Measurement& one) {
        return one.value != 0 && says_something(record, one) && one.metric.find("nmse") != std::string::npos;
      },
      [](Measurement& one) { one.value = 0; });
  all["drop curve"] = edited_series([](const Series&) { return true; }, [](Series& one) { one.metric = ""; });
  all["curve NaN"] = edited_series(any_series, [](Series& one) { one.y.front() = std::nan(""); });
  all["curve shorter"] = edited_series([](const Series& one) { return one.y.size() > 1; },
                                       [](Series& one) { one.x.pop_back(), one.y.pop_back(); });
  for (const double factor : {2.0, 10.0, 0.1})
    all[fmt::format("curve x {}", factor)] = edited_series(any_series, [factor](Series& one) {
      for (double& y : one.y) y *= factor;
    });
  for (const double factor : {2.0, 10.0, 0.1}) all[fmt::format("all times x {}", factor)] = all_times(factor);
  all["suspect and ten times slower"] = slower_and_suspect();
  all["another machine"] = [](Mutator& mutate) -> std::optional<Mutated> {
    mutate.report().environment["machine"] = "another machine";
    return Mutated{{"another machine"}, ""};
  };
  all["incomplete"] = [](Mutator& mutate) -> std::optional<Mutated> {
    mutate.report().run.complete = false;
    return Mutated{{"partial"}, ""};
  };
  return all;
}

struct MutationCounts {
  std::map<std::string, size_t> by_kind, by_family, by_exit;
};

// Applies each mutation `times` times to the new report and judges it against the base. ADD_FAILUREs name what passed.
inline MutationCounts mutate_all(const Report& base, size_t times, const GateOptions& options, const char* rules_name) {
  const GateRules rules = load_gate_rules(rules_name);
  const TextOptions wide{.width = 1000000, .colour = false, .all = false};
  const auto lines_of = [&](const Judgement& judgement) {
    std::set<std::string> lines;
    std::istringstream text(text_of(judgement, wide));
    for (std::string line; std::getline(text, line);) lines.insert(line);
    return lines;
  };
  const Judgement same = judge({"base", base}, {"new", base}, rules, options);
  const std::set<std::string> usual = lines_of(same);
  EXPECT_EQ(same.exit_code, 0) << text_of(same, wide);
  MutationCounts counts;
  uint64_t seed = 0;
  size_t failures = 0;
  for (const auto& [kind, mutation] : mutations())
    for (size_t i = 0; i < times; ++i) {
      std::mt19937_64 random(++seed);
      Report found = base;
      Mutator mutator(found, random);
      const std::optional<Mutated> mutated = mutation(mutator);
      if (!mutated) continue;
      ++counts.by_kind[kind];
      if (!mutated->family.empty()) ++counts.by_family[mutated->family];
      int code = 2;
      bool named = true;
      std::string text;
      try {
        const Report read = Report::parse(to_json(found).dump(), "new");  // the reader refuses some of them
        const Judgement judgement = judge({"base", base}, {"new", read}, rules, options);
        code = judgement.exit_code;
        named = false;
        for (const std::string& line : lines_of(judgement))
          for (const std::string& name : mutated->names)
            named = named || (!usual.contains(line) && line.find(name) != std::string::npos);
        text = text_of(judgement, wide);
      } catch (const ReportError&) {
      }
      ++counts.by_exit[fmt::format("{}", code)];
      // With times tested, a suspicion is decided.
      const int least_exit = options.time && mutated->least_exit == 3 ? 1 : mutated->least_exit;
      if (code >= least_exit && (code != 0 || named)) continue;
      if (++failures <= 40)
        ADD_FAILURE() << "'" << kind << "' of " << mutated->names.back() << " (" << mutated->names.front()
                      << ") ends with exit code " << code << (named ? "" : " and no word") << "\n"
                      << (failures <= 3 ? text : "");
    }
  EXPECT_EQ(failures, 0u);
  return counts;
}

}  // namespace halfmark::reports::gate_test
