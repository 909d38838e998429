// halfmark probe: how a device adds, and which simulated rows add in the same way.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/probe/linear_matmul.h"
#include "accuracy/probe/probe.h"
#include "bench/commands/all_reduce_probe.h"
#include "bench/commands/commands.h"
#include "bench/commands/matmul_shape.h"
#include "bench/commands/shapes.h"
#include "bench/run/default_device.h"
#include "bench/run/progress_line.h"
#include "bench/vectors/probe_vectors.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/kernel.h"
#include "models/zoo.h"
#include "reports/record/file.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

using Json = nlohmann::ordered_json;

struct ProbeArguments {
  std::string device, shape = "32x32x64", instruction, output, vectors, grid;
  std::vector<std::string> types;
  size_t replays = 10000;
  int elements = 1 << 18;
  bool all_reduce = false, json = false;
};

Json json_of(const probe::Report& report) {
  Json findings = Json::array();
  for (const probe::Finding& f : report.findings)
    findings.push_back({{"parameter", f.parameter}, {"value", f.value}, {"evidence", f.evidence}});
  Json around = Json::array();
  for (const probe::RowsWithSteps& one : report.around)
    around.push_back({{"rows", one.rows}, {"steps", one.steps}, {"questions", one.questions}});
  return {{"device", report.device},
          {"types", report.types},
          {"way", report.way},
          {"transpose_b", report.transpose_b},
          {"findings", findings},
          {"replayed", report.replayed},
          {"replays", report.replays},
          {"matches", report.matches},
          {"matches_with_steps", around},
          {"near", report.near},
          {"fingerprint", report.fingerprint},
          {"hash", report.hash}};
}

std::string rows_in_words(const probe::Report& report) {
  std::vector<std::string> all;
  if (!report.matches.empty()) all.push_back(fmt::format("{}", fmt::join(report.matches, ", ")));
  for (const probe::RowsWithSteps& one : report.around)
    all.push_back(fmt::format("the sums are those of {}; {}: {} of {} questions", fmt::join(one.rows, ", "), one.steps,
                              one.questions, one.questions));
  if (!all.empty()) return fmt::format("{}", fmt::join(all, "; "));
  return "none gives the same results" +
         (report.near.empty() ? "" : fmt::format("; nearest {}", fmt::join(report.near, ", ")));
}

std::string text_of(const probe::Report& report, const TextOptions& options) {
  std::string text =
      toned(fmt::format("{} {} ({})", report.device, report.types, report.way), Tone::strong, options.colour) + "\n";
  size_t widest = 0;
  for (const probe::Finding& finding : report.findings) widest = std::max(widest, finding.parameter.size());
  const auto line = [&](std::string_view name, const std::string& what) {
    text += wrapped(fmt::format("  {:<{}}  ", name, widest), what, options.width);
  };
  for (const probe::Finding& f : report.findings) line(f.parameter, fmt::format("{}  ({})", f.value, f.evidence));
  if (report.model)
    line(
        "replay",
        fmt::format("{} of {} fresh random questions give the same bits in software{}", report.replayed, report.replays,
                    report.replayed == report.replays ? "" : ": the findings above do not describe it completely"));
  line("simulated rows", rows_in_words(report));
  line("fingerprint", report.hash);
  return text + "\n";
}

std::vector<probe::Report> probe_instructions(Device& device, const ProbeArguments& arguments,
                                              const probe::Options& options) {
  std::vector<probe::Report> reports;
  const std::vector<probe::DotChoice> choices = probe::dot_choices(device);
  if (choices.empty())
    throw Unsupported(fmt::format("{} has no matrix instructions; leave --instruction out", device.name()));
  for (const probe::DotChoice& choice : choices) {
    if (arguments.instruction != "all" && choice.instruction != matrix_instruction_named(arguments.instruction))
      continue;
    const std::string types = choice.name().substr(choice.name().find(' ') + 1);
    if (!arguments.types.empty() &&
        std::find(arguments.types.begin(), arguments.types.end(), types) == arguments.types.end())
      continue;
    // K covers at least two instructions, so that the addition between them is observed.
    probe::RecordingBox recorder(probe::dot_box(device, choice, 2 * probe::least_depth(choice)));
    reports.push_back(probe::examine(recorder, options));
  }
  if (reports.empty())
    throw Unsupported(
        fmt::format("{} has no {}{}", device.name(),
                    arguments.instruction == "all" ? "matrix instruction" : "instruction " + arguments.instruction,
                    arguments.types.empty() ? "" : fmt::format(" that takes {}", fmt::join(arguments.types, ", "))));
  return reports;
}

