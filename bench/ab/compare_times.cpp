#include "bench/ab/compare_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <sstream>
#include <utility>

#include "bench/run/environment.h"
#include "bench/run/utc_time.h"
#include "kernels/number/error.h"
#include "reports/record/shell.h"

namespace halfmark::bench {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

// The ids of the cases that measure time.
std::vector<std::string> timed_cases(const Build& build, const std::vector<std::string>& selection) {
  std::vector<std::string> arguments{"run", "--dry-run", "--harness", "throughput"};
  arguments.insert(arguments.end(), selection.begin(), selection.end());
  return lines_of(build.output(arguments));
}

JudgedLine line_about(const std::string& id, Question question, Outcome outcome, std::string words) {
  JudgedLine line{.id = id, .question = question, .outcome = outcome, .words = std::move(words)};
  line.rerun = "run --case " + shell_word(id);  // compare_times() puts the program in front
  return line;
}

std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

// The text of a line. The outputs print the numbers, from the judgement's timing, before it.
std::string words_of(const CaseDecision& one, bool control, bool suspect, double layout_spread) {
  if (control)
    return one.moved ? "the machine changed: this control is the same machine code in both builds" : "a control";
  if (one.placement)
    return fmt::format(
        "slower, but it could be the placement of code, which shifts a case of one build by {:.3g} %: compare several "
        "layouts of each build (--layouts)",
        100 * layout_spread);
  if (one.verdict == Verdict::inconclusive) return fmt::format("undecided after {} pairs", one.pairs);
  if (one.improved) return "faster";
  if (one.verdict != Verdict::regression)
    return one.stage == Stage::screened ? "no effect in the screen" : "below the minimum effect";
  if (suspect) return "slower, but a control changed as well";
  if (one.stage == Stage::routed) return "slower in the screen; not confirmed itself, but the sample of such cases is";
  const std::string sampled = one.layouts > 0 ? fmt::format(", over {} layouts of each build", one.layouts) : "";
  return fmt::format("slower by at least the minimum effect of {:.3g} %{}", 100 * one.minimum_effect, sampled);
}

// The cases that both builds have, then the canaries.
struct ComparedCases {
  std::vector<JudgedCase> cases;
  std::vector<std::string> ids() const {
    std::vector<std::string> all;
    for (const JudgedCase& one : cases) all.push_back(one.name);
    return all;
  }
};

ComparedCases compared_cases(const std::vector<std::string>& ids, const AbOptions& options) {
  ComparedCases compared;
  for (const std::string& id : ids)
    compared.cases.push_back(
        {id, false, options.noise ? options.noise->minimum_effect_of(id, options.rules.confirm_pairs) : 0.0});
  for (const std::string& canary : canary_ids(ids)) compared.cases.push_back({canary, true});
  return compared;
}

PairOptions pair_options(const Build& a, const Build& b, const ComparedCases& compared, const AbOptions& options) {
  PairOptions pairs;
  std::vector<std::string> sample{"sample", "--seconds",
                                  fmt::format("{}", options.side_by_side ? options.seconds / kSlices : options.seconds),
                                  "--threads", std::to_string(options.threads)};
  for (const std::string& file : options.models) sample.insert(sample.end(), {"--model", file});
  if (!options.data.empty()) sample.insert(sample.end(), {"--data", options.data});
  pairs.command_a = a.command(sample), pairs.command_b = b.command(sample);
  for (const Build& one : options.layouts_a) pairs.layouts_a.push_back(one.command(sample));
  for (const Build& one : options.layouts_b) pairs.layouts_b.push_back(one.command(sample));
  pairs.ids = compared.ids();
  pairs.timeout = options.timeout;
  pairs.seed = options.seed;
  pairs.side_by_side = options.side_by_side;
  pairs.cores = options.threads;
  return pairs;
}

// Removes the cases that one of the builds cannot measure, and adds a line or remark for each.
void remove_unmeasurable(ComparedCases& compared, const std::vector<ProcessPairs::Trouble>& troubles,
                         Judgement& judgement) {
  std::vector<JudgedCase> left;
  for (size_t i = 0; i < compared.cases.size(); ++i) {
    const auto trouble =
        std::find_if(troubles.begin(), troubles.end(), [&](const auto& one) { return one.index == i; });
    const std::string& id = compared.cases[i].name;
    if (trouble == troubles.end()) {
      left.push_back(compared.cases[i]);
    } else if (compared.cases[i].control) {
      judgement.remarks.push_back(fmt::format("control {} cannot be measured: {}", id, trouble->in_a + trouble->in_b));
    } else if (trouble->refused || (!trouble->in_a.empty() && !trouble->in_b.empty())) {
      judgement.lines.push_back(
          line_about(id, Question::time, Outcome::information, "no time in either build: " + trouble->in_a));
    } else if (!trouble->in_b.empty()) {
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::lost, "no time in b: " + trouble->in_b));
    } else {
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::added, "no time in a: " + trouble->in_a));
    }
  }
  compared.cases = std::move(left);
}

