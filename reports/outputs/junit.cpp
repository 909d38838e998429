#include "reports/outputs/junit.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"
#include "reports/outputs/xml.h"

namespace halfmark::reports {

namespace {

constexpr size_t kLongestMessage = 2000;  // bytes of a message; its element has the full text

// Bits belong to accuracy: they share a test case.
std::string_view suite_of(Question question) {
  if (question == Question::time) return "perf";
  return name_of(question == Question::bits ? Question::accuracy : question);
}

// The full text of a line.
std::string words_of(const Judgement& judgement, const JudgedLine& line) {
  std::string text = fmt::format("{}: {}", word_of(line.question, line.outcome), subject_phrase(line));
  const std::string base = base_phrase(line), found = found_phrase(line), limit = limit_phrase(line);
  if (const std::string timing = timing_phrase(timing_of(judgement, line)); !timing.empty()) text += ", " + timing;
  if (!base.empty()) text += fmt::format(", base {}", base);
  if (!found.empty()) text += fmt::format(", found {}", found);
  if (!limit.empty()) text += fmt::format(", limit {}", limit);
  if (!line.words.empty()) text += "\n" + line.words;
  if (!line.rerun.empty()) text += fmt::format("\n{}: {}", rerun_phrase(line), line.rerun);
  return text + "\n";
}

// The name of the element inside a test case, or nothing if it passed.
const char* element_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::breach:
      return "failure";
    case Outcome::lost:
      return "error";
    case Outcome::environment_suspect:
    case Outcome::suspected:
    case Outcome::inconclusive:
    case Outcome::untrusted:
      return "skipped";
    case Outcome::changed:
    case Outcome::acknowledged:
    case Outcome::improved:
    case Outcome::added:
    case Outcome::information:
    case Outcome::pass:
      return nullptr;
  }
  return nullptr;
}

using Lines = std::vector<const JudgedLine*>;  // worst first, as in the judgement

void add_case(pugi::xml_node suite, const Judgement& judgement, std::string_view question, const Lines& lines) {
  const JudgedLine& worst = *lines.front();
  pugi::xml_node node = suite.append_child("testcase");
  // Readers group test cases by class: question and subject, "accuracy.mlp".
  set(node, "classname", fmt::format("{}.{}", question, worst.id.substr(0, worst.id.find('/'))));
  set(node, "name", worst.id);
  std::string words;
  bool telling = false;  // a plain pass has no text
  for (const JudgedLine* line : lines) {
    words += words_of(judgement, *line);
    telling = telling || line->outcome != Outcome::pass || !line->words.empty();
  }
  if (const char* element = element_of(worst.outcome)) {
    pugi::xml_node child = node.append_child(element);
    const std::string word = word_of(worst.question, worst.outcome);
    if (worst.outcome <= Outcome::lost) set(child, "type", word);
    const std::string message = fmt::format("{}: {}", word, worst.words.empty() ? subject_phrase(worst) : worst.words);
    set(child, "message", middle_cut(valid_utf8(message), kLongestMessage));
    set_text(child, words);
  } else if (telling) {
    set_text(node.append_child("system-out"), words);
  }
}

}  // namespace

std::string junit_of(const Judgement& judgement) {
  std::map<std::string_view, std::map<std::string_view, Lines>> suites;  // [question][case]
  for (const JudgedLine& line : judgement.lines) suites[suite_of(line.question)][line.id].push_back(&line);

  pugi::xml_document document;
  pugi::xml_node root = begin_document(document, "testsuites");
  set(root, "name", "halfmark gate");
  for (const auto& [question, cases] : suites) {
    pugi::xml_node suite = root.append_child("testsuite");
    set(suite, "name", question);
    std::map<std::string_view, size_t> counts;
    for (const auto& [id, lines] : cases)
      if (const char* element = element_of(lines.front()->outcome)) ++counts[element];
    set_count(suite, "tests", cases.size());
    set_count(suite, "failures", counts["failure"]);
    set_count(suite, "errors", counts["error"]);
    set_count(suite, "skipped", counts["skipped"]);
    pugi::xml_node properties = suite.append_child("properties");
    add_property(properties, "base", judgement.base);
    add_property(properties, "candidate", judgement.candidate);
    add_property(properties, "verdict", name_of(judgement.verdict));
    add_property(properties, "exit_code", fmt::format("{}", judgement.exit_code));
    for (const auto& [id, lines] : cases) add_case(suite, judgement, question, lines);
  }
  return text_of(document);
}

}  // namespace halfmark::reports