// Names the kernel row that was probed: the probe calls the matmul of the device, which chooses the row.
probe::Finding answering_rows(const KernelLog& log) {
  std::vector<std::string> rows, refusals;
  for (const LoggedKernel& entry : log.entries()) {
    // What a library lists and cannot do, so that something else of it answers.
    for (const std::string& choice : entry.choices)
      if (choice.find(" failed ") != std::string::npos) refusals.push_back(entry.row + " " + choice);
    if (entry.operation != "matmul" || std::find(rows.begin(), rows.end(), entry.row) != rows.end()) continue;
    rows.push_back(entry.row);
    refusals.insert(refusals.end(), entry.refusals.begin(), entry.refusals.end());
  }
  return {"kernel row", fmt::format("{}", fmt::join(rows, ", ")),
          refusals.empty() ? "the first of its list" : fmt::format("before it, {}", fmt::join(refusals, "; "))};
}

std::vector<probe::Report> probe_matmuls(Device& device, const ProbeArguments& arguments, const probe::Options& options,
                                         std::vector<std::string>& refused) {
  std::vector<probe::Report> reports;
  const probe::MatmulShape shape = matmul_shape_named(arguments.shape);
  for (const std::string& name : arguments.types.empty() ? probe::usual_types() : arguments.types) {
    probe::MatmulTypes types = probe::matmul_types_named(name);
    try {
      types = probe::in_form_of_real_speed(device, std::move(types), shape);
      const KernelLog log;
      probe::RecordingBox recorder(probe::matmul_box(device, types, shape));
      probe::Report report = probe::examine(recorder, options);
      probe::find_repeatability(device, types, shape, report.findings);
      report.findings.insert(report.findings.begin(), answering_rows(log));
      reports.push_back(std::move(report));
    } catch (const Unsupported& reason) {
      if (!arguments.types.empty()) throw;  // it was requested
      refused.push_back(name);
    }
  }
  return reports;
}

// How each matmul of a list adds, one line each.
void run_grid(Device& device, const ProbeArguments& arguments, const TextOptions& text) {
  const std::vector<std::string> types = arguments.types.empty() ? probe::usual_types() : arguments.types;
  std::vector<std::pair<std::string, probe::MatmulShape>> sizes;
  for (const std::string& id : subjects_in_file(arguments.grid))
    sizes.emplace_back(id, probe::matmul_of(subject_named(id)));
  Json all = Json::array();
  Table table({"matmul", "types", "partial sums", "block", "kept bits", "fingerprint"}, 2);
  std::vector<std::string> refused;
  ProgressLine progress;
  size_t done = 0;
  for (const auto& [id, shape] : sizes)
    for (const std::string& name : types) {
      progress.show(done++, sizes.size() * types.size(), fmt::format("{} {}", id, name));
      try {
        probe::MatmulTypes of = probe::matmul_types_named(name);
        of.transpose_b = true;
        probe::RecordingBox recorder(probe::matmul_box(device, of, shape));
        probe::Options how;
        how.replays = 0, how.match = false;
        const probe::Report report = probe::examine(recorder, how);
        const auto finding = [&](std::string_view parameter) {
          const probe::Finding* found = report.find(parameter);
          return found ? found->value : std::string(probe::kNotObservable);
        };
        const std::string bits = report.model ? fmt::format("{}", report.model->block.kept_bits) : "-";
        table.add({{id}, {name}, {finding("slices of K")}, {finding("products per block")}, {bits}, {report.hash}});
        Json one = json_of(report);
        one["subject"] = id;
        all.push_back(std::move(one));
      } catch (const Unsupported& reason) {
        refused.push_back(fmt::format("{} {}: {}", id, name, reason.what()));
      }
    }
  const std::string json = Json{{"grid", all}, {"refused", refused}}.dump(2) + "\n";
  if (!arguments.output.empty()) write_file(arguments.output, json);
  if (arguments.json) {
    fmt::print("{}", json);
    return;
  }
  fmt::print("{}", table.text(text));
  for (const std::string& one : refused) fmt::print("{}", wrapped("not supported: ", one, text.width));
}

// As in other lists, what is named twice is done once.
std::vector<std::string> without_repeats(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names)
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  return all;
}

