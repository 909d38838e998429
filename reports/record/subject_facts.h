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

struct SubjectFacts {
  std::string definition;                                         // of the record; empty: not known
  std::string data{};                                             // kind and hash of its files; empty: drawn
  std::map<std::pair<std::string, std::string>, double> numbers;  // by metric and place
  bool empty() const { return definition.empty() && data.empty() && numbers.empty(); }
  void merge(const SubjectFacts& other);  // adds what is not known yet
};

SubjectFacts subject_facts(const Record& record);

// "data drawn -> mnist 3f1c...", "work.parameters 26506 -> 53002", "definition 3f1c... -> 90ab...": the facts that differ; empty if those that both have
// are equal.
std::string difference_of(const SubjectFacts& base, const SubjectFacts& found);

}  // namespace halfmark::reports
