#include "reports/outputs/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"

namespace halfmark::reports {

namespace {

constexpr size_t kInWords = 20;  // failed lines with full text
constexpr size_t kInTable = 20;  // lines of each other kind
constexpr size_t kNotes = 20;    // differences of the environments, remarks

Tone tone_of(Outcome outcome) {
  if (outcome <= Outcome::lost) return Tone::bad;
  return outcome == Outcome::improved || outcome == Outcome::pass ? Tone::good : Tone::strong;
}

std::string more(size_t count, size_t shown) {
  return count > shown ? fmt::format("  and {} more; --all lists them\n", count - shown) : "";
}

std::string verdict_text(const Judgement& judgement, const TextOptions& options) {
  const std::string_view verdict = name_of(judgement.verdict);
  const Tone tone = judgement.exit_code == 0 ? Tone::good : judgement.exit_code == 1 ? Tone::bad : Tone::strong;
  std::string text = wrapped(fmt::format("{}: ", verdict), counts_phrase(judgement), options.width);
  text.replace(0, verdict.size(), toned(verdict, tone, options.colour));
  text += wrapped("", printable(fmt::format("{} -> {}", judgement.base, judgement.candidate)), options.width);
  return text;
}

// A failed line: the case, its text, and the command that reproduces it. The command is not wrapped, so that it can be
// copied.
std::string failure_text(const Judgement& judgement, const JudgedLine& line, const TextOptions& options) {
  const std::string word = word_of(line.question, line.outcome);
  std::string text =
      wrapped(word + "  ", printable(fmt::format("{}, {}", line.id, name_of(line.question))), options.width);
  text.replace(0, word.size(), toned(word, tone_of(line.outcome), options.colour));
  if (const std::string timing = timing_phrase(timing_of(judgement, line)); !timing.empty())
    text += wrapped("  ", printable(fmt::format("{}: {}", subject_phrase(line), timing)), options.width);
  const std::string words = line.words.empty() ? numbers_phrase(line) : line.words;
  if (!words.empty()) text += wrapped("  ", printable(words), options.width);
  if (!line.rerun.empty())
    text += toned(fmt::format("  {}: {}", rerun_phrase(line), printable(line.rerun)), Tone::dim, options.colour) + "\n";
  return text;
}

std::string failures_text(const Judgement& judgement, const TextOptions& options) {
  std::string text;
  size_t count = 0;
  for (const JudgedLine& line : judgement.lines) {
    if (!fails(line) || (++count > kInWords && !options.all)) continue;
    (text += '\n') += failure_text(judgement, line, options);
  }
  return options.all ? text : text + more(count, kInWords);
}

// An id in two columns, subject and the rest: the whole id is wider than a key column may be.
std::pair<std::string, std::string> halves(const std::string& id) {
  size_t slash = id.find('/');
  if (slash != id.npos) slash = id.find('/', slash + 1);
  if (slash == id.npos) return {id, ""};
  return {id.substr(0, slash), id.substr(slash + 1)};
}

// The lines of one outcome: those with numbers as a table, the others as sentences below.
std::string group_text(const Judgement& judgement, Outcome outcome, const TextOptions& options) {
  const size_t count = count_of(judgement, outcome);
  if (count == 0) return "";
  Table table({"subject", "case", "what", "base", "now", "change", "limit"}, 2);
  std::string sentences, subject;
  std::set<std::string> explained;  // metrics whose limit says nothing without its reason
  size_t seen = 0;
  for (const JudgedLine& line : judgement.lines) {
    if (line.outcome != outcome) continue;
    if (++seen > kInTable && !options.all) break;
    const std::string found = found_phrase(line);
    if (found.empty()) {
      const std::string words = line.words.empty() ? "" : ": " + line.words;
      sentences +=
          wrapped("  ", printable(fmt::format("{}, {}{}", line.id, subject_phrase(line), words)), options.width);
      continue;
    }
    auto [first, rest] = halves(printable(line.id));
    const bool again = first == subject;
    subject = first;
    table.add({{again ? "" : first, Tone::strong},
               {rest},
               {printable(subject_phrase(line))},
               {printable(base_phrase(line))},
               {printable(found)},
               {change_phrase(line)},
               {printable(limit_phrase(line))}});
    if (outcome == Outcome::untrusted && !line.words.empty() && explained.insert(line.metric).second)
      sentences += wrapped("  ", printable(line.words), options.width);
  }
  if (outcome == Outcome::untrusted)
    sentences += wrapped("  ", "untrusted: not worse, but no evidence that it is right; it does not fail the gate",
                         options.width);
  const std::string word = word_of(Question::time, outcome);
  std::string text = fmt::format("\n{}\n", toned(word, tone_of(outcome), options.colour));
  if (!table.empty()) text += table.text(options);
  text += sentences;
  return options.all ? text : text + more(count, kInTable);
}

std::string list_text(std::string_view lead, const std::vector<std::string>& items, const TextOptions& options) {
  const size_t shown = options.all ? items.size() : std::min(items.size(), kNotes);
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += wrapped(lead, printable(items[i]), options.width);
  return text + more(items.size(), shown);
}

}  // namespace

std::string text_of(const Judgement& judgement, const TextOptions& options) {
  std::string text = verdict_text(judgement, options) + failures_text(judgement, options);
  for (const Outcome outcome : kOutcomes) {
    const bool only_counted = outcome == Outcome::pass || outcome == Outcome::information;
    if (outcome > Outcome::inconclusive && (!only_counted || options.all))
      text += group_text(judgement, outcome, options);
  }
  std::string notes = list_text("differs   ", judgement.differences, options);
  if (const std::string timing = all_timing_phrase(judgement); !timing.empty())
    notes += wrapped("times     ", timing, options.width);
  notes += list_text("note      ", judgement.remarks, options);
  if (!notes.empty()) (text += '\n') += notes;
  return text;
}

}  // namespace halfmark::reports
