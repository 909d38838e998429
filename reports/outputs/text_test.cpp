#include "reports/outputs/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <vector>

#include "reports/gate/gate_testing.h"
#include "reports/outputs/clean.h"
#include "reports/outputs/phrases.h"
#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

// The lines are sorted by their outcome, so a line's place is not that of its case among the times.
TEST(JudgementText, GivesEachTimedCaseItsOwnNumbers) {
  Report base, found;
  uint64_t seed = 0;
  for (const double ratio : {1.0, 1.3, 0.7, 1.6, 1.0, 2.0}) {
    const std::string id = fmt::format("case{}/cpu/fp32/throughput", seed);
    base.records.push_back(gate_test::timed_record(id, 1, 24, ++seed));
    found.records.push_back(gate_test::timed_record(id, ratio, 24, ++seed));
  }
  const Judgement judgement = gate_test::gate(base, found, {.time = true});
  ASSERT_EQ(judgement.timing.cases.size(), 6u);
  size_t timed = 0;
  for (const JudgedLine& line : judgement.lines) {
    const CaseDecision* timing = timing_of(judgement, line);
    if (!timing) continue;
    ++timed;
    EXPECT_NEAR(timing->ratio, line.found / line.base, 0.01 * timing->ratio) << line.id;
  }
  EXPECT_EQ(timed, 6u);
}

TEST(JudgementText, SaysTheVerdictFirstThenTheCounts) {
  const std::string text = text_of(sample_judgement(), {});
  EXPECT_TRUE(text.starts_with("REGRESSION: 3 breaches, 1 case lost, 1 on a suspect machine, 1 inconclusive,")) << text;
  EXPECT_TRUE(has(lines_of(text).at(2), "base.json -> new.json")) << text;
}

TEST(JudgementText, TellsFailuresInWordsWithTheLineThatReproducesThem) {
  const std::string text = text_of(sample_judgement(), {});
  EXPECT_TRUE(has(text,
                  "ACCURACY_FAIL  cnn/b8_c3_s16_o10/cpu/amp-fp16/error, accuracy\n"
                  "  error.nmse at output is NaN, was 2.19e-07 (a NaN breaks every limit)\n"
                  "  reproduce: halfmark run --case cnn/b8_c3_s16_o10/cpu/amp-fp16/error\n"))
      << text;
  EXPECT_TRUE(has(text, "CASE_LOST  cnn/b8_c3_s16_o10/cpu/fp16/range, presence\n")) << text;
}

TEST(JudgementText, GivesTheNumbersWhereThereAreNoWords) {
  Judgement judgement;
  judgement.lines = {
      with_numbers(judged("a", Question::memory, Outcome::breach), "memory.peak", "train", 6291456, 8388608, 7340032,
                   "B"),
      with_numbers(judged("b", Question::accuracy, Outcome::breach), "error.nmse", "", 2e-7, NAN, 4e-7, "1")};
  conclude(judgement);
  const std::string text = text_of(judgement, {});
  EXPECT_TRUE(has(text, "\n  memory.peak at train: 6 MiB -> 8 MiB (+33.3 %), limit 7 MiB\n")) << text;
  EXPECT_TRUE(has(text, "\n  error.nmse: 2e-07 -> NaN, limit 4e-07\n")) << text;
}

TEST(JudgementText, GivesTimesTheirIntervalPairsAndProbability) {
  const std::string text = text_of(sample_judgement(), {});
  EXPECT_TRUE(has(text, "  time.step at hot: +6.1 % (95 % interval +5.2 ... +7.0 %), 24 pairs, corrected p 1.3e-06\n"))
      << text;
  EXPECT_TRUE(has(text, "  time.step at hot: +2.5 % (95 % interval -0.2 ... +4.9 %), 48 pairs, corrected p 0.02\n"))
      << text;
  EXPECT_TRUE(has(text, "  time.step at hot: +8.0 %, 4 pairs\n"))
      << text;  // after the screen only, there is neither interval nor test
  EXPECT_TRUE(has(text, "times     3 cases on 164 process runs; 2 seemed slower and were measured again, 0 seemed"))
      << text;
}

TEST(JudgementText, ListsPassesOnlyWhenAllIsAskedFor) {
  const std::string brief = text_of(sample_judgement(), {}), all = text_of(sample_judgement(), {.all = true});
  EXPECT_FALSE(has(brief, "\nPASS\n"));
  EXPECT_TRUE(has(all, "\nPASS\n"));
  EXPECT_TRUE(has(all, "\nINFO\n"));
}

TEST(JudgementText, CountsWhatItDoesNotList) {
  Judgement judgement;
  for (int i = 0; i < 53; ++i)
    judgement.lines.push_back(judged("case-" + std::to_string(i), Question::presence, Outcome::lost, "gone"));
  for (int i = 0; i < 21; ++i)
    judgement.lines.push_back(judged("case-" + std::to_string(i), Question::bits, Outcome::changed, "other bits"));
  conclude(judgement);
  const std::string text = text_of(judgement, {});
  EXPECT_TRUE(has(text, "  and 33 more; --all lists them\n")) << text;
  EXPECT_TRUE(has(text, "  and 1 more; --all lists them\n")) << text;
  EXPECT_FALSE(has(text_of(judgement, {.all = true}), "more; --all"));
}

TEST(JudgementText, IsColouredOnlyWhenAsked) {
  EXPECT_FALSE(has(text_of(sample_judgement(), {}), "\x1B"));
  EXPECT_TRUE(has(text_of(sample_judgement(), {.colour = true}), "\x1B[31mREGRESSION\x1B[0m: 3 breaches"));
}

TEST(JudgementText, FitsTheTerminalExceptForWhatIsCopied) {
  for (const size_t width : {80u, 100u, 140u}) {
    const std::string text = text_of(sample_judgement(), {.width = width});
    for (const std::string& line : lines_of(text))
      EXPECT_TRUE(line.size() <= width || line.starts_with("  reproduce: ")) << line;
  }
}

TEST(JudgementText, NamesOfAnyBytesDoNotDriveTheTerminal) {
  const std::string text = text_of(hostile_judgement(), {.all = true});
  EXPECT_EQ(text, valid_utf8(text));
  for (const std::string& line : lines_of(text)) EXPECT_EQ(line, printable(line));
}

TEST(JudgementText, OfNothingSaysSo) {
  Judgement judgement;
  conclude(judgement);
  EXPECT_TRUE(text_of(judgement, {}).starts_with("PASS: nothing was judged\n"));
}

}  // namespace
}  // namespace halfmark::reports
