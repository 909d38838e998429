// What two builds compute and how many bytes they take: each runs the cases that time is not measured of, in processes
// of their own, and the gate judges the two reports.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/build.h"
#include "bench/namespaces.h"
#include "reports/gate/gate.h"

namespace halfmark::bench {

struct NumbersCompared {
  Judgement judgement;
  Report candidate;
};

// `selection`: words and options for `run`, which choose the cases. Throws Error when a build cannot be asked.
NumbersCompared compare_numbers(const Build& a, const Build& b, const std::vector<std::string>& selection,
                                const GateRules& rules, const GateOptions& options);

// The lines, differences and remarks of both, and one verdict.
Judgement joined(Judgement times, Judgement numbers);

}  // namespace halfmark::bench
