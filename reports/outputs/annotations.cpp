#include "reports/outputs/annotations.h"

#include <fmt/format.h>

#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"

namespace halfmark::reports {

namespace {

constexpr size_t kMostAnnotations = 5;
constexpr size_t kLongestPart = 1000;  // bytes of a name, a sentence, a command line

std::string part(std::string_view text) { return middle_cut(printable(text), kLongestPart); }

// "error", "warning", or nothing for lines that need no attention.
std::string_view level_of(Outcome outcome) {
  if (outcome <= Outcome::lost) return "error";
  return outcome <= Outcome::changed ? "warning" : "";
}

std::string annotation(const Judgement& judgement, const JudgedLine& line) {
  std::string message = fmt::format("{}, {}", part(line.id), name_of(line.question));
  if (const std::string timing = timing_phrase(timing_of(judgement, line)); !timing.empty())
    message += fmt::format("\n{}: {}", part(subject_phrase(line)), timing);
  const std::string words = line.words.empty() ? numbers_phrase(line) : line.words;
  if (!words.empty()) message += "\n" + part(words);
  if (!line.rerun.empty()) message += fmt::format("\n{}: {}", rerun_phrase(line), part(line.rerun));
  return fmt::format("::{} title={}::{}\n", level_of(line.outcome),
                     workflow_property(fmt::format("halfmark {}", word_of(line.question, line.outcome))),
                     workflow_message(message));
}

}  // namespace

std::string annotations_of(const Judgement& judgement) {
  std::vector<const JudgedLine*> findings;
  for (const JudgedLine& line : judgement.lines)
    if (!level_of(line.outcome).empty()) findings.push_back(&line);

  std::string text;
  const size_t shown = findings.size() > kMostAnnotations ? kMostAnnotations - 1 : findings.size();
  for (size_t i = 0; i < shown; ++i) text += annotation(judgement, *findings[i]);
  if (shown < findings.size()) {
    // Lines are sorted, worst first, so that the rest is at most as bad as the next one.
    text += fmt::format("::{} title=halfmark::{} more findings; the summary of this step lists them ({})\n",
                        level_of(findings[shown]->outcome), findings.size() - shown, counts_phrase(judgement));
  }
  return text;
}

}  // namespace halfmark::reports
