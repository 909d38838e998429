// halfmark merge: merges the reports of shards into one.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "bench/commands/commands.h"
#include "reports/record/file.h"
#include "reports/record/lock.h"
#include "reports/record/merge.h"
#include "reports/record/printable.h"
#include "reports/text/compare.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

struct MergeArguments {
  std::vector<std::string> files;
  std::string output;
  bool partial = false;
};

void merge_files(const MergeArguments& arguments, const Program& program) {
  require_no_input(arguments.output, {arguments.files.begin(), arguments.files.end()});
  std::vector<NamedReport> shards;
  for (const std::string& file : arguments.files) shards.push_back(load_unchanged(file));
  Report whole = merge(shards, arguments.partial);
  whole.run.command = program.command;
  std::optional<FileLock> lock;  // a run may be writing this file
  if (!is_written_in_place(arguments.output)) lock.emplace(arguments.output);
  whole.save(arguments.output);
  if (!lock) return;  // /dev/stdout: only the report
  const std::string partial = partial_text(whole);
  fmt::print("{}: {} of {}{}\n", printable(arguments.output), counted(whole.records.size(), "record"),
             counted(shards.size(), "shard"), partial.empty() ? "" : "; partial, " + partial);
}

}  // namespace

void add_merge_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<MergeArguments>();
  line.add("merge", "join the reports of all shards of a run (--shard I/N) into one")
      .words("reports", arguments->files, "report files of the shards, in any order", kRequired)
      .option("-o,--output", arguments->output, "file to write", kRequired | kFile)
      .flag("--partial", arguments->partial, "merge even when shards are missing or were cut short; the report says so")
      .examples({"halfmark merge 1.json 2.json -o whole.json", "halfmark merge 2.json -o some.json --partial"})
      .action([arguments, &program] { merge_files(*arguments, program); });
}

}  // namespace halfmark::bench
