// Whether two records of one case id measured the same subject: two programs may use one name for different subjects.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "reports/record/report.h"

namespace halfmark::reports {

// The metrics of a record that are the same on every device and under every policy. Old reports lack them.
inline constexpr std::array<std::string_view, 4> kSubjectMetrics = {"work.parameters", "work.input", "work.output",
                                                                    "work.flops"};

using SubjectFacts = std::map<std::pair<std::string, std::string>, double>;  // by metric and place

SubjectFacts subject_facts(const Record& record);

// "work.parameters 26506 -> 53002": the facts that differ; empty if those that both have are equal.
std::string difference_of(const SubjectFacts& base, const SubjectFacts& found);

}  // namespace halfmark::reports