void add_lines(const ComparedCases& compared, const Decision& decision, const DecisionRules& rules,
               Judgement& judgement) {
  const bool suspect = decision.verdict == Verdict::environment_suspect;
  for (size_t i = 0; i < compared.cases.size(); ++i) {
    const CaseDecision& one = decision.cases[i];
    const bool control = compared.cases[i].control;
    JudgedLine line = line_about(compared.cases[i].name, Question::time, Outcome::pass,
                                 words_of(one, control, suspect, rules.layout_spread));
    line.metric = "time.step", line.at = "hot";
    line.base = 1, line.found = one.ratio, line.limit = 1 + one.minimum_effect;
    if (control) {
      line.rerun.clear();
      line.outcome = one.moved ? Outcome::environment_suspect : Outcome::information;
    } else if (one.verdict == Verdict::regression) {
      line.outcome = suspect ? Outcome::environment_suspect : Outcome::breach;
    } else if (one.verdict == Verdict::inconclusive) {
      line.outcome = Outcome::inconclusive;
    } else if (one.improved) {
      line.outcome = Outcome::improved;
    }
    judgement.lines.push_back(std::move(line));
  }
}

// The placement of code is no difference between two copies of one program.
DecisionRules rules_for(const Build& a, const Build& b, const AbOptions& options) {
  DecisionRules rules = options.rules;
  if (options.layouts_a.size() != options.layouts_b.size())
    throw Error(fmt::format("{} layouts of a and {} of b: both builds need the same number", options.layouts_a.size(),
                            options.layouts_b.size()));
  rules.layouts = static_cast<int>(options.layouts_a.size());
  if (rules.layouts > 0 || a.is_same_program(b)) rules.layout_spread = 0;
  return rules;
}

std::string about_placement(const DecisionRules& rules) {
  if (rules.layouts > 0)
    return fmt::format("{} layouts of each build were sampled; they are the replicates of the tests", rules.layouts);
  if (rules.layout_spread > 0)
    return fmt::format(
        "one layout of each build: the accidental placement of its code ({:.3g} % for each build) is part of the "
        "margin; --layouts compares several layouts of each build instead",
        100 * rules.layout_spread);
  return {};
}

nlohmann::ordered_json echo(const AbOptions& options, const DecisionRules& r) {
  return {{"screen_pairs", r.screen_pairs},
          {"confirm_pairs", r.confirm_pairs},
          {"extend_pairs", r.extend_pairs},
          {"route", r.route},
          {"margin", r.margin},
          {"floor", r.minimum_effect},
          {"extend_from", r.extend_from},
          {"alpha_confirm", r.alpha_confirm},
          {"alpha_extend", r.alpha_extend},
          {"most_routed", r.most_routed},
          {"control_limit", r.control_limit},
          {"alpha_control", r.alpha_control},
          {"global_limit", r.global_limit},
          {"layout_spread", r.layout_spread},
          {"alpha_layout", r.alpha_layout},
          {"layouts", r.layouts},
          {"seconds", options.seconds},
          {"threads", options.threads},
          {"seed", options.seed},
          {"side_by_side", options.side_by_side}};
}

void add_remarks(const Decision& decision, const ProcessPairs& pairs, Judgement& judgement) {
  if (decision.widespread)
    judgement.remarks.push_back(fmt::format(
        "widespread: {} cases seem slower; at least half of a sample of them is confirmed", decision.routed));
  if (decision.global_shift_is_large)
    judgement.remarks.push_back(
        fmt::format("the median over all cases changed by {}", percent(std::exp(decision.global_shift))));
  if (pairs.repeated() || pairs.disturbed())
    judgement.remarks.push_back(
        fmt::format("the host took CPU time from this machine: {} pairs were measured again, {} were kept",
                    pairs.repeated(), pairs.disturbed()));
  if (!pairs.shared_pages().empty())
    judgement.remarks.push_back(
        "the processes of a build share the memory pages of its code, so that no pair can separate an effect of their "
        "placement from an effect of the build: " +
        pairs.shared_pages());
  judgement.remarks.push_back(
      fmt::format("{} process runs of single cases per build, {} of {} cases were routed to confirmation",
                  decision.process_runs / 2, decision.routed, decision.cases.size()));
}

}  // namespace

