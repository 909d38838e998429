// halfmark plan: which layers of a network must run in fp32.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/fp32_plan.h"
#include "bench/commands/commands.h"
#include "bench/run/case.h"
#include "bench/run/default_device.h"
#include "bench/run/model_file.h"
#include "bench/run/progress_line.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/shell.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

using PlanJson = nlohmann::ordered_json;
using accuracy::Fp32Plan;
using accuracy::PassErrors;
using accuracy::PlannedLayer;

struct PlanArguments {
  std::vector<std::string> words, models;
  std::string policy = "fp16", device;
  double tolerance = 0;
  int passes = accuracy::Fp32PlanOptions().most_passes;
  uint64_t seed = 0;
  bool json = false;
};

// As reports write numbers that are not finite.
PlanJson number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

PlanJson errors_json(const PassErrors& errors) {
  return {{"error", number_json(errors.largest())},
          {"training", number_json(errors.training)},
          {"evaluation", number_json(errors.evaluation)},
          {"loss", number_json(errors.loss)}};
}

PlanJson layer_json(const PlannedLayer& layer) {
  PlanJson json = {{"layer", layer.name},
                   {"kind", layer.kind},
                   {"cause", name_of(layer.cause)},
                   {"evidence", layer.evidence},
                   {"error_in_half", number_json(layer.error)},
                   {"tensor", layer.worst.what},
                   {"nonfinite", layer.worst.nonfinite},
                   {"zeroed", layer.worst.zeroed},
                   {"subnormal", layer.worst.subnormal},
                   {"largest", layer.largest},
                   {"largest_at", layer.largest_at}};
  if (layer.changed_error >= 0)
    json["rerun"] = {{"changed", layer.changed}, {"error", number_json(layer.changed_error)}};
  return json;
}

std::string rerun_command(const TrialSpec& spec, const Fp32Plan& plan, const PlanArguments& arguments) {
  std::string command = "halfmark run";
  for (const std::string& file : arguments.models) command += " --model " + reports::shell_word(file);
  command += fmt::format(" {} error --policy {}", spec.subject->id(), reports::shell_word(spec.policy->name));
  if (!plan.precision.empty()) command += " --precision " + reports::shell_word(plan.precision);
  command += fmt::format(" --device {}", spec.device->name());
  if (spec.seed != 0) command += fmt::format(" --seed {}", spec.seed);
  return command;
}

PlanJson json_of(const TrialSpec& spec, const Fp32Plan& plan, const std::string& command) {
  PlanJson layers = PlanJson::array();
  for (const PlannedLayer& layer : plan.layers) layers.push_back(layer_json(layer));
  return {{"subject", spec.subject->id()},
          {"device", spec.device->name()},
          {"numerics", spec.device->numerics()},
          {"policy", spec.policy->name},
          {"seed", spec.seed},
          {"tolerance", plan.tolerance},
          {"tolerance_is_derived", plan.tolerance_is_derived},
          {"meets", plan.meets},
          {"layers_in_all", plan.layers_in_all},
          {"layers", layers},
          {"precision", plan.precision},
          {"minimal", plan.is_minimal},
          {"passes", plan.passes},
          {"none_in_fp32", errors_json(plan.none)},
          {"set_in_fp32", errors_json(plan.with_set)},
          {"all_in_fp32", errors_json(plan.all)},
          {"fp32", errors_json(plan.fp32)},
          {"all_in_fp32_has_the_bits_of_fp32", plan.all_is_fp32},
          {"command", command}};
}

std::string errors_text(const Fp32Plan& plan, const TextOptions& options) {
  const bool has_loss = plan.none.loss != 0 || plan.all.loss != 0 || plan.with_set.loss != 0;
  std::vector<std::string> titles = {"layers in fp32", "training", "evaluation"};
  if (has_loss) titles.emplace_back("loss");
  Table table(titles, 1);
  const auto add = [&](const std::string& name, const PassErrors& errors) {
    std::vector<Cell> cells = {{name}};
    std::vector<double> values = {errors.training, errors.evaluation};
    if (has_loss) values.push_back(errors.loss);
    for (const double value : values)
      cells.push_back({fmt::format("{:.3g}", value), value <= plan.tolerance ? Tone::plain : Tone::bad});
    table.add(std::move(cells));
  };
  add("none", plan.none);
  if (plan.meets && !plan.layers.empty()) add("these", plan.with_set);
  add("all", plan.all);
  return table.text(options);
}

std::string proof_text(const Fp32Plan& plan) {
  std::string text = fmt::format("{} forward passes. ", plan.passes);
  if (plan.layers.empty()) return text;
  return text + (plan.is_minimal ? "Without any one of these layers the tolerance was missed."
                                 : "Not shown to be minimal: the passes did not suffice to leave out each layer once; "
                                   "--passes allows more.");
}

