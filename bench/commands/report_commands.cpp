// halfmark show and halfmark compare: reports as text.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/namespaces.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/progress_line.h"
#include "reports/predict/peaks.h"
#include "reports/predict/prediction_text.h"
#include "reports/text/compare.h"
#include "reports/text/layers.h"
#include "reports/text/selection.h"

namespace halfmark::bench {

namespace {

struct ReportArguments {
  std::string file;
  std::vector<std::string> files, words, gpus;
  bool all = false, layers = false;
};

TextOptions text_options(bool all) {
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  options.all = all;
  options.defaults = &default_settings();
  return options;
}

}  // namespace

void add_show_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<ReportArguments>();
  line.add("show", "a report as tables, best precision first; --layers: which tensors lose values")
      .option("report", arguments->file, "report file, as halfmark run writes it", kRequired)
      .words("words", arguments->words,
             "show these records only: a word matches a whole part of the id or an axis=value, * as a glob; words "
             "about the same part or axis are alternatives (fp16 bf16), others must all match (convnet fp16); "
             "fused=off matches the records of each harness with that axis that do not name it")
      .flag("--layers", arguments->layers,
            "a row for each tensor that underflows, overflows or loses bits, worst first; needs records of the harness "
            "range")
      .flag("--all", arguments->all, "every record, measurement and curve; with --layers every tensor")
      .footer(columns_text() + "\n" + layer_columns_text())
      .examples({"halfmark show report.json", "halfmark show report.json convnet 'amp-*'",
                 "halfmark show report.json --layers fp16"})
      .action([arguments] {
        NamedReport named{arguments->file, Report::load(arguments->file)};
        select_records(named, arguments->words, default_settings());
        const TextOptions options = text_options(arguments->all);
        fmt::print("{}", arguments->layers ? show_layers(named, options) : show(named, options));
      });
}

void add_compare_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<ReportArguments>();
  line.add("compare", "one report: precisions beside fp32; several: machines side by side")
      .words("reports", arguments->files, "report files, as halfmark run writes them", kRequired)
      .flag("--all", arguments->all, "every metric, also those this build does not know")
      .list("--predict", arguments->gpus,
            "also the least time of a step on GPUs that were not measured, from published peaks and the work of the "
            "records, in a table of its own: a100, h100, rtx4090, ..., or all of an architecture: hopper")
      .footer("halfmark show --help explains the rows.")
      .examples({"halfmark compare report.json", "halfmark compare a100.json h100.json",
                 "halfmark compare report.json --predict a100,hopper"})
      .action([arguments] {
        const auto gpus =
            reports::published_gpus_named(chosen_names("GPU", arguments->gpus, reports::names_of_published_gpus()));
        std::vector<NamedReport> reports;
        for (const std::string& file : arguments->files) {
          reports.push_back(load_unchanged(file));
          require_records(reports.back());
        }
        const TextOptions options = text_options(arguments->all);
        fmt::print("{}", compare(reports, options));
        if (!gpus.empty()) fmt::print("{}", predictions_text(predict(reports, gpus), options));
      });
}

}  // namespace halfmark::bench
