// What a gate found: a line for each question it asked of each case, the verdict, and what was compared with what.
// `halfmark gate` and `halfmark ab` make it; the outputs (terminal, Markdown, JUnit, annotations, CSV, JSON) print it
// and decide nothing.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reports/statistics/decision.h"

namespace halfmark::reports {

// What was asked. presence: is the case there, and did it end? bits: the same fingerprint? accuracy: NaN and infinity
// counts, bounds, growth. memory: bytes. time: pairs of process runs.
enum class Question : uint8_t { presence, bits, accuracy, memory, time };
std::string_view name_of(Question question);

// What came of it, worst first; outputs list lines in this order.
enum class Outcome : uint8_t {
  breach,               // slower, larger or less accurate than the rule allows
  lost,                 // the case failed, crashed, took too long, vanished, or is skipped now
  environment_suspect,  // the machine moved: no verdict on the builds
  inconclusive,         // neither a breach nor none could be shown
  untrusted,            // compared, but nothing is proved: nearly all zeros
  changed,              // other bits inside every bound; wants an entry in the acknowledgement file
  acknowledged,         // such a change with its entry
  improved,
  added,        // not in the base: listed, not judged
  information,  // printed, never judged
  pass,
};

// As reports say it: "REGRESSION" (a breach of time or memory), "ACCURACY_FAIL" (of numbers), "CASE_LOST",
// "ENV_SUSPECT", "INCONCLUSIVE", "UNTRUSTED", "CHANGED", "ACKNOWLEDGED", "IMPROVED", "NEW", "INFO", "PASS".
std::string word_of(Question question, Outcome outcome);

struct JudgedLine {
  std::string id{};  // of the case
  Question question = Question::presence;
  Outcome outcome = Outcome::pass;
  std::string metric{}, at{};                   // what decided, empty where no single number did
  double base = NAN, found = NAN, limit = NAN;  // in `unit`; NaN: there is none
  std::string unit = "1";
  std::string words{};  // one sentence: what, by how much, against which rule
  std::string rerun{};  // the command line that runs this case again alone
};

// When and where, and the git revisions of the two sides. Empty: not known.
struct JudgedWhere {
  std::string started{};  // ISO 8601 with zone
  std::string machine{}, base{}, candidate{};
};

struct Judgement {
  std::string base{}, candidate{};  // what to call the two sides: file names, programs
  JudgedWhere where{};
  Verdict verdict = Verdict::pass;
  int exit_code = 0;                       // 1 before 3 before 0: a suspect machine hides no lost case
  std::vector<JudgedLine> lines{};         // worst first, then by id
  std::vector<std::string> differences{};  // of the environments: "driver: 550.54 -> 560.35"
  std::vector<std::string> remarks{};      // worth a line, no verdict
  nlohmann::ordered_json rules = nlohmann::ordered_json::object();  // echo of what was applied
  Decision timing{};                 // of `ab` and of `gate --time`: the decision behind the lines about time
  std::vector<std::string> timed{};  // the id of each of timing.cases; outputs find a line's numbers by it
};

// Sorts the lines and derives verdict and exit code from them.
void conclude(Judgement& judgement);

}  // namespace halfmark::reports
