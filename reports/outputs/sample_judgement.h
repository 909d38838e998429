// Synthetic judgements for the tests of this folder: one with every outcome, and one whose names try to break every format.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "reports/outputs/phrases.h"

namespace halfmark::reports {

inline JudgedLine judged(const std::string& id, Question question, Outcome outcome, const std::string& words = "") {
  JudgedLine line;
  line.id = id;
  line.question = question;
  line.outcome = outcome;
  line.words = words;
  line.rerun = "halfmark run --case " + id;
  return line;
}

inline JudgedLine with_numbers(JudgedLine line, const std::string& metric, const std::string& at, double base,
                               double found, double limit, const std::string& unit) {
  line.metric = metric;
  line.at = at;
  line.base = base;
  line.found = found;
  line.limit = limit;
  line.unit = unit;
  return line;
}

// Every outcome once; the lines on time have a decision.
inline Judgement sample_judgement() {
  using enum Question;
  using enum Outcome;
  const std::string mlp = "mlp/b32_i64_h128_o10/cpu/", cnn = "cnn/b8_c3_s16_o10/cpu/";
  Judgement judgement;
  judgement.base = "base.json";
  judgement.candidate = "new.json";
  judgement.rules = {{"memory", {{"relative", 0.01}, {"absolute", 1048576}}}, {"time", {{"floor", 0.03}}}};
  judgement.lines = {
      with_numbers(judged(mlp + "fp32/throughput", time, breach, "slower by at least the minimum effect of 3 %"),
                   "time.step", "hot", 3.04e-4, 3.23e-4, NAN, "s"),
      with_numbers(
          judged(cnn + "amp-bf16/memory", memory, breach,
                 "memory.peak at train is 8 MiB, was 6 MiB (33.3% worse); the rule allows 1 MiB worse than the base"),
          "memory.peak", "train", 6291456, 8388608, 7340032, "B"),
      with_numbers(judged(cnn + "amp-fp16/error", accuracy, breach,
                          "error.nmse at output is NaN, was 2.19e-07 (a NaN breaks every limit)"),
                   "error.nmse", "output", 2.19e-7, NAN, 4.4e-7, "1"),
      judged(cnn + "fp16/range", presence, lost, "is in the base but not in the new report"),
      with_numbers(judged(cnn + "bf16/throughput", time, environment_suspect, "a control changed as well"), "time.step",
                   "hot", 1.2e-3, 1.3e-3, NAN, "s"),
      with_numbers(judged(mlp + "bf16/throughput", time, inconclusive, "open after 48 pairs"), "time.step", "hot", 2e-4,
                   2.05e-4, NAN, "s"),
      judged(mlp + "fp16/error", accuracy, untrusted, "97 % of the output is zero"),
      judged(mlp + "fp32/error", bits, changed, "other bits, every bound holds: 5d0c7a11 -> 77aa0e42"),
      judged(mlp + "tf32/error", bits, acknowledged, "acknowledged until 2027-01-01: new matmul"),
      with_numbers(judged(mlp + "fp16/memory", memory, improved), "memory.peak", "train", 645116, 512000, NAN, "B"),
      judged(mlp + "bf16/memory", presence, added),
      with_numbers(judged(mlp + "fp32/memory", memory, information), "memory.slope", "", 0, 0, NAN, "B"),
      with_numbers(judged(mlp + "fp32/memory", memory, pass), "memory.peak", "train", 645116, 645116, 1693692, "B"),
      judged(mlp + "fp32/memory", presence, pass),
  };
  judgement.differences = {"driver: 550.54 -> 560.35", "libraries.onednn: 2.6.3 -> 3.4.1"};
  judgement.remarks = {"1 case of the base is skipped in both reports"};
  judgement.timed = {mlp + "fp32/throughput", mlp + "bf16/throughput", cnn + "bf16/throughput"};
  CaseDecision slower;
  slower.verdict = Verdict::regression;
  slower.stage = Stage::confirmed;
  slower.pairs = 24;
  slower.ratio = 1.061;
  slower.interval = {1.052, 1.070};
  slower.p = 1.2e-7;
  slower.corrected_p = 1.3e-6;
  slower.minimum_effect = 0.03;
  CaseDecision open = slower;
  open.verdict = Verdict::inconclusive;
  open.stage = Stage::extended;
  open.pairs = 48;
  open.ratio = 1.025;
  open.interval = {0.998, 1.049};
  open.p = open.corrected_p = 0.02;
  CaseDecision screened;
  screened.pairs = 4;
  screened.ratio = 1.08;
  judgement.timing.cases = {slower, open, screened};
  judgement.timing.routed = 2;
  judgement.timing.process_runs = 164;
  judgement.timing.largest_control = 0.0012;
  judgement.timing.global_shift = 0.0004;
  conclude(judgement);
  return judgement;
}

// Keeps the zero bytes inside the literal.
template <size_t N>
std::string bytes(const char (&text)[N]) {
  return {text, N - 1};
}

// Names that end a field, a cell, an attribute, a command, a line or a string in some format.
inline std::vector<std::string> hostile_names() {
  return {
      "quotes \"double\" 'single' `back`",
      "commas, semicolons; tabs\tand = signs",
      "two\nlines\r\nand a third",
      "| pipe || \\| escaped \\\\| pipe |",
      "100 % %0A %25 ::error title=x::y",
      "::stop-commands::end",
      "]]> --> <!-- <![CDATA[ <b>bold</b> &amp; &#64; <details>",
      "*stars* _lines_ **more** ~~gone~~ [link](http://example.org) ![image](x.png) $a$ #12 www.example.org",
      "@someone and someone@example.org",
      "\xF0\x9F\x94\xA5 \xC3\xA9\xE2\x82\xAC",  // emoji, e acute, euro
      "invalid \xFF\xFE \xC3 \xED\xA0\x80 \xC0\xAF \xF4\x90\x80\x80 end",
      bytes("control \x01\x02\x08\x0B\x1B[31m\x7F and nul \0 inside"),
      "\xC2\x9B"
      "31m \xE2\x80\xAE turned round \xEF\xBF\xBE \xEF\xBF\xBF",
      "- item",
      "1. item",
      "    code",
      "=HYPERLINK(1)",
      " blanks at both ends ",
      "long " + std::string(10000, 'x') + " end",
      "a/b/c/" + std::string(10000, '|'),
  };
}

inline Judgement hostile_judgement() {
  Judgement judgement;
  const std::vector<std::string> names = hostile_names();
  judgement.base = names[0] + names[2];
  judgement.candidate = names[10] + names[3];
  size_t index = 0;
  for (const std::string& name : names) {
    const Outcome outcome = kOutcomes[index++ % kOutcomes.size()];
    JudgedLine line =
        with_numbers(judged(name, Question::accuracy, outcome, "words: " + name), name, name, 1, INFINITY, NAN, name);
    judgement.lines.push_back(line);
    judgement.lines.push_back(judged(name, Question::presence, Outcome::pass));
  }
  judgement.differences = names;
  judgement.remarks = names;
  judgement.rules = {{names[0], names[10]}};
  conclude(judgement);
  return judgement;
}

}  // namespace halfmark::reports