Judgement compare_times(const Build& a, const Build& b, const AbOptions& options) {
  const DecisionRules rules = rules_for(a, b, options);
  check(rules);
  Judgement judgement{.base = a.description(), .candidate = b.description()};
  judgement.where = {utc_now_iso8601(), machine_name(), a.revision(), b.revision()};
  judgement.rules = echo(options, rules);
  const std::vector<std::string> in_a = timed_cases(a, options.selection), in_b = timed_cases(b, options.selection);
  const std::set<std::string> known_a(in_a.begin(), in_a.end()), known_b(in_b.begin(), in_b.end());
  std::vector<std::string> both;
  for (const std::string& id : in_a)
    if (known_b.contains(id))
      both.push_back(id);
    else
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::lost, "build b does not have this case"));
  for (const std::string& id : in_b)
    if (!known_a.contains(id))
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::added, "build a does not have this case"));

  ComparedCases compared = compared_cases(both, options);
  {
    PairOptions first = pair_options(a, b, compared, options);
    options.progress("trial pair", {0, 1, compared.cases.size(), NAN});
    remove_unmeasurable(compared, ProcessPairs(first).rehearse(), judgement);
  }
  // A case that is lost later is removed, and the comparison starts again: the pairs measured so far are discarded,
  // because a verdict uses fresh pairs only.
  for (uint64_t attempt = 0;; ++attempt) {
    if (std::all_of(compared.cases.begin(), compared.cases.end(), [](const JudgedCase& one) { return one.control; })) {
      judgement.remarks.push_back("no case can be timed in both builds");
      break;
    }
    PairOptions settings = pair_options(a, b, compared, options);
    settings.seed += attempt;
    settings.progress = [&](const PairProgress& progress) {
      const size_t all = compared.cases.size();
      options.progress(progress.pairs == options.rules.screen_pairs && progress.cases == all ? "screen"
                       : progress.pairs == options.rules.extend_pairs                        ? "extend"
                                                                                             : "confirm",
                       progress);
    };
    ProcessPairs pairs(std::move(settings));
    try {
      judgement.timing = decide(compared.cases, rules, pairs, options.seed);
      judgement.timed = compared.ids();
      add_lines(compared, judgement.timing, rules, judgement);
      add_remarks(judgement.timing, pairs, judgement);
      if (const std::string words = about_placement(rules); !words.empty()) judgement.remarks.push_back(words);
      break;
    } catch (const CaseLost& loss) {
      ProcessPairs::Trouble trouble{loss.index, false, "", ""};
      (loss.in_a ? trouble.in_a : trouble.in_b) = loss.what();
      remove_unmeasurable(compared, {trouble}, judgement);
    }
  }
  std::string files;
  for (const std::string& file : options.models) files += " --model " + shell_path(file);
  if (!options.data.empty()) files += " --data " + shell_path(options.data);
  for (JudgedLine& line : judgement.lines)
    if (!line.rerun.empty()) line.rerun = b.program_name() + " " + line.rerun + files;
  conclude(judgement);
  return judgement;
}

void learn_noise(const Build& build, const AbOptions& options, NoiseProfile& noise) {
  ComparedCases compared = compared_cases(timed_cases(build, options.selection), options);
  Judgement unused;
  remove_unmeasurable(compared, ProcessPairs(pair_options(build, build, compared, options)).rehearse(), unused);
  PairOptions settings = pair_options(build, build, compared, options);
  settings.progress = [&](const PairProgress& progress) { options.progress("learn", progress); };
  std::vector<size_t> all;
  for (size_t i = 0; i < compared.cases.size(); ++i) all.push_back(i);
  const std::vector<std::vector<Pair>> pairs =
      ProcessPairs(std::move(settings)).measure(all, options.rules.confirm_pairs);
  for (const size_t i : all) noise.add(compared.cases[i].name, pairs[i]);
}

}  // namespace halfmark::bench
