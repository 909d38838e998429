#include "reports/record/subject_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace halfmark::reports {

SubjectFacts subject_facts(const Record& record) {
  SubjectFacts facts;
  for (const Measurement& one : record.measurements)
    if (std::find(kSubjectMetrics.begin(), kSubjectMetrics.end(), one.metric) != kSubjectMetrics.end())
      facts.try_emplace({one.metric, one.at}, one.value);
  return facts;
}

std::string difference_of(const SubjectFacts& base, const SubjectFacts& found) {
  std::string text;
  for (const auto& [place, value] : base) {
    const auto other = found.find(place);
    if (other == found.end() || other->second == value) continue;
    const auto& [metric, at] = place;
    text += fmt::format("{}{}{}{} {} -> {}", text.empty() ? "" : ", ", metric, at.empty() ? "" : " at ", at, value,
                        other->second);
  }
  return text;
}

}  // namespace halfmark::reports
