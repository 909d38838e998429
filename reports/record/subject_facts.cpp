#include "reports/record/subject_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace halfmark::reports {

SubjectFacts subject_facts(const Record& record) {
  SubjectFacts facts{.definition = record.definition, .data = {}, .numbers = {}};
  if (record.data) facts.data = fmt::format("{} {}", record.data->kind, record.data->hash);
  for (const Measurement& one : record.measurements)
    if (std::find(kSubjectMetrics.begin(), kSubjectMetrics.end(), one.metric) != kSubjectMetrics.end())
      facts.numbers.try_emplace({one.metric, one.at}, one.value);
  return facts;
}

void SubjectFacts::merge(const SubjectFacts& other) {
  if (definition.empty()) definition = other.definition;
  numbers.insert(other.numbers.begin(), other.numbers.end());
}

std::string difference_of(const SubjectFacts& base, const SubjectFacts& found) {
  std::string text;
  if (!base.definition.empty() && !found.definition.empty() && base.definition != found.definition)
    text = fmt::format("definition {} -> {}", base.definition, found.definition);
  const auto named = [](const std::string& data) { return data.empty() ? std::string("drawn") : data; };
  if (base.data != found.data)
    text += fmt::format("{}data {} -> {}", text.empty() ? "" : ", ", named(base.data), named(found.data));
  for (const auto& [place, value] : base.numbers) {
    const auto other = found.numbers.find(place);
    if (other == found.numbers.end() || other->second == value) continue;
    const auto& [metric, at] = place;
    text += fmt::format("{}{}{}{} {} -> {}", text.empty() ? "" : ", ", metric, at.empty() ? "" : " at ", at, value,
                        other->second);
  }
  return text;
}

}  // namespace halfmark::reports
