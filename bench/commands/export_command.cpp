// halfmark export: a report in the formats of other tools.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/namespaces.h"
#include "bench/run/child_process.h"
#include "bench/run/standard_streams.h"
#include "kernels/number/error.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/export.h"
#include "reports/record/file.h"
#include "reports/record/memory_file.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

// A Python script converts the CSV, because Debian has no C++ library for Parquet.
constexpr std::string_view kParquet = "parquet";
constexpr std::string_view kParquetScript = "export_parquet.py";

struct ExportArguments {
  std::string report, format, output;
};

// Found in scripts/ beside bin/ of an archive, or above the build folder of a checkout.
std::filesystem::path script_of(const Program& program, std::string_view name) {
  const std::filesystem::path folder = std::filesystem::path(program.path).parent_path();
  for (const char* up : {"..", "../.."})
    if (auto script = folder / up / "scripts" / name; std::filesystem::exists(script)) return script;
  throw Error(fmt::format("--to parquet: no scripts/{} beside {}; use --to csv", name, folder.string()));
}

void write_parquet(const Report& report, const ExportArguments& arguments, const Program& program) {
  if (arguments.output.empty() || is_written_in_place(arguments.output))
    throw Error("--to parquet: name a regular file with -o, it is binary");
  const MemoryFile csv("halfmark-csv"), complaint("halfmark-errors");
  write_all(csv.descriptor(), measurements_csv_of(report), "the CSV for parquet");
  ::lseek(csv.descriptor(), 0, SEEK_SET);
  const pid_t child = start_child({"python3", script_of(program, kParquetScript).string(), "-o", arguments.output},
                                  {.in = csv.descriptor(), .error = complaint.descriptor()});
  const ChildEnd end = wait_for_child(child);
  if (WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) return;
  const std::string said = complaint.text();
  throw Error(fmt::format("--to parquet: {}", said.empty() ? "python3 failed" : said));
}

void export_report(const ExportArguments& arguments, const Program& program) {
  if (!arguments.output.empty()) require_no_input(arguments.output, {arguments.report});
  const Report report = load_unchanged(arguments.report).report;
  if (arguments.format == kParquet) return write_parquet(report, arguments, program);
  for (const ExportFormat& format : export_formats()) {
    if (format.name != arguments.format) continue;
    const Exported exported = format.write(report);
    // Names may contain control characters, which programs get as they are, but a terminal must not.
    if (arguments.output.empty())
      fmt::print("{}", ::isatty(STDOUT_FILENO) ? printable_lines(exported.text) : exported.text);
    else
      write_file(arguments.output, exported.text);
    for (const std::string& line : exported.left_out) complain(fmt::format("--to {} leaves out {}", format.name, line));
  }
}

}  // namespace

void add_export_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<ExportArguments>();
  std::vector<std::string> names;
  std::string about = "Formats:\n";
  for (const ExportFormat& format : export_formats()) {
    names.emplace_back(format.name);
    about += fmt::format("  {:<11}  {}\n", format.name, format.about);
  }
  names.emplace_back(kParquet);
  about += fmt::format("  {:<11}  the same rows as csv, as Parquet; needs python3 with pyarrow\n", kParquet);
  about +=
      "Times of suspect records are never exported. Numbers that a format cannot represent are counted on standard "
      "error; csv and openmetrics write NaN and infinities by name.";
  line.add("export", "a report in the formats of other tools: CSV, Parquet, Bencher, OpenMetrics, JUnit, ...")
      .option("report", arguments->report, "report file, as halfmark run writes it", kRequired)
      .choice("--to", arguments->format, names, kRequired)
      .option("-o,--output", arguments->output, "file to write; default: standard output", kFile)
      .footer(about)
      .examples({"halfmark export report.json --to csv -o measurements.csv", "halfmark export report.json --to bmf",
                 "halfmark export report.json --to openmetrics -o halfmark.prom"})
      .action([arguments, &program] { export_report(*arguments, program); });
}

}  // namespace halfmark::bench