std::string text_of(const TrialSpec& spec, const Fp32Plan& plan, const std::string& command,
                    const TextOptions& options) {
  std::string text = fmt::format("{} on {} under {}: ", spec.subject->id(), spec.device->name(), spec.policy->name);
  if (!plan.meets)
    text += "no set of layers in fp32 meets the tolerance";
  else if (plan.layers.empty())
    text += fmt::format("none of {} layers must run in fp32", plan.layers_in_all);
  else
    text += fmt::format("{} of {} layers must run in fp32", plan.layers.size(), plan.layers_in_all);
  text = wrapped("", text, options.width);
  if (const std::string substitute = substitute_text(*spec.device); !substitute.empty())
    text = wrapped("", substitute, options.width) + text;
  if (!plan.layers.empty()) {
    Table table({"layer", "kind", "cause", "evidence"}, 4);
    for (const PlannedLayer& layer : plan.layers)
      table.add({{layer.name, Tone::strong}, {layer.kind}, {std::string(name_of(layer.cause))}, {layer.evidence}});
    text += "\n" + table.text(options);
  }
  text += "\n" + errors_text(plan, options);
  text += wrapped(
      "",
      fmt::format("  relative error to fp64; tolerance {:.3g}{}", plan.tolerance,
                  plan.tolerance_is_derived
                      ? fmt::format(", 8 unit roundoffs of {} times the root of the number of layers", plan.format)
                      : ""),
      options.width);
  text += "\n" + wrapped("", proof_text(plan), options.width);
  if (plan.meets) text += fmt::format("\n--precision {}\n{}\n", reports::shell_word(plan.precision), command);
  if (plan.meets && plan.precision.empty()) text = text.substr(0, text.rfind("\n--precision")) + "\n" + command + "\n";
  return text;
}

void run_plan(const PlanArguments& arguments, Program& program) {
  std::vector<std::string> ids = arguments.words;
  for (const std::string& file : arguments.models) {
    const std::string id = add_model_file(file);
    if (arguments.words.empty()) ids.push_back(id);
  }
  HM_CHECK(ids.size() == 1, "plan needs one subject, as convnet/b16_c3_s16_w16, or --model FILE");
  HM_CHECK(std::ranges::count(ids.front(), '/') == 1,
           fmt::format("{}: plan takes SUBJECT/SIZES, as convnet/b16_c3_s16_w16", ids.front()));
  const std::string device = arguments.device.empty() ? default_device() : arguments.device;
  const Case one = case_of(fmt::format("{}/{}/{}/error", ids.front(), device, arguments.policy));
  const TrialSpec spec = one.trial(open_device(one.device), arguments.seed);
  const Fp32Plan plan = accuracy::fp32_plan(spec, {.tolerance = arguments.tolerance, .most_passes = arguments.passes});
  const std::string command = rerun_command(spec, plan, arguments);
  if (arguments.json) {
    fmt::print("{}\n", json_of(spec, plan, command).dump(2));
  } else {
    TextOptions options;
    options.width = terminal_width(STDOUT_FILENO), options.colour = wants_colour(STDOUT_FILENO);
    fmt::print("{}", text_of(spec, plan, command, options));
  }
  if (!plan.meets) program.exit_code = kFailed;
}

}  // namespace

void add_plan_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<PlanArguments>();
  line.add("plan", "which layers of a network must run in fp32, and why")
      .words("subject", arguments->words, "SUBJECT/SIZES, as in halfmark list subjects")
      .files("--model", arguments->models, "a model of your own, as in halfmark run")
      .option("--policy", arguments->policy, "of the layers that need not run in fp32", kShowsDefault)
      .option(
          "--tolerance", arguments->tolerance,
          "relative error to fp64 that outputs and loss may have; default: 8 unit roundoffs of the format times the "
          "root of the number of layers",
          kPositive)
      .option("--device", arguments->device, "cpu, sim:hopper, cuda:0, ...; default: the best one present")
      .option("--seed", arguments->seed, "random seed of parameters and data", kShowsDefault)
      .option(
          "--passes", arguments->passes,
          "the most forward passes, each in training and in evaluation mode; 4 at least: fp64, fp32, and all and no "
          "layers in fp32",
          kShowsDefault, 1'000'000, 4)
      .flag("--json", arguments->json, "machine-readable output")
      .footer(
          "The set is 1-minimal: without any one of its layers the tolerance is missed. A tensor beyond the format "
          "needs "
          "two layers, the one that computes it and the one that reads it. Exit code 1: no set of layers, not even all "
          "in fp32, meets "
          "the tolerance.")
      .examples({"halfmark plan convnet/b4_c1_s8_w4", "halfmark plan gpt/b2_t8_n1_h2_d8_v27 --tolerance 0.001 --json",
                 "halfmark plan mlp/b8_i16_h24_o10 --policy fp16-sum16 --device sim:volta"})
      .action([arguments, &program] { run_plan(*arguments, program); });
}

}  // namespace halfmark::bench
