#include "reports/outputs/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"

namespace halfmark::reports {

namespace {

std::string field(std::string_view given) {
  std::string text = valid_utf8(given);
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

// Infinity is a finding and has a name; NaN stands for "there is none".
std::string number(double value) {
  if (std::isnan(value)) return "";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string row(const std::vector<std::string>& fields) { return fmt::format("{}\r\n", fmt::join(fields, ",")); }

}  // namespace

std::string csv_of(const Judgement& judgement) {
  std::string text = row({"case", "question", "verdict", "metric", "at", "base", "found", "limit", "unit", "ratio",
                          "ratio_lower", "ratio_upper", "pairs", "corrected_p", "words", "rerun"});
  for (const JudgedLine& line : judgement.lines) {
    std::vector<std::string> fields = {field(line.id),
                                       std::string(name_of(line.question)),
                                       word_of(line.question, line.outcome),
                                       field(line.metric),
                                       field(line.at),
                                       number(line.base),
                                       found_phrase(line) == "NaN" ? "NaN" : number(line.found),
                                       number(line.limit),
                                       field(line.unit)};
    const CaseDecision* timing = timing_of(judgement, line);
    if (timing)
      fields.insert(fields.end(),
                    {number(timing->ratio), number(timing->interval.lower), number(timing->interval.upper),
                     fmt::format("{}", timing->pairs), number(timing->corrected_p)});
    else
      fields.insert(fields.end(), 5, "");
    fields.insert(fields.end(), {field(line.words), field(line.rerun)});
    text += row(fields);
  }
  return text;
}

}  // namespace halfmark::reports
