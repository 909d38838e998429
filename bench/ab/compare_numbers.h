// Compares the numbers and the memory of two builds: each runs the cases of the other harnesses in separate processes,
// and the gate compares the two reports.
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

// `selection`: words and options for `run`, which choose the cases. Throws Error when a build cannot be run.
NumbersCompared compare_numbers(const Build& a, const Build& b, const std::vector<std::string>& selection,
                                const GateRules& rules, const GateOptions& options);

// If no line compares a time, a byte or a number, adds a line that says so: the verdict is then undecided.
void require_a_comparison(Judgement& judgement);

// Merges the lines, differences and remarks of both comparisons into one verdict.
Judgement joined(Judgement times, Judgement numbers);

}  // namespace halfmark::bench
