// halfmark gate: is a report worse than another? Prints the judgement; the exit code is the verdict.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/commands/output_options.h"
#include "bench/run/standard_streams.h"
#include "bench/run/utc_time.h"
#include "kernels/number/error.h"
#include "reports/gate/gate.h"
#include "reports/gate/time_limits.h"
#include "reports/history/history.h"

namespace halfmark::bench {

namespace {

struct GateArguments {
  std::string base, candidate, rules = "default", acknowledged, history;
  bool strict_bits = false, same_environment = false, time = false;
  OutputOptions outputs;
};

// The times of a report. Two runs never measure the same times.
std::string times_text(const Report& report) {
  std::string text;
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements)
      if (is_stored_time(one)) text += fmt::format("{} {} {} {}\n", record.id, one.metric, one.at, one.value);
  return text;
}

// The reports of the folder that started before the judged one, in order of their start, copies once. Other files there,
// as those of `halfmark ab --json`, are no runs.
TimeHistory history_in_folder(const std::string& folder, const Report& base, const NamedReport& judged,
                              const Keys& keys) {
  std::vector<std::pair<int64_t, Report>> runs;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (const std::filesystem::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".json") continue;
    try {
      Report report = Report::load(entry->path());
      if (const std::string changed = changed_text(report); !changed.empty()) {
        complain(fmt::format("--history leaves {} out: {}", entry->path().string(), changed));
        continue;
      }
      const int64_t when = seconds_since_1970(report.run.started, entry->path().string());
      runs.emplace_back(when, std::move(report));
    } catch (const ReportError&) {  // not a report
    }
  }
  if (error) throw Error(fmt::format("--history {}: cannot be read: {}", folder, error.message()));
  if (runs.empty()) throw Error(fmt::format("--history {}: holds no report of a run", folder));
  const int64_t start = seconds_since_1970(judged.report.run.started, judged.name);
  const size_t all = runs.size();
  std::erase_if(runs, [&](const auto& run) { return run.first >= start; });
  if (runs.empty())
    throw Error(fmt::format("--history {}: none of its {} runs started before {}", folder, all, judged.name));
  std::set<std::string> seen;  // the times of each: a copy under another date is no other run
  std::erase_if(runs, [&](const auto& run) { return !seen.insert(times_text(run.second)).second; });
  std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  TimeHistory history;
  for (const auto& [when, report] : runs) history.add(report, base, keys);
  return history;
}

void gate(const GateArguments& arguments, Program& program) {
  arguments.outputs.check({arguments.base, arguments.candidate, arguments.rules, arguments.acknowledged});
  const GateRules rules = load_gate_rules(arguments.rules);
  GateOptions options;
  options.strict_bits = arguments.strict_bits;
  options.same_environment = arguments.same_environment;
  options.time = arguments.time;
  options.today = utc_date();
  if (!arguments.acknowledged.empty()) options.acknowledgements = Acknowledgements::load(arguments.acknowledged);
  const NamedReport base = load_unchanged(arguments.base);
  require_records(base);
  const NamedReport candidate = load_unchanged(arguments.candidate);
  if (!arguments.history.empty())
    options.time_history = history_in_folder(arguments.history, base.report, candidate, rules.time_keys);
  const Judgement judgement = judge(base, candidate, rules, options);
  arguments.outputs.write(judgement, candidate.report);
  program.exit_code = judgement.exit_code;
}

}  // namespace

void add_gate_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<GateArguments>();
  Command command =
      line.add("gate", "is a report worse than another? numbers, bits, memory; times with --time")
          .option("base", arguments->base, "baseline report", kRequired)
          .option("new", arguments->candidate, "report to judge", kRequired)
          .option("--rules", arguments->rules, "which changes are allowed: default, strict or a rules file",
                  kShowsDefault)
          .option("--acknowledge", arguments->acknowledged, "file of changes that were reviewed and accepted")
          .flag("--strict-bits", arguments->strict_bits, "fail on changed bits that no acknowledgement covers")
          .flag("--same-environment", arguments->same_environment,
                "give the verdict ENV_SUSPECT when machine or libraries differ")
          .option(
              "--history", arguments->history,
              "folder of earlier reports of this machine: how its times moved between runs replaces the wide limits, "
              "and how they moved between days the shift that --time assumes")
          .flag("--time", arguments->time,
                "judge times by a test; needs two reports of one machine made by halfmark run --processes 24 or more; "
                "exit code 3 if a time could not be judged")
          .footer(
              "Without --time, stored times are compared with wide limits only: a larger difference is SUSPECTED, and "
              "the halfmark ab command that decides is printed.\n"
              "Exit codes: 0 pass, 1 worse or a case lost, 2 the command or a file was wrong, 3 no verdict "
              "(a suspected time, inconclusive or another environment).")
          .examples({"halfmark gate base.json new.json",
                     "halfmark gate base.json new.json --rules strict --strict-bits",
                     "halfmark gate base.json new.json --junit gate.xml --markdown gate.md"})
          .action([arguments, &program] { gate(*arguments, program); });
  arguments->outputs.add_to(command);
}

}  // namespace halfmark::bench
