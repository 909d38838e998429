// Phrases that all outputs share: the verdict in one line, counts of outcomes, the numbers and times of a line.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// Every outcome, worst first.
inline constexpr std::array kOutcomes = {Outcome::breach,    Outcome::lost,         Outcome::environment_suspect,
                                         Outcome::suspected, Outcome::inconclusive, Outcome::untrusted,
                                         Outcome::changed,   Outcome::acknowledged, Outcome::improved,
                                         Outcome::added,     Outcome::information,  Outcome::pass};

static_assert(kOutcomes.size() == static_cast<size_t>(Outcome::pass) + 1);

size_t count_of(const Judgement& judgement, Outcome outcome);

// Whether the line makes the exit code non-zero.
bool fails(const JudgedLine& line);

// "1 breach, 2 lost, 3 changed, 240 passed"; zero counts are left out.
std::string counts_phrase(const Judgement& judgement);

// What the command of the line does: "reproduce", or "decide" for a suspected time, whose command is `halfmark ab`.
std::string_view rerun_phrase(const JudgedLine& line);

// "error.nmse at output"; "time" if there is no metric.
std::string subject_phrase(const JudgedLine& line);

// "1.84 ms"; "" for a missing number. "NaN" if it was measured, which is known from a base that is a number.
std::string base_phrase(const JudgedLine& line);
std::string found_phrase(const JudgedLine& line);
std::string limit_phrase(const JudgedLine& line);

// "+6.1 %", from base to found; "" if a ratio is meaningless.
std::string change_phrase(const JudgedLine& line);

// "memory.peak at train: 6 MiB -> 8 MiB (+33.3 %), limit 7 MiB": all numbers of a line; "" if there are none.
std::string numbers_phrase(const JudgedLine& line);

// The decision for a line about time, or null.
const CaseDecision* timing_of(const Judgement& judgement, const JudgedLine& line);

// "+6.1 % (95 % interval +5.2 ... +7.0 %), 24 pairs, corrected p 1.3e-06"; "" without a decision.
std::string timing_phrase(const CaseDecision* decision);

// Summary of all times: "300 cases on 2880 process runs, 11 seemed slower ..."; "" when no times were judged.
std::string all_timing_phrase(const Judgement& judgement);

}  // namespace halfmark::reports
