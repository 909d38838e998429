#include "bench/ab/compare_numbers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "reports/record/temporary_folder.h"

namespace halfmark::bench {

namespace {

// Those whose numbers depend on the build and not on the machine's speed.
constexpr const char* kHarnesses = "error,memory,training,batchnorm_drift";
// Two processes show whether a case gives the same bits every time.
constexpr const char* kProcesses = "2";

Report numbers_of(const Build& build, const std::vector<std::string>& selection, const std::string& file) {
  std::vector<std::string> arguments{"run", "--harness", kHarnesses, "--processes", kProcesses, "-o", file};
  arguments.insert(arguments.end(), selection.begin(), selection.end());
  build.output(arguments);
  return Report::load(file);
}

template <class T>
void append(std::vector<T>& to, std::vector<T> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

NumbersCompared compare_numbers(const Build& a, const Build& b, const std::vector<std::string>& selection,
                                const GateRules& rules, const GateOptions& options) {
  const TemporaryFolder folder("ab");
  const NamedReport base{a.given(), numbers_of(a, selection, (folder / "a.json").string())};
  NamedReport candidate{b.given(), numbers_of(b, selection, (folder / "b.json").string())};
  Judgement judgement = judge(base, candidate, rules, options);
  judgement.base = a.description(), judgement.candidate = b.description();
  return {std::move(judgement), std::move(candidate.report)};
}

void require_a_comparison(Judgement& judgement) {
  const bool compared = std::any_of(judgement.lines.begin(), judgement.lines.end(), [](const JudgedLine& line) {
    return line.question != Question::presence && line.outcome != Outcome::information;
  });
  if (compared) return;
  JudgedLine line;
  line.id = "all cases", line.outcome = Outcome::inconclusive;
  line.words = "nothing was compared: no case gave a time, a byte or a number in both builds";
  judgement.lines.push_back(std::move(line));
  conclude(judgement);
}

Judgement joined(Judgement times, Judgement numbers) {
  append(times.lines, std::move(numbers.lines));
  append(times.differences, std::move(numbers.differences));
  append(times.remarks, std::move(numbers.remarks));
  times.rules["numbers"] = std::move(numbers.rules);
  conclude(times);
  return times;
}

}  // namespace halfmark::bench
