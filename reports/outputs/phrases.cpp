#include "reports/outputs/phrases.h"
#include "reports/gate/gate_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

std::string counted(size_t count, Outcome outcome) {
  switch (outcome) {
    case Outcome::breach:
      return fmt::format("{} {}", count, count == 1 ? "breach" : "breaches");
    case Outcome::lost:
      return fmt::format("{} {} lost", count, count == 1 ? "case" : "cases");
    case Outcome::environment_suspect:
      return fmt::format("{} on a suspect machine", count);
    case Outcome::suspected:
      return fmt::format("{} suspected", count);
    case Outcome::inconclusive:
      return fmt::format("{} inconclusive", count);
    case Outcome::untrusted:
      return fmt::format("{} untrusted", count);
    case Outcome::changed:
      return fmt::format("{} changed", count);
    case Outcome::acknowledged:
      return fmt::format("{} acknowledged", count);
    case Outcome::improved:
      return fmt::format("{} improved", count);
    case Outcome::added:
      return fmt::format("{} new", count);
    case Outcome::information:
      return fmt::format("{} for information", count);
    case Outcome::pass:
      return fmt::format("{} passed", count);
  }
  return "";
}

double percent(double ratio) { return 100 * (ratio - 1); }

std::string number(double value, const JudgedLine& line) { return std::isnan(value) ? "" : human(value, line.unit); }

}  // namespace

size_t count_of(const Judgement& judgement, Outcome outcome) {
  return static_cast<size_t>(std::count_if(judgement.lines.begin(), judgement.lines.end(),
                                           [&](const JudgedLine& line) { return line.outcome == outcome; }));
}

bool fails(const JudgedLine& line) { return line.outcome <= Outcome::inconclusive; }

std::string counts_phrase(const Judgement& judgement) {
  std::vector<std::string> words;
  for (const Outcome outcome : kOutcomes)
    if (const size_t count = count_of(judgement, outcome)) words.push_back(counted(count, outcome));
  return words.empty() ? "nothing was judged" : fmt::format("{}", fmt::join(words, ", "));
}

std::string_view rerun_phrase(const JudgedLine& line) {
  return line.outcome == Outcome::suspected && line.rerun.starts_with("halfmark ab ") ? "decide" : "reproduce";
}

std::string subject_phrase(const JudgedLine& line) {
  if (line.metric.empty()) return std::string(name_of(line.question));
  return line.at.empty() ? line.metric : fmt::format("{} at {}", line.metric, line.at);
}

std::string base_phrase(const JudgedLine& line) { return number(line.base, line); }

std::string found_phrase(const JudgedLine& line) {
  const bool measured = std::isfinite(line.base) || std::isfinite(line.limit);
  return std::isnan(line.found) && measured && line.outcome == Outcome::breach ? "NaN" : number(line.found, line);
}

std::string limit_phrase(const JudgedLine& line) { return number(line.limit, line); }

std::string change_phrase(const JudgedLine& line) {
  if (!std::isfinite(line.base) || !std::isfinite(line.found) || line.base <= 0) return "";
  const double change = percent(line.found / line.base);
  if (line.found == line.base) return "0 %";
  // Errors change by powers of ten, for which a percentage is not readable.
  return std::fabs(change) < 100 ? fmt::format("{:+.3g} %", change) : human_ratio(line.found / line.base);
}

std::string numbers_phrase(const JudgedLine& line) {
  const std::string base = base_phrase(line), found = found_phrase(line), limit = limit_phrase(line);
  std::string words = base.empty() ? found : fmt::format("{} -> {}", base, found.empty() ? "none" : found);
  if (const std::string change = change_phrase(line); !change.empty()) words += fmt::format(" ({})", change);
  if (!limit.empty()) words += fmt::format("{}limit {}", words.empty() ? "" : ", ", limit);
  return words.empty() ? "" : fmt::format("{}: {}", subject_phrase(line), words);
}

const CaseDecision* timing_of(const Judgement& judgement, const JudgedLine& line) {
  // Other lines about time, as of a suspected stored one, are about other numbers.
  if (line.question != Question::time || (line.metric != kProcessTime && line.metric != "time.step")) return nullptr;
  if (line.outcome == Outcome::suspected || line.outcome == Outcome::lost) return nullptr;
  const auto found = std::find(judgement.timed.begin(), judgement.timed.end(), line.id);
  const auto index = static_cast<size_t>(found - judgement.timed.begin());
  return index < judgement.timing.cases.size() ? &judgement.timing.cases[index] : nullptr;
}

std::string timing_phrase(const CaseDecision* decision) {
  if (!decision) return "";
  std::string words = fmt::format("{:+.1f} %", percent(decision->ratio));
  // After the screen only, there is no interval and no test.
  if (decision->interval.lower > 0 && std::isfinite(decision->interval.upper))
    words += fmt::format(" (95 % interval {:+.1f} ... {:+.1f} %)", percent(decision->interval.lower),
                         percent(decision->interval.upper));
  if (decision->paired) words += fmt::format(", {} pairs", decision->pairs);
  if (decision->stage == Stage::confirmed || decision->stage == Stage::extended)
    words += fmt::format(", corrected p {:.2g}", decision->corrected_p);
  return words;
}

std::string all_timing_phrase(const Judgement& judgement) {
  const Decision& timing = judgement.timing;
  if (timing.cases.empty()) return "";
  std::string words = fmt::format("{} cases on {} process runs", timing.cases.size(), timing.process_runs);
  if (timing.routed > 0 || timing.seem_faster > 0)
    words +=
        fmt::format("; {} seemed slower and were measured again, {} seemed faster", timing.routed, timing.seem_faster);
  if (timing.largest_control > 0)
    words += fmt::format("; controls moved by {:.2g} % at most", percent(std::exp(timing.largest_control)));
  if (timing.global_shift_is_large)
    words += fmt::format("; all cases together moved by {:+.2g} %", percent(std::exp(timing.global_shift)));
  if (timing.widespread) words += "; too many seemed slower, so a confirmed sample decides for all";
  return words;
}

}  // namespace halfmark::reports
