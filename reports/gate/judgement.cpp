#include "reports/gate/judgement.h"

#include <algorithm>
#include <tuple>

namespace halfmark::reports {

std::string_view name_of(Question question) {
  switch (question) {
    case Question::presence:
      return "presence";
    case Question::bits:
      return "bits";
    case Question::accuracy:
      return "accuracy";
    case Question::reference:
      return "reference";
    case Question::memory:
      return "memory";
    case Question::time:
      return "time";
  }
  return "";
}

std::string word_of(Question question, Outcome outcome) {
  const bool about_numbers = question == Question::bits || question == Question::accuracy;
  switch (outcome) {
    case Outcome::breach:
      if (question == Question::reference) return "REFERENCE_CHANGED";
      return about_numbers ? "ACCURACY_FAIL" : "REGRESSION";
    case Outcome::lost:
      return "CASE_LOST";
    case Outcome::environment_suspect:
      return "ENV_SUSPECT";
    case Outcome::suspected:
      return "SUSPECTED";
    case Outcome::inconclusive:
      return "INCONCLUSIVE";
    case Outcome::untrusted:
      return "UNTRUSTED";
    case Outcome::changed:
      return "CHANGED";
    case Outcome::acknowledged:
      return "ACKNOWLEDGED";
    case Outcome::improved:
      return "IMPROVED";
    case Outcome::added:
      return "NEW";
    case Outcome::information:
      return "INFO";
    case Outcome::pass:
      return "PASS";
  }
  return "";
}

void conclude(Judgement& judgement) {
  std::vector<JudgedLine>& lines = judgement.lines;
  const auto order = [](const JudgedLine& line) {
    return std::tie(line.outcome, line.id, line.question, line.metric, line.at);
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const JudgedLine& a, const JudgedLine& b) { return order(a) < order(b); });
  const auto any = [&](Outcome outcome) {
    return std::any_of(lines.begin(), lines.end(), [&](const JudgedLine& line) { return line.outcome == outcome; });
  };
  judgement.verdict = any(Outcome::breach) || any(Outcome::lost)              ? Verdict::regression
                      : any(Outcome::environment_suspect)                     ? Verdict::environment_suspect
                      : any(Outcome::suspected) || any(Outcome::inconclusive) ? Verdict::inconclusive
                                                                              : Verdict::pass;
  judgement.exit_code = exit_code_of(judgement.verdict);
}

}  // namespace halfmark::reports
