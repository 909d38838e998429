// halfmark run: selects cases, measures them, prints the table and writes the report.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/commands/shapes.h"
#include "bench/run/data_files.h"
#include "bench/run/default_device.h"
#include "bench/run/interruption.h"
#include "bench/run/isolation.h"
#include "bench/run/known_names.h"
#include "bench/run/model_file.h"
#include "bench/run/name_match.h"
#include "bench/run/plan.h"
#include "bench/run/planted_slow_down.h"
#include "bench/run/progress_line.h"
#include "bench/run/runner.h"
#include "bench/run/standard_streams.h"
#include "kernels/number/error.h"
#include "models/families.h"
#include "models/files/data_set.h"
#include "models/policy.h"
#include "models/zoo.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/text/compare.h"

namespace halfmark::bench {

namespace {

constexpr int kMostProcesses = 10'000;  // of a case: days on any machine

struct RunArguments {
  Selection selection;
  std::string id, shapes, output = "report.json", shard, data;
  std::vector<std::string> models;
  uint64_t seed = 0;
  bool resume = false, isolate = false, dry_run = false, no_probes = false;
  int processes = 0, descriptor = -1;
  double timeout = 0;
};

std::vector<Case> shard_of(std::vector<Case> cases, const std::string& label) {
  if (label.empty()) return cases;
  const auto shard = shard_named(label);
  if (!shard) throw Error("--shard " + label + ": should be I/N with I from 1 to N, as 2/8");
  std::vector<Case> mine;
  for (size_t i = 0; i < shard->size(cases.size()); ++i) mine.push_back(std::move(cases[shard->place(i)]));
  return mine;
}

Plan plan_of(const std::vector<Case>& cases) {
  // The same ids with other networks or on other data are another plan, which --resume and merge refuse.
  std::vector<std::string> planned;
  for (const Case& one : cases)
    planned.push_back(planned_case(one.id(), definition_of(*one.subject), one.data ? one.data->facts().hash : ""));
  return reports::plan_of(planned);
}

// The id of a subject that a word begins with, if it is a model of a file at a batch: "six_layers/b64/cpu".
std::string model_at_batch(const std::string& word) {
  const std::vector<std::string> parts = split(word, '/');
  const bool is_model = parts.size() > 1 && models::has_sizes(parts[0]) && !models::family_named(parts[0]);
  if (!is_model || parts[1].find('*') != std::string::npos) return "";
  return models::subject_named(parts[0] + "/" + parts[1]).id();
}

// An earlier report is no data, wherever it is.
bool is_report(const std::string& file) {
  try {
    Report::load(file);
    return true;
  } catch (const ReportError&) {
    return false;
  }
}

// The selection with the subjects of --shapes, else with those of --model, also at the batches that words name.
Selection with_subjects(const RunArguments& arguments) {
  std::vector<std::filesystem::path> inputs(arguments.models.begin(), arguments.models.end());
  if (!arguments.shapes.empty()) inputs.emplace_back(arguments.shapes);
  std::erase_if(inputs,
                [](const auto& input) { return std::filesystem::is_directory(input); });  // refused when it is read
  if (!arguments.data.empty() && !is_report(arguments.output)) inputs.emplace_back(arguments.data);
  reports::require_no_input(arguments.output, inputs);
  Selection selection = arguments.selection;
  for (const std::string& file : arguments.models) selection.subjects.push_back(add_model_file(file));
  if (!arguments.shapes.empty()) {
    const std::vector<std::string> models = std::move(selection.subjects);
    selection.subjects = subjects_in_file(arguments.shapes);
    for (const std::string& id : models) {
      const std::string name = id.substr(0, id.find('/') + 1);
      HM_CHECK(std::ranges::any_of(selection.subjects, [&](const std::string& one) { return one.starts_with(name); }),
               fmt::format("{}: names no {}, the model of --model; add {} or leave out --model", arguments.shapes,
                           name.substr(0, name.size() - 1), id));
    }
  } else if (!arguments.models.empty()) {
    selection.subjects_option = "--model";
    for (const std::string& word : selection.words)
      if (const std::string id = model_at_batch(word); !id.empty()) selection.subjects.push_back(id);
  }
  return selection;
}

void run(const RunArguments& arguments, Program& program) {
  const EarlyInterruption early;
  plant_slow_downs(program.slow_down);
  if (arguments.timeout > 0 && !arguments.isolate && arguments.processes == 0)
    throw Error("--timeout: a case can only be stopped in a process of its own; add --isolate");
  const Selection& other = arguments.selection;
  if (!arguments.id.empty() &&
      !(other.words.empty() && arguments.shapes.empty() && other.devices.empty() && other.policies.empty() &&
        other.change.is_empty() && other.harnesses.empty() && other.suite == Selection().suite))
    throw Error(
        "--case: is a selection of its own; leave out words, --shapes, --suite, --device, --policy, --harness, "
        "--scaler, "
        "--cast-rules and --precision");
  const Selection selection = with_subjects(arguments);
  RunOptions options;
  options.cases = arguments.id.empty() ? plan(selection) : std::vector<Case>{case_of(arguments.id)};
  DataFiles data(arguments.data);
  for (Case& one : options.cases) data.add_to(one);
  options.info.plan = plan_of(options.cases);
  if (const auto shard = shard_named(arguments.shard))
    options.info.shard = fmt::format("{}/{}", shard->part, shard->parts);
  options.cases = shard_of(std::move(options.cases), arguments.shard);
  if (arguments.dry_run) {
    for (const Case& one : options.cases) fmt::print("{}\n", one.id());
    return;
  }
  options.info.suite = arguments.id.empty() ? arguments.selection.suite : "case";
  options.info.command = program.command;
  options.info.seed = arguments.seed;
  options.output = arguments.output;
  options.descriptor = arguments.descriptor;
  options.resume = arguments.resume;
  options.probes = !arguments.no_probes;
  options.execution = {.isolate = arguments.isolate,
                       .processes = arguments.processes,
                       .timeout = arguments.timeout,
                       .program = program.path,
                       .is_isolated = arguments.descriptor >= 0};

  Report report;
  try {
    ProgressLine line;
    std::string no_gpu = no_gpu_text();
    report = run_cases(options, [&](size_t done, size_t all, const std::string& next) {
      if (!no_gpu.empty()) complain(std::exchange(no_gpu, ""));
      line.show(done, all, next);
    });
  } catch (const models::DataError& error) {  // of a case that another run has started
    complain(error.what());
    program.exit_code = kBrokenData;
    return;
  }
  if (interrupting_signal() != 0) {
    complain(interruption_text(report, options.output));
    program.exit_code = 128 + interrupting_signal();
    return;
  }
  for (const Record& record : report.records)
    if (record.status == Status::failed) program.exit_code = kFailed;
  if (arguments.descriptor >= 0) return;  // another program reads the report, so no table is printed
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO);
  text.colour = wants_colour(STDOUT_FILENO);
  text.defaults = &default_settings();
  fmt::print("{}", show({arguments.output, report}, text));
  // A part of a suite may hold skipped cases alone; a selection of a user that measures nothing is a mistake.
  const bool has_all_skipped =
      std::ranges::all_of(report.records, [](const Record& one) { return one.status == Status::skipped; });
  if (has_all_skipped && !report.records.empty() && arguments.shard.empty()) {
    const size_t count = report.records.size();
    complain(fmt::format("nothing was measured: {} skipped, for the reason in the table",
                         count == 1 ? "the case was" : fmt::format("all {} cases were", count)));
    program.exit_code = kWrongInput;
  }
}

std::string names_of_cast_rules() {
  std::vector<std::string_view> names;
  for (const models::CastRules& one : models::cast_rules()) names.push_back(one.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_run_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<RunArguments>();
  Command command = line.add("run", "measure, print a table, write a report");
  Selection& selection = arguments->selection;
  command.words("words", selection.words,
                "select cases: a word matches a whole part of the id or a key=value, * as a glob; "
                "words about the same part are alternatives (fp16 bf16), others must all hold (mlp fp16 error)");
  command.option("--suite", selection.suite, "sanity or smoke (seconds), quick (about a minute), experiments, full",
                 kShowsDefault);
  command.list("--device", selection.devices,
               "cpu, sim:hopper, cuda:0, ... (more: a,b); default: the best one present");
  command.list("--policy", selection.policies,
               "precision, also one that the suite leaves out (more: a,b; * as a glob)");
  command.list("--harness", selection.harnesses, "error, range, ..., also one that the suite leaves out (more: a,b)");
  command.list("--scaler", selection.change.scalers,
               "change the loss scaling: none, static:128, torch, deepspeed, ... (halfmark list scalers), also with "
               "the initial scale and the steps until it grows: torch:1024:100 (more: a,b)");
  command.option("--cast-rules", selection.change.rules, "change the casts of autocast: " + names_of_cast_rules());
  command.option("--precision", selection.change.precision,
                 "give layers policies of their own: conv1=fp32,block*.bn=fp16; halfmark list subjects ID names the "
                 "layers, loss is the loss");
  command.option(
      "--shapes", arguments->shapes,
      "these subjects only: a CSV file with the columns subject (a family or an id) and letters of sizes, or "
      "a JSON list; halfmark list subjects shows the letters");
  command.files(
      "--model", arguments->models,
      "a model of your own as JSON, alone unless --shapes or --case selects others; may be repeated; halfmark "
      "list subjects --json ID shows the form");
  command.option(
      "--data", arguments->data,
      "train and evaluate on these files in place of drawn data: a folder of MNIST, CIFAR, images by class or "
      "Cityscapes, or a text; a subject must have their size");
  command.option("--case", arguments->id, "exactly this case, as `halfmark run --dry-run` prints ids");
  command.option("-o,--output", arguments->output, "report file", kShowsDefault | kFile);
  command.option("--seed", arguments->seed, "random seed of parameters and data", kShowsDefault);
  command.option("--output-descriptor", arguments->descriptor, "write the report to this open descriptor", kHidden);
  command.flag("--resume", arguments->resume, "continue a run that was cut short, from its journal");
  command.flag("--isolate", arguments->isolate, "run each case in its own process: a crash loses one record only");
  command.option(
      "--processes", arguments->processes,
      "run each case in N processes, the cases in turn: shows whether the bits are the same every time and gives the "
      "samples that halfmark gate --time compares (24 or more)",
      kPositive, kMostProcesses);
  command.option("--timeout", arguments->timeout, "seconds for a case, with --isolate or --processes", kPositive);
  command.option("--shard", arguments->shard,
                 "I/N: run the I-th of N parts of the cases; halfmark merge joins the reports");
  command.flag("--no-probes", arguments->no_probes, "do not probe how the matmuls of each device add; saves a second");
  command.flag("--dry-run", arguments->dry_run, "list the ids of the cases and stop");
  command.examples({"halfmark run --suite smoke", "halfmark run mlp 'amp-*' training",
                    "halfmark run --case mlp/b32_i64_h128_o10/cpu/fp16/error",
                    "halfmark run --data plays.txt gpt/b32_t64_n2_h4_d64_v65 amp-fp16 training"});
  command.action([arguments, &program] { run(*arguments, program); });
}

}  // namespace halfmark::bench
