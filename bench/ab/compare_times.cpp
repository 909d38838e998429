#include "bench/ab/compare_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

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

// The ids of the cases that have a time.
std::vector<std::string> timed_cases(const Build& build, const std::vector<std::string>& selection) {
  std::vector<std::string> arguments{"run", "--dry-run", "--harness", "throughput"};
  arguments.insert(arguments.end(), selection.begin(), selection.end());
  return lines_of(build.output(arguments));
}

std::string rerun(const std::string& id) { return "halfmark run --case " + shell_word(id); }

JudgedLine line_about(const std::string& id, Question question, Outcome outcome, std::string words) {
  JudgedLine line{.id = id, .question = question, .outcome = outcome, .words = std::move(words)};
  line.rerun = rerun(id);
  return line;
}

std::string percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

// The numbers stand in the judgement's timing; outputs put them before these words.
std::string words_of(const CaseDecision& one, bool control, bool suspect) {
  if (control) return one.moved ? "the same machine code in both builds: the machine itself moved" : "a control";
  if (one.verdict == Verdict::inconclusive) return fmt::format("open after {} pairs", one.pairs);
  if (one.improved) return "faster";
  if (one.verdict != Verdict::regression)
    return one.stage == Stage::screened ? "nothing seen in the screen" : "within the floor";
  if (suspect) return "slower, but a control moved as well";
  if (one.stage == Stage::routed) return "slower in the screen, as are the cases of the sample that stands for it";
  return fmt::format("slower than the floor of {:.3g} % allows", 100 * one.floor);
}

// Everything that takes part: the cases of both builds, then the canaries.
struct Field {
  std::vector<JudgedCase> cases;
  std::vector<std::string> ids() const {
    std::vector<std::string> all;
    for (const JudgedCase& one : cases) all.push_back(one.name);
    return all;
  }
};

Field field_of(const std::vector<std::string>& ids, const AbOptions& options) {
  Field field;
  for (const std::string& id : ids)
    field.cases.push_back({id, false, options.noise ? options.noise->floor_of(id, options.rules.confirm_pairs) : 0.0});
  for (const Canary& canary : canaries()) field.cases.push_back({std::string(canary.id), true});
  return field;
}

PairOptions pair_options(const Build& a, const Build& b, const Field& field, const AbOptions& options) {
  PairOptions pairs;
  const std::vector<std::string> sample{
      "sample", "--seconds", fmt::format("{}", options.side_by_side ? options.seconds / kSlices : options.seconds),
      "--threads", std::to_string(options.threads)};
  pairs.command_a = a.command(sample), pairs.command_b = b.command(sample);
  pairs.ids = field.ids();
  pairs.timeout = options.timeout;
  pairs.seed = options.seed;
  pairs.side_by_side = options.side_by_side;
  pairs.cores = options.threads;
  return pairs;
}

// Removes from the field what one of the builds cannot measure and says so.
void leave_out(Field& field, const std::vector<ProcessPairs::Trouble>& troubles, Judgement& judgement) {
  std::vector<JudgedCase> left;
  for (size_t i = 0; i < field.cases.size(); ++i) {
    const auto trouble =
        std::find_if(troubles.begin(), troubles.end(), [&](const auto& one) { return one.index == i; });
    const std::string& id = field.cases[i].name;
    if (trouble == troubles.end()) {
      left.push_back(field.cases[i]);
    } else if (field.cases[i].control) {
      judgement.remarks.push_back(fmt::format("{} is not watched: {}", id, trouble->in_a + trouble->in_b));
    } else if (trouble->refused || (!trouble->in_a.empty() && !trouble->in_b.empty())) {
      judgement.lines.push_back(
          line_about(id, Question::time, Outcome::information, "no time in either build: " + trouble->in_a));
    } else if (!trouble->in_b.empty()) {
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::lost, "no time in b: " + trouble->in_b));
    } else {
      judgement.lines.push_back(line_about(id, Question::presence, Outcome::added, "no time in a: " + trouble->in_a));
    }
  }
  field.cases = std::move(left);
}

