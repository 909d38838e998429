#include "bench/commands/claims_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bench/run/case.h"
#include "bench/run/fingerprint.h"
#include "bench/run/work.h"
#include "models/subject.h"

namespace halfmark::bench {

using reports::Record;

namespace {

std::optional<std::string> wrong_number(const Harness& harness, const Record& record) {
  const auto row_of = [&](const std::string& metric) {
    return std::ranges::find(harness.metrics, metric, &MetricRow::metric);
  };
  for (const Measurement& one : record.measurements)
    if (const auto row = row_of(one.metric); row != harness.metrics.end()) {
      if (one.unit != row->unit) return fmt::format("{} has the unit '{}', not '{}'", one.metric, one.unit, row->unit);
      if (one.kind != row->kind)
        return fmt::format("{} is of the kind {}, not {}", one.metric, name_of(one.kind), name_of(row->kind));
    }
  for (const Series& one : record.series)
    if (const auto row = row_of(one.metric); row != harness.metrics.end() && one.y_unit != row->unit)
      return fmt::format("the curve {} has the unit '{}', not '{}'", one.metric, one.y_unit, row->unit);
  return {};
}

// Without what a run adds to every record after the fingerprint.
Findings findings_of_harness(const Record& record) {
  Findings findings{record.measurements, record.series, {}};
  std::erase_if(findings.measurements, [](const Measurement& one) {
    return std::ranges::find(work_table(), one.metric, &MetricRow::metric) != work_table().end();
  });
  return findings;
}

// "7" of "... --seed 7".
std::string seed_of(const Record& record) {
  const size_t at = record.repro.rfind(" --seed ");
  return at == record.repro.npos ? "0" : record.repro.substr(at + 8);
}

std::optional<std::string> why_refused(const Record& record, const Report& report) {
  const Case one = case_of(record.id);
  const std::string again = "; measure it again";
  if (!record.repro.empty() && seed_of(record) != std::to_string(report.run.seed))
    return fmt::format("was measured with the seed {}, the report says {}", seed_of(record), report.run.seed);
  if (!record.definition.empty() && record.definition != models::definition_of(*one.subject))
    return "was measured on another network than that of this program" + again;
  if (record.axes != one.axes) return "its axes are not those of its id: the report was changed after it was written";
  if (record.status != reports::Status::ok && record.status != reports::Status::suspect) return {};
  if (const auto wrong = wrong_number(*one.harness, record)) return *wrong + again;
  if (record.fingerprint != fingerprint_of(findings_of_harness(record)))
    return "its numbers are not those of its fingerprint: the report was changed after it was written" + again;
  return {};
}

}  // namespace

reports::RefusedCases refused_cases(const reports::ClaimList& list, const reports::Report& report) {
  reports::RefusedCases refused;
  for (const reports::Claim& claim : list.claims)
    for (const std::string& id : claim.cases) {
      const auto record = std::ranges::find(report.records, id, &Record::id);
      if (record == report.records.end() || refused.contains(id)) continue;
      if (auto why = why_refused(*record, report)) refused.emplace(id, std::move(*why));
    }
  return refused;
}

}  // namespace halfmark::bench
