#include "bench/commands/output_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "bench/run/progress_line.h"
#include "reports/outputs/text.h"

namespace halfmark::bench {

void OutputOptions::add_to(Command& command) {
  command.flag("--all", all, "list every line, including passed ones")
      .option("--markdown", markdown, std::string(kMarkdownHelp))
      .option("--junit", junit, std::string(kJunitHelp))
      .option("--csv", csv, std::string(kCsvHelp))
      .option("--json", json, std::string(kJsonHelp))
      .option("--gbench", gbench, std::string(kGbenchHelp))
      .option("--smaller-is-better", smaller_is_better, std::string(kSmallerIsBetterHelp))
      .flag("--annotations", annotations, std::string(kAnnotationsHelp));
}

OutputFiles OutputOptions::files() const {
  return {.markdown = markdown,
          .junit = junit,
          .csv = csv,
          .json = json,
          .gbench = gbench,
          .smaller_is_better = smaller_is_better,
          .annotations = annotations};
}

void OutputOptions::check(const std::vector<std::filesystem::path>& inputs) const { check_outputs(files(), inputs); }

void OutputOptions::write(const Judgement& judgement, const Report& candidate) const {
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO), text.colour = wants_colour(STDOUT_FILENO), text.all = all;
  fmt::print("{}", text_of(judgement, text));
  write_outputs(judgement, candidate, files());
}

}  // namespace halfmark::bench