void add_lines(const Field& field, const Decision& decision, Judgement& judgement) {
  const bool suspect = decision.verdict == Verdict::environment_suspect;
  for (size_t i = 0; i < field.cases.size(); ++i) {
    const CaseDecision& one = decision.cases[i];
    const bool control = field.cases[i].control;
    JudgedLine line = line_about(field.cases[i].name, Question::time, Outcome::pass, words_of(one, control, suspect));
    line.metric = "time.step", line.at = "hot";
    line.base = 1, line.found = one.ratio, line.limit = 1 + one.floor;
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

nlohmann::ordered_json echo(const AbOptions& options) {
  const DecisionRules& r = options.rules;
  return {{"screen_pairs", r.screen_pairs},
          {"confirm_pairs", r.confirm_pairs},
          {"extend_pairs", r.extend_pairs},
          {"route", r.route},
          {"margin", r.margin},
          {"floor", r.floor},
          {"extend_from", r.extend_from},
          {"alpha_confirm", r.alpha_confirm},
          {"alpha_extend", r.alpha_extend},
          {"most_routed", r.most_routed},
          {"control_limit", r.control_limit},
          {"alpha_control", r.alpha_control},
          {"global_limit", r.global_limit},
          {"seconds", options.seconds},
          {"threads", options.threads},
          {"seed", options.seed},
          {"side_by_side", options.side_by_side}};
}

void add_remarks(const Decision& decision, const ProcessPairs& pairs, Judgement& judgement) {
  if (decision.widespread)
    judgement.remarks.push_back(
        fmt::format("widespread: {} cases seem slower, half of a sample of them at least is", decision.routed));
  if (decision.global_shift_is_large)
    judgement.remarks.push_back(
        fmt::format("all cases moved together by {}", percent(std::exp(decision.global_shift))));
  if (pairs.repeated() || pairs.disturbed())
    judgement.remarks.push_back(
        fmt::format("the host took time from this machine: {} pairs measured again, {} kept all the same",
                    pairs.repeated(), pairs.disturbed()));
  if (!pairs.shared_pages().empty())
    judgement.remarks.push_back(
        "the processes of a build share the pages of its code; what their place in memory does to its times, no pair "
        "can tell from the build itself: " +
        pairs.shared_pages());
  judgement.remarks.push_back(fmt::format("{} process runs of single cases on either side, {} of {} cases confirmed",
                                          decision.process_runs / 2, decision.routed, decision.cases.size()));
}

}  // namespace

Judgement compare_times(const Build& a, const Build& b, const AbOptions& options) {
  check(options.rules);
  Judgement judgement{.base = a.given() + ", " + a.version(), .candidate = b.given() + ", " + b.version()};
  judgement.where = {now(), machine_name(), a.revision(), b.revision()};
  judgement.rules = echo(options);
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

  Field field = field_of(both, options);
  {
    PairOptions first = pair_options(a, b, field, options);
    options.progress("a first look", {0, 1, field.cases.size(), NAN});
    leave_out(field, ProcessPairs(first).rehearse(), judgement);
  }
  // A case that is lost on the way costs itself; what was measured before is thrown away, for a verdict rests on fresh
  // pairs alone.
  for (uint64_t attempt = 0;; ++attempt) {
    if (std::all_of(field.cases.begin(), field.cases.end(), [](const JudgedCase& one) { return one.control; })) {
      judgement.remarks.push_back("no case has a time in both builds");
      break;
    }
    PairOptions settings = pair_options(a, b, field, options);
    settings.seed += attempt;
    settings.progress = [&](const PairProgress& progress) {
      const size_t all = field.cases.size();
      options.progress(progress.pairs == options.rules.screen_pairs && progress.cases == all ? "screen"
                       : progress.pairs == options.rules.extend_pairs                        ? "extend"
                                                                                             : "confirm",
                       progress);
    };
    ProcessPairs pairs(std::move(settings));
    try {
      judgement.timing = decide(field.cases, options.rules, pairs, options.seed);
      judgement.timed = field.ids();
      add_lines(field, judgement.timing, judgement);
      add_remarks(judgement.timing, pairs, judgement);
      break;
    } catch (const CaseLost& loss) {
      ProcessPairs::Trouble trouble{loss.index, false, "", ""};
      (loss.in_a ? trouble.in_a : trouble.in_b) = loss.what();
      leave_out(field, {trouble}, judgement);
    }
  }
  conclude(judgement);
  return judgement;
}

void learn_noise(const Build& build, const AbOptions& options, Noise& noise) {
  Field field = field_of(timed_cases(build, options.selection), options);
  Judgement unused;
  leave_out(field, ProcessPairs(pair_options(build, build, field, options)).rehearse(), unused);
  PairOptions settings = pair_options(build, build, field, options);
  settings.progress = [&](const PairProgress& progress) { options.progress("learn", progress); };
  std::vector<size_t> all;
  for (size_t i = 0; i < field.cases.size(); ++i) all.push_back(i);
  const std::vector<std::vector<Pair>> pairs =
      ProcessPairs(std::move(settings)).measure(all, options.rules.confirm_pairs);
  for (const size_t i : all) noise.add(field.cases[i].name, pairs[i]);
}

}  // namespace halfmark::bench
