#include "reports/outputs/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"

namespace halfmark::reports {

namespace {

constexpr size_t kFailing = 20;         // rows that are visible without unfolding
constexpr size_t kItems = 10;           // the same for items of a list
constexpr size_t kLongestInCell = 600;  // bytes of a name or a sentence in a cell
constexpr size_t kLongestRun = 4000;    // bytes of a command line; a longer one is left out
constexpr size_t kReserve = 1024;       // bytes reserved for the end of the page
constexpr std::string_view kColumns =
    "| verdict | case | what | base | now | change | why |\n|---|---|---|---:|---:|---:|---|\n";

std::string cell(std::string_view text) { return markdown_text(middle_cut(valid_utf8(text), kLongestInCell)); }
std::string code(std::string_view text) { return markdown_code(middle_cut(valid_utf8(text), kLongestInCell)); }

// Text that grows up to a limit; further rows are only counted.
class Page {
 public:
  explicit Page(size_t limit) : room_(limit > kReserve ? limit - kReserve : 0) {}

  bool add(std::string_view text) {
    if (text_.size() + text.size() > room_) return false;
    text_ += text;
    return true;
  }
  void add_row(std::string_view row) {
    if (full_ || !add(row)) full_ = true, ++left_out_;
  }
  // The first items are visible, the rest is folded.
  void list(std::string_view title, const std::vector<std::string>& items) {
    std::vector<std::string> rows;
    // An invisible word joiner precedes each item: "1. ", "- " or spaces would start a list or a code block.
    for (const std::string& item : items) rows.push_back(fmt::format("- &#8288;{}\n", cell(item)));
    if (!rows.empty()) add(fmt::format("\n{}\n\n", title));
    const size_t shown = std::min(rows.size(), kItems);
    for (size_t i = 0; i < shown; ++i) add_row(rows[i]);
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown));
    fold(fmt::format("{} more", rows.size()), "", rows);
  }
  // A folded table with a line that unfolds it.
  void fold(std::string_view title, std::string_view columns, const std::vector<std::string>& rows) {
    if (rows.empty()) return;
    const bool opened = !full_ && add(fmt::format("\n<details><summary>{}</summary>\n\n{}", title, columns));
    full_ = full_ || !opened;
    for (const std::string& row : rows) add_row(row);
    if (opened) text_ += "\n</details>\n";  // uses the reserved bytes
  }
  std::string close() {
    if (left_out_ > 0)
      text_ +=
          fmt::format("\n{} {} left out: the page would have been too long. The JSON and CSV outputs are complete.\n",
                      left_out_, left_out_ == 1 ? "row is" : "rows are");
    return std::move(text_);
  }

 private:
  size_t room_, left_out_ = 0;
  bool full_ = false;
  std::string text_;
};

std::string row_of(const Judgement& judgement, const JudgedLine& line) {
  std::vector<std::string> why;
  if (const std::string timing = timing_phrase(timing_of(judgement, line)); !timing.empty())
    why.push_back(cell(timing));
  if (!line.words.empty())
    why.push_back(cell(line.words));
  else if (const std::string limit = limit_phrase(line); !limit.empty())
    why.push_back(cell("limit " + limit));
  if (!line.rerun.empty() && line.rerun.size() <= kLongestRun && fails(line))
    why.push_back(fmt::format("{}: {}", rerun_phrase(line), markdown_code(line.rerun)));
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", word_of(line.question, line.outcome), code(line.id),
                     cell(subject_phrase(line)), cell(base_phrase(line)), cell(found_phrase(line)),
                     cell(change_phrase(line)), fmt::join(why, "<br>"));
}

}  // namespace

std::string markdown_of(const Judgement& judgement, size_t limit) {
  Page page(limit);
  page.add(fmt::format("**{}**: {}\n", name_of(judgement.verdict), counts_phrase(judgement)));
  page.add(fmt::format("\n{} → {}\n", code(judgement.base), code(judgement.candidate)));

  std::vector<std::string> failing, others;
  std::map<std::string, std::vector<std::string_view>> passed;  // the questions of each case
  for (const JudgedLine& line : judgement.lines) {
    if (line.outcome == Outcome::pass)
      passed[line.id].push_back(name_of(line.question));
    else
      (fails(line) && failing.size() < kFailing ? failing : others).push_back(row_of(judgement, line));
  }
  std::vector<std::string> passes;
  for (const auto& [id, questions] : passed)
    passes.push_back(fmt::format("| {} | {} |\n", code(id), fmt::join(questions, ", ")));

  if (!failing.empty()) page.add(fmt::format("\n{}", kColumns));
  for (const std::string& row : failing) page.add_row(row);
  std::vector<std::string> notes = judgement.remarks;
  if (const std::string timing = all_timing_phrase(judgement); !timing.empty())
    notes.insert(notes.begin(), "times: " + timing);
  page.list("The environments differ:", judgement.differences);
  page.list("Worth noticing:", notes);
  page.fold(fmt::format("{} other {}", others.size(), others.size() == 1 ? "line" : "lines"), kColumns, others);
  page.fold(fmt::format("{} {} that passed", passes.size(), passes.size() == 1 ? "case" : "cases"),
            "| case | passed |\n|---|---|\n", passes);
  return page.close();
}

}  // namespace halfmark::reports
