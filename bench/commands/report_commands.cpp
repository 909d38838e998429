// halfmark show and halfmark compare: reports as text.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/run/progress_line.h"
#include "reports/text/compare.h"

namespace halfmark::bench {

namespace {

struct ReportArguments {
  std::string file;
  std::vector<std::string> files;
  bool all = false;
};

TextOptions text_options(bool all) {
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  options.all = all;
  return options;
}

}  // namespace

void add_show_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<ReportArguments>();
  line.add("show", "a report as tables, best precision first")
      .option("report", arguments->file, "report.json", kRequired)
      .flag("--all", arguments->all, "every record, measurement and curve")
      .action([arguments] {
        const std::string& file = arguments->file;
        fmt::print("{}", show({file, Report::load(file)}, text_options(arguments->all)));
      });
}

void add_compare_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<ReportArguments>();
  line.add("compare", "one report: precisions beside fp32; several: machines side by side")
      .words("reports", arguments->files, "a.json [b.json ...]", kRequired)
      .flag("--all", arguments->all, "every metric, also those this build does not know")
      .action([arguments] {
        std::vector<NamedReport> reports;
        for (const std::string& file : arguments->files) {
          reports.push_back({file, Report::load(file)});
          require_records(reports.back());
        }
        fmt::print("{}", compare(reports, text_options(arguments->all)));
      });
}

}  // namespace halfmark::bench
