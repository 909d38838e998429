#include "bench/ab/compare_numbers.h"

#include <iterator>
#include <utility>

#include "reports/record/temporary_folder.h"

namespace halfmark::bench {

namespace {

// Two processes show whether a case gives the same bits every time.
constexpr const char* kProcesses = "2";

Report numbers_of(const Build& build, const std::vector<std::string>& selection, const std::string& file) {
  std::vector<std::string> arguments{"run", "--harness", "error,memory", "--processes", kProcesses, "-o", file};
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
  return {std::move(judgement), std::move(candidate.report)};
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
