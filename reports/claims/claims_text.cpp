#include "reports/claims/claims_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "reports/record/json_number.h"
#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/text/compare.h"

namespace halfmark::reports {

namespace {

using nlohmann::ordered_json;

constexpr std::array kOrder = {ClaimOutcome::confirmed, ClaimOutcome::refuted, ClaimOutcome::conditional,
                               ClaimOutcome::inconclusive, ClaimOutcome::not_testable};

constexpr size_t kIdWidth = 7, kVerdictWidth = 18;  // columns
constexpr size_t kBesideWidth = 70;                 // of a terminal that has room for a text beside them

Tone tone_of(ClaimOutcome outcome) {
  switch (outcome) {
    case ClaimOutcome::confirmed:
      return Tone::good;
    case ClaimOutcome::refuted:
      return Tone::bad;
    case ClaimOutcome::conditional:
      return Tone::strong;
    case ClaimOutcome::inconclusive:
    case ClaimOutcome::not_testable:
      return Tone::dim;
  }
  return Tone::plain;
}

std::string number_text(const UncertainNumber& number, const std::string& unit) {
  const auto text = [&](double value, int digits) {
    if (unit == "B" || unit == "B/s") return human(value, unit);
    return fmt::format("{:.{}g}{}{}", value, digits, unit == "1" ? "" : " ", unit == "1" ? "" : unit);
  };
  if (!(number.range.lower < number.range.upper)) return text(number.value, 4);
  return fmt::format("{} ({} to {})", text(number.value, 4), text(number.range.lower, 3), text(number.range.upper, 3));
}

std::string numbers_text(const ClaimVerdict& one) {
  std::vector<std::string> texts;
  for (const Evidence& evidence : one.evidence)
    texts.push_back(fmt::format("{} = {}", evidence.name, number_text(evidence.number, evidence.unit)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string_view name_of(NumberSource::Take take) {
  switch (take) {
    case NumberSource::Take::only:
      return "";
    case NumberSource::Take::max:
      return "the largest ";
    case NumberSource::Take::min:
      return "the smallest ";
    case NumberSource::Take::mean:
      return "the mean ";
    case NumberSource::Take::sum:
      return "the sum of ";
  }
  return "";
}

// "the largest `underflow.zero` at `scale=2^7` of `ID`, `ID`"
std::string source_text(const NumberSource& source) {
  std::string text = fmt::format("{}`{}`", name_of(source.take), source.metric);
  if (!source.at.empty()) text += " at `" + source.at + "`";
  if (source.x) text += fmt::format(" at x = {:g}", *source.x);
  if (source.reaches) text += fmt::format(", the first x at which it reaches {:g}", *source.reaches);
  if (source.falls_below) text += fmt::format(", the first x at which it falls below {:g}", *source.falls_below);
  return text + fmt::format(" of `{}`", fmt::join(source.cases, "`, `"));
}

std::string conditions_text(const std::vector<Expression>& list) {
  std::vector<std::string> texts;
  for (const Expression& one : list) texts.push_back(one.text());
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string counts_text(const std::vector<ClaimVerdict>& verdicts) {
  std::vector<std::string> parts;
  size_t decided = 0;
  for (const ClaimOutcome outcome : kOrder) {
    const auto count = static_cast<size_t>(std::ranges::count(verdicts, outcome, &ClaimVerdict::outcome));
    if (outcome == ClaimOutcome::confirmed || outcome == ClaimOutcome::refuted || outcome == ClaimOutcome::conditional)
      decided += count;
    if (count > 0) parts.push_back(fmt::format("{} {}", count, name_of(outcome)));
  }
  return fmt::format("{} of {} claims decided: {}", decided, verdicts.size(), fmt::join(parts, ", "));
}

// Text in a cell of a Markdown table.
std::string cell(std::string text) {
  for (size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

// Which of the claims on a question are right, and which are not, by their verdicts.
struct ClaimAnswer {
  const ClaimQuestion* question;
  std::map<ClaimOutcome, std::vector<std::string>> claims;
  std::string of(ClaimOutcome outcome) const {
    const auto found = claims.find(outcome);
    return found == claims.end() ? "" : fmt::format("{}", fmt::join(found->second, ", "));
  }
  std::string undecided() const {
    const std::string open = of(ClaimOutcome::inconclusive), not_testable = of(ClaimOutcome::not_testable);
    return open + (open.empty() || not_testable.empty() ? "" : ", ") + not_testable;
  }
};

// Of the questions all of whose claims have verdicts.
std::vector<ClaimAnswer> answers(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts) {
  std::vector<ClaimAnswer> all;
  for (const ClaimQuestion& question : list.questions) {
    ClaimAnswer answer{&question, {}};
    size_t known = 0;
    for (const ClaimVerdict& one : verdicts) {
      if (std::ranges::find(question.claims, one.claim->id) == question.claims.end()) continue;
      answer.claims[one.outcome].push_back(one.claim->id);
      ++known;
    }
    if (known == question.claims.size()) all.push_back(std::move(answer));
  }
  return all;
}

std::string answers_text(const std::vector<ClaimAnswer>& all, const TextOptions& options) {
  if (all.empty()) return "";
  std::string text = "\n" + toned("where the claims contradict each other", Tone::strong, options.colour) + "\n";
  for (const ClaimAnswer& one : all) {
    std::string line;
    for (const auto& [word, ids] : {std::pair{"right", one.of(ClaimOutcome::confirmed)},
                                    {"right in some cases", one.of(ClaimOutcome::conditional)},
                                    {"wrong", one.of(ClaimOutcome::refuted)},
                                    {"not decided", one.undecided()}})
      if (!ids.empty()) line += fmt::format("{}{}: {}", line.empty() ? "" : "; ", word, ids);
    text += wrapped("", one.question->text + " " + line, options.width);
  }
  return text;
}

std::string answers_markdown(const std::vector<ClaimAnswer>& all) {
  if (all.empty()) return "";
  std::string text =
      "\n## Where the claims contradict each other\n\n| question | right | right in some cases | wrong | not decided "
      "|\n|---|---|---|---|---|\n";
  for (const ClaimAnswer& one : all)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", cell(one.question->text), one.of(ClaimOutcome::confirmed),
                        one.of(ClaimOutcome::conditional), one.of(ClaimOutcome::refuted), one.undecided());
  return text;
}

}  // namespace

std::vector<std::string> claims_remarks(const ClaimList& list, const Report& report) {
  std::vector<std::string> remarks;
  if (list.is_quick) {
    const auto count = static_cast<size_t>(std::ranges::count_if(list.claims, &Claim::is_shortened));
    remarks.push_back(count == 0 ? "a quick run; these claims have the same cases in the full one"
                                 : fmt::format("a quick run: fewer seeds, steps or samples for {} of {}", count,
                                               counted(list.claims.size(), "claim")));
  }
  if (const std::string partial = partial_text(report); !partial.empty())
    remarks.push_back("the report " + partial + "; claims without their cases are INCONCLUSIVE");
  return remarks;
}

std::string claims_text(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const TextOptions& options,
                        const std::vector<std::string>& remarks) {
  std::string text;
  std::string_view article;
  // In a narrow terminal the text is below the verdict and not beside it.
  const bool is_beside = options.width >= kBesideWidth;
  const std::string indent(is_beside ? kIdWidth + kVerdictWidth : 2, ' ');
  const auto add = [&](std::string_view part) { text += wrapped(indent, part, options.width, true); };
  for (const ClaimVerdict& one : verdicts) {
    if (one.claim->article != article) {
      article = one.claim->article;
      std::string heading = wrapped(fmt::format("{}: ", article), list.articles.at(one.claim->article), options.width);
      heading.pop_back();
      text += (text.empty() ? "" : "\n") + toned(heading, Tone::strong, options.colour) + "\n";
    }
    const std::string verdict(name_of(one.outcome)), lead = fmt::format("{:<{}}", one.claim->id, kIdWidth);
    std::string lines =
        is_beside ? wrapped(lead + fmt::format("{:<{}}", verdict, kVerdictWidth), one.claim->text, options.width)
                  : lead + verdict + "\n" + wrapped(indent, one.claim->text, options.width);
    if (options.colour)
      lines.replace(lines.find(verdict), verdict.size(), toned(verdict, tone_of(one.outcome), options.colour));
    text += lines;
    if (!one.reason.empty()) add(one.reason);
    if (!one.evidence.empty()) add(numbers_text(one));
    if (!options.all) continue;
    if (!one.claim->rule.empty()) add("rule: " + one.claim->rule);
    if (!one.claim->confirmed.empty()) add("confirmed if: " + conditions_text(one.claim->confirmed));
    if (!one.claim->refuted.empty()) add("refuted if: " + conditions_text(one.claim->refuted));
    if (!one.claim->note.empty()) add(one.claim->note);
    for (const std::string& id : one.claim->cases) add(id);
  }
  text += answers_text(answers(list, verdicts), options) + "\n" + wrapped("", counts_text(verdicts), options.width);
  for (const std::string& remark : remarks) text += wrapped("", remark, options.width);
  return text;
}

std::string claims_markdown(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const Report& report,
                            const std::string& command) {
  std::string text =
      "# Claims about mixed precision, decided by measurement\n\nWritten by `" + command + "`; do not edit. ";
  text += fmt::format("Seed {}, started {}.\n\n", report.run.seed, report.run.started);
  for (const auto& [name, value] : environment_facts(report.environment))
    if (name == "halfmark.git" || name == "cpu.model" || name.starts_with("libraries."))
      text += fmt::format("- {}: {}\n", name, value);
  for (const std::string& line : substitutes(report)) text += fmt::format("- {}\n", printable(line));
  text += "\n" + counts_text(verdicts) + ".\n";
  for (const std::string& remark : claims_remarks(list, report)) text += "\n**Note: " + remark + ".**\n";
  text +=
      "\nA verdict follows from the numbers by the rule. CONDITIONAL: true in some cases and not in others; the "
      "numbers say in "
      "which. Ranges are two standard errors or the interval of the metric: 90 % of loss gaps, 95 % of times. "
      "`halfmark claims ID --all` measures one again; the "
      "sources of each number are at the end.\n";
  std::string_view article;
  for (const ClaimVerdict& one : verdicts) {
    if (one.claim->article != article) {
      article = one.claim->article;
      text += fmt::format("\n## {}\n\n| claim | verdict | rule | numbers |\n|---|---|---|---|\n",
                          list.articles.at(one.claim->article));
    }
    const std::string note = one.claim->note.empty() ? "" : ". " + one.claim->note;
    text += fmt::format("| {} {} | {} | {} | {} |\n", one.claim->id, cell(one.claim->text), name_of(one.outcome),
                        cell(one.claim->rule + note), cell(one.reason.empty() ? numbers_text(one) : one.reason));
  }
  text += answers_markdown(answers(list, verdicts));
  text +=
      "\n## Sources\n\nThe metric, place and cases of each number; `halfmark run --case ID` measures a case again.\n\n";
  for (const ClaimVerdict& one : verdicts) {
    if (!one.claim->numbers.empty()) text += "- " + one.claim->id + "\n";
    for (const auto& [name, source] : one.claim->numbers) text += "  - " + name + ": " + source_text(source) + "\n";
  }
  return text;
}

ordered_json claims_json(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const Report& report) {
  ordered_json all = {{"claims", 1},
                      {"articles", list.articles},
                      {"environment", report.environment},
                      {"seed", report.run.seed},
                      {"started", report.run.started},
                      {"quick", list.is_quick},
                      {"complete", report.run.complete},
                      {"remarks", claims_remarks(list, report)},
                      {"verdicts", ordered_json::array()},
                      {"questions", ordered_json::array()}};
  for (const ClaimVerdict& one : verdicts) {
    ordered_json numbers = ordered_json::array();
    for (const Evidence& evidence : one.evidence)
      numbers.push_back({{"name", evidence.name},
                         {"unit", evidence.unit},
                         {"value", json_number(evidence.number.value)},
                         {"lower", json_number(evidence.number.range.lower)},
                         {"upper", json_number(evidence.number.range.upper)},
                         {"metric", evidence.metric},
                         {"at", evidence.at},
                         {"cases", evidence.cases}});
    ordered_json confirmed = ordered_json::array(), refuted = ordered_json::array();
    for (const Expression& condition : one.claim->confirmed) confirmed.push_back(condition.text());
    for (const Expression& condition : one.claim->refuted) refuted.push_back(condition.text());
    all["verdicts"].push_back({{"id", one.claim->id},
                               {"claim", one.claim->text},
                               {"verdict", name_of(one.outcome)},
                               {"reason", one.reason},
                               {"quick", list.is_quick && one.claim->is_shortened},
                               {"rule", one.claim->rule},
                               {"confirmed_if", confirmed},
                               {"refuted_if", refuted},
                               {"numbers", numbers},
                               {"cases", one.claim->cases}});
  }
  for (const ClaimAnswer& one : answers(list, verdicts)) {
    ordered_json claims = ordered_json::object();
    for (const auto& [outcome, ids] : one.claims)
      for (const std::string& id : ids) claims[id] = name_of(outcome);
    all["questions"].push_back({{"question", one.question->text}, {"claims", claims}});
  }
  return all;
}

}  // namespace halfmark::reports