void run_probe(ProbeArguments arguments) {
  arguments.types = without_repeats(arguments.types);
  if (arguments.all_reduce) {
    HM_CHECK(arguments.grid.empty() && arguments.vectors.empty() && arguments.instruction.empty() &&
                 arguments.shape == ProbeArguments{}.shape,
             "--all-reduce examines sums across devices: leave out --shape, --grid, --vectors and --instruction");
    return probe_all_reduce(
        {arguments.device, arguments.types, arguments.elements, arguments.replays, arguments.json, arguments.output});
  }
  HM_CHECK(arguments.elements == ProbeArguments{}.elements, "--elements is of --all-reduce");
  HM_CHECK(arguments.grid.empty() || (arguments.vectors.empty() && arguments.instruction.empty()),
           "--grid examines matmuls: leave out --vectors and --instruction");
  const auto device = open_device(arguments.device.empty() ? default_device() : arguments.device);
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  if (!arguments.vectors.empty()) {
    fmt::print("{}", probe_vectors(*device, arguments.vectors, options));
    return;
  }
  if (!arguments.grid.empty()) return run_grid(*device, arguments, options);
  probe::Options how;
  how.replays = arguments.replays;
  std::vector<std::string> refused;
  const std::vector<probe::Report> reports = arguments.instruction.empty()
                                                 ? probe_matmuls(*device, arguments, how, refused)
                                                 : probe_instructions(*device, arguments, how);
  Json all = Json::array();
  for (const probe::Report& report : reports) all.push_back(json_of(report));
  const std::string substitute = substitute_text(*device);
  Json whole = {{"probe", all}, {"refused", refused}};
  if (!substitute.empty()) whole["substitute"] = substitute;
  const std::string json = whole.dump(2) + "\n";
  if (!arguments.output.empty()) write_file(arguments.output, json);
  if (arguments.json) {
    fmt::print("{}", json);
    return;
  }
  if (!substitute.empty()) fmt::print("{}", wrapped("", substitute, options.width));
  for (const probe::Report& report : reports) fmt::print("{}", text_of(report, options));
  if (!refused.empty())
    fmt::print("{}", wrapped(fmt::format("not supported by {}: ", device->name()),
                             fmt::format("{}", fmt::join(refused, ", ")), options.width));
}

}  // namespace

void add_probe_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<ProbeArguments>();
  line.add("probe", "how a device adds, measured from its results; which simulated tensor core adds alike")
      .option("--device", arguments->device, "cpu, sim:hopper, cuda:0, ...; default: the best one present")
      .list("--types", arguments->types,
            "f16>f32, e4m3*e5m2>f16, tf32>f32, bf16>f32+split3:bf16, ... (more: a,b); default: the usual ones")
      .option("--shape", arguments->shape, "shape of the matmul, MxNxK; libraries choose kernels by it", kShowsDefault)
      .option("--instruction", arguments->instruction,
              "mma.m16n8k16, wgmma.k16, ... or all: matrix instructions instead of matmul")
      .option("--replay", arguments->replays,
              "random products that a replay of the findings must reproduce bit for bit", kShowsDefault)
      .option("--grid", arguments->grid,
              "a list of linear layers, as for halfmark run --shapes: how the matmul of each adds, one line each")
      .flag("--all-reduce", arguments->all_reduce,
            "how several GPUs add across each other (NCCL): --device cuda:0,cuda:1,... in the order of their ranks, "
            "--types "
            "f32,bf16,...")
      .option("--elements", arguments->elements,
              "elements of the buffer of --all-reduce; libraries choose algorithms by it", kShowsDefault | kPositive,
              1 << 26)
      .option("--vectors", arguments->vectors,
              "tensor_core_probes.csv: run its test vectors and print the hypotheses that agree")
      .flag("--json", arguments->json, "machine-readable output")
      .option("-o,--output", arguments->output, "write the JSON to this file as well", kFile)
      .footer(
          "halfmark run --shapes FILE summation writes what --grid finds as a report, which halfmark gate compares.")
      .examples({"halfmark probe --device sim:hopper --types 'f16>f32'",
                 "halfmark probe --device cpu --types 'bf16>f32' --shape 64x64x256",
                 "halfmark probe --device sim:hopper --instruction all"})
      .action([arguments] { run_probe(*arguments); });
}

}  // namespace halfmark::bench
