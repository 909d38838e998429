// The result of a gate: a line for each question about each case, the verdict, and what was compared. `halfmark gate`
// and `halfmark ab` create it; the outputs (terminal, Markdown, JUnit, annotations, CSV, JSON) only print it.
//
// Terms: a Judgement is the whole result, with one Verdict. An Outcome is the result of one line. A Decision
// (statistics/decision.h) is the statistical result about times that the lines on time are derived from.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reports/statistics/decision.h"

namespace halfmark::reports {

// What a line is about. presence: is the case there, and was it measured? bits: is the fingerprint equal? accuracy: NaN
// and infinity counts, bounds, growth. reference: are the numbers of the fp64 reference those of the base? memory: bytes.
// time: pairs of process runs.
enum class Question : uint8_t { presence, bits, accuracy, reference, memory, time };
std::string_view name_of(Question question);

// The result of a line, worst first; outputs list lines in this order.
enum class Outcome : uint8_t {
  breach,               // slower, larger or less accurate than the rule allows
  lost,                 // the case failed, crashed, took too long, is missing, or is skipped in the new report
  environment_suspect,  // the machine changed: no verdict on the builds
  suspected,            // stored times differ more than noise explains; only `halfmark ab` can tell why
  inconclusive,         // neither a breach nor its absence could be shown
  untrusted,            // compared, but the comparison proves nothing, e.g. nearly all zeros
  changed,              // different bits within all limits; needs an entry in the acknowledgement file
  acknowledged,         // a change with such an entry
  improved,
  added,        // not in the base: listed, not judged
  information,  // printed, never judged
  pass,
};

// The word in reports: "REGRESSION" (a breach of time or memory), "ACCURACY_FAIL" (of numbers), "REFERENCE_CHANGED" (of
// numbers of the fp64 reference), "CASE_LOST", "ENV_SUSPECT", "SUSPECTED", "INCONCLUSIVE", "UNTRUSTED", "CHANGED",
// "ACKNOWLEDGED", "IMPROVED", "NEW", "INFO", "PASS".
std::string word_of(Question question, Outcome outcome);

struct JudgedLine {
  std::string id{};  // of the case
  Question question = Question::presence;
  Outcome outcome = Outcome::pass;
  std::string metric{}, at{};                   // the number that decided; empty if there is no single one
  double base = NAN, found = NAN, limit = NAN;  // in `unit`; NaN: none
  std::string unit = "1";
  std::string words{};  // one sentence: what, by how much, against which rule
  std::string rerun{};  // the command line that runs only this case again
};

// Start time, machine, and the git revisions of the two sides. Empty: unknown.
struct JudgedWhere {
  std::string started{};  // ISO 8601 with zone
  std::string machine{}, base{}, candidate{};
};

struct Judgement {
  std::string base{}, candidate{};  // names of the two sides: files, programs
  JudgedWhere where{};
  Verdict verdict = Verdict::pass;
  int exit_code = 0;                       // 1 before 3 before 0: a suspect machine does not hide a lost case
  std::vector<JudgedLine> lines{};         // worst first, then by id
  std::vector<std::string> differences{};  // of the environments: "driver: 550.54 -> 560.35"
  std::vector<std::string> remarks{};      // worth a line, without effect on the verdict
  nlohmann::ordered_json rules = nlohmann::ordered_json::object();  // the rules that were applied
  Decision timing{};                 // of `ab` and of `gate --time`: the decision that the lines on time are based on
  std::vector<std::string> timed{};  // the id of each of timing.cases; outputs find a line's numbers by it
};

// Sorts the lines and derives verdict and exit code from them.
void conclude(Judgement& judgement);

}  // namespace halfmark::reports
