#include "reports/outputs/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"

namespace halfmark::reports {

namespace {

// An infinity was measured and is written by name; NaN means that there is no number.
std::string number(double value) { return std::isnan(value) ? "" : csv_number(value); }

}  // namespace

std::string csv_field(std::string_view given) {
  std::string text = valid_utf8(given);
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string csv_row(const std::vector<std::string>& fields) { return fmt::format("{}\r\n", fmt::join(fields, ",")); }

std::string csv_of(const Judgement& judgement) {
  std::string text = csv_row({"case", "question", "verdict", "metric", "at", "base", "found", "limit", "unit", "ratio",
                              "ratio_lower", "ratio_upper", "pairs", "corrected_p", "words", "rerun"});
  for (const JudgedLine& line : judgement.lines) {
    std::vector<std::string> fields = {csv_field(line.id),
                                       std::string(name_of(line.question)),
                                       word_of(line.question, line.outcome),
                                       csv_field(line.metric),
                                       csv_field(line.at),
                                       number(line.base),
                                       found_phrase(line) == "NaN" ? "NaN" : number(line.found),
                                       number(line.limit),
                                       csv_field(line.unit)};
    const CaseDecision* timing = timing_of(judgement, line);
    if (timing)
      fields.insert(fields.end(),
                    {number(timing->ratio), number(timing->interval.lower), number(timing->interval.upper),
                     fmt::format("{}", timing->pairs), number(timing->corrected_p)});
    else
      fields.insert(fields.end(), 5, "");
    fields.insert(fields.end(), {csv_field(line.words), csv_field(line.rerun)});
    text += csv_row(fields);
  }
  return text;
}

std::string measurements_csv_of(const Report& report) {
  std::string text = csv_row({"id", "case_version", "subject", "device", "policy", "harness", "axes", "status",
                              "metric", "at", "value", "unit", "better", "kind", "interval_low", "interval_high",
                              "standard_error", "bound", "samples"});
  for (const Record& record : report.records) {
    std::vector<std::string> axes;
    for (const auto& [axis, setting] : record.axes) axes.push_back(axis + "=" + setting);
    const std::vector<std::string> about = {csv_field(record.id),
                                            fmt::format("{}", record.case_version),
                                            csv_field(record.subject),
                                            csv_field(record.device),
                                            csv_field(record.policy),
                                            csv_field(record.harness),
                                            csv_field(fmt::format("{}", fmt::join(axes, " "))),
                                            std::string(name_of(record.status))};
    for (const Measurement& one : record.measurements) {
      std::vector<std::string> fields = about;
      fields.insert(fields.end(),
                    {csv_field(one.metric), csv_field(one.at), misleads(record, one) ? "" : csv_number(one.value),
                     csv_field(one.unit), std::string(name_of(one.better)), std::string(name_of(one.kind)),
                     one.interval && !misleads(record, one) ? csv_number(one.interval->lower) : "",
                     one.interval && !misleads(record, one) ? csv_number(one.interval->upper) : "",
                     one.standard_error ? csv_number(*one.standard_error) : "", one.bound ? csv_number(*one.bound) : "",
                     fmt::format("{}", one.samples.size())});
      text += csv_row(fields);
    }
  }
  return text;
}

}  // namespace halfmark::reports
