// halfmark history: change points over a folder of reports.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/run/progress_line.h"
#include "kernels/number/error.h"
#include "reports/history/history.h"
#include "reports/record/file.h"

namespace halfmark::bench {

namespace {

struct HistoryArguments {
  std::string folder, json;
  std::vector<std::string> metrics;
  bool all = false;
  HistoryRules rules;
};

// File names may not be valid UTF-8.
std::string text_of_json(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void print_history(HistoryArguments arguments) {
  if (!arguments.metrics.empty()) arguments.rules.metrics = arguments.metrics, arguments.rules.metrics_are_given = true;
  if (arguments.rules.change.p > 1) throw Error("--p: a probability is at most 1");
  const auto folder = std::filesystem::weakly_canonical(arguments.folder);
  const auto json = std::filesystem::weakly_canonical(arguments.json);
  if (!arguments.json.empty() &&
      std::mismatch(folder.begin(), folder.end(), json.begin(), json.end()).first == folder.end())
    throw Error("--json " + arguments.json + ": lies in the folder that is read; write it elsewhere");
  const History history = history_in(arguments.folder, arguments.rules);
  if (!arguments.json.empty()) write_file(arguments.json, text_of_json(to_json(history)));
  fmt::print("{}", text_of(history, {.width = terminal_width(STDOUT_FILENO),
                                     .colour = wants_colour(STDOUT_FILENO),
                                     .all = arguments.all}));
}

}  // namespace

void add_history_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<HistoryArguments>();
  HistoryRules& rules = arguments->rules;
  line.add("history", "change points over a folder of reports and of judgements (halfmark ab --json)")
      .option("folder", arguments->folder, "folder of *.json files, subfolders included", kRequired)
      .option("--anchor", rules.anchor,
              "git revision of the build that all others are compared with; default: the oldest")
      .option("--hours", rules.hours, "maximum gap in hours between a run and the anchor run it is compared with",
              kShowsDefault | kPositive)
      .list("--metric", arguments->metrics,
            "time.process, time.step, memory.peak, error.nmse, evaluation.accuracy, or others (more: a,b; * as a glob)")
      .option("--least", rules.change.least, "ignore shifts smaller than this: 0.02 is 2 %", kShowsDefault | kPositive)
      .option("--p", rules.change.p, "maximum false-positive probability per series", kShowsDefault | kPositive)
      .flag("--all", arguments->all, "every series, not only those that changed")
      .option("--json", arguments->json, "series and change points as JSON, for scripts/history_charts.py")
      .footer(
          "Add to the folder each night: halfmark ab ANCHOR NEW --json FOLDER/DATE.json, or a halfmark run of each "
          "build.\n"
          "Exit codes: 0 with or without change points, because they are not a verdict; 2 wrong input.")
      .examples({"halfmark history store", "halfmark history store --metric 'error.*' --json history.json"})
      .action([arguments] { print_history(*arguments); });
}

}  // namespace halfmark::bench
