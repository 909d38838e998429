#include "reports/outputs/judgement_json.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "reports/outputs/phrases.h"
#include "reports/record/json_number.h"
#include "reports/record/report.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Every field is written, so that a reader need not know which may be absent.
Json counts_of(const Judgement& judgement) {
  std::set<std::string_view> cases;
  for (const JudgedLine& line : judgement.lines) cases.insert(line.id);
  Json counts = {{"cases", cases.size()}, {"lines", judgement.lines.size()}};
  for (const Outcome outcome : kOutcomes)
    for (const Question question : {Question::time, Question::accuracy, Question::reference})
      counts[lower(word_of(question, outcome))] = 0;
  for (const JudgedLine& line : judgement.lines) {
    Json& count = counts[lower(word_of(line.question, line.outcome))];
    count = count.get<size_t>() + 1;
  }
  counts["routed"] = judgement.timing.routed;
  return counts;
}

Json validity_of(const Decision& timing) {
  Json flags = Json::array();
  if (timing.global_shift_is_large) flags.push_back("GLOBAL_SHIFT");
  if (timing.widespread) flags.push_back("WIDESPREAD");
  return {{"canary_max_abs", json_number(timing.largest_control)},
          {"global_shift", json_number(timing.global_shift)},
          {"slow_fast", {timing.routed, timing.seem_faster}},
          {"process_runs", timing.process_runs},
          {"flags", flags}};
}

Json timing_json(const CaseDecision& decision) {
  return {{"stage", name_of(decision.stage)},
          {"n_pairs", decision.pairs},
          {"ratio", json_number(decision.ratio)},
          {"ci95", {json_number(decision.interval.lower), json_number(decision.interval.upper)}},
          {"p", json_number(decision.p)},
          {"p_holm", json_number(decision.corrected_p)},
          {"floor", json_number(decision.minimum_effect)}};
}

Json line_json(const Judgement& judgement, const JudgedLine& line) {
  Json json = {{"case", line.id},
               {"question", name_of(line.question)},
               {"verdict", word_of(line.question, line.outcome)},
               {"metric", line.metric},
               {"at", line.at},
               {"base", json_number(line.base)},
               {"found", json_number(line.found)},
               {"limit", json_number(line.limit)},
               {"unit", line.unit},
               {"words", line.words},
               {"rerun", line.rerun}};
  if (const CaseDecision* timing = timing_of(judgement, line)) json["timing"] = timing_json(*timing);
  return json;
}

}  // namespace

Json to_json(const Judgement& judgement) {
  Json json = {{"schema", "gate/1"},
               {"verdict", name_of(judgement.verdict)},
               {"exit_code", judgement.exit_code},
               {"base", judgement.base},
               {"candidate", judgement.candidate},
               {"config", judgement.rules},
               {"env",
                {{"started", judgement.where.started},
                 {"machine", judgement.where.machine},
                 {"base", judgement.where.base},
                 {"candidate", judgement.where.candidate},
                 {"differences", judgement.differences}}},
               {"remarks", judgement.remarks}};
  if (!judgement.timing.cases.empty()) json["validity"] = validity_of(judgement.timing);
  json["counts"] = counts_of(judgement);
  json["cases"] = Json::array();
  for (const JudgedLine& line : judgement.lines) json["cases"].push_back(line_json(judgement, line));
  return json;
}

std::string json_of(const Judgement& judgement) {
  return to_json(judgement).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace halfmark::reports
