// halfmark dump: the tensors of training steps as files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/run/case.h"
#include "bench/run/data_files.h"
#include "bench/run/known_names.h"
#include "bench/run/model_file.h"
#include "bench/run/tensor_dump.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/network/training_arguments.h"

namespace halfmark::bench {

namespace {

struct DumpArguments {
  std::vector<std::string> words, models, training;
  std::string folder, data;
  int steps = 1;
  ScalePattern scales;
  uint64_t seed = 0;
};

// "rate=0.1" as arguments of a model file's "training".
void change_training(const std::vector<std::string>& words, Settings& settings) {
  if (words.empty()) return;
  const std::string typed = fmt::format("--training {}", fmt::join(words, ","));
  Arguments changed;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    HM_CHECK(equals != word.npos && equals > 0, fmt::format("--training {}: not KEY=VALUE, as optimizer=adamw", word));
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    size_t used = 0;
    double number = 0;
    try {
      number = std::stod(value, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (value == "true" || value == "false")
      changed[key] = value == "true";
    else if (used == value.size() && !value.empty())
      changed[key] = number;
    else
      changed[key] = value;
  }
  try {
    settings = training_with(settings, changed);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", typed, error.what()));
  }
}

void dump(const DumpArguments& arguments, const Program& program) {
  for (const std::string& file : arguments.models) add_model_file(file);
  HM_CHECK(arguments.words.size() == 1, "dump needs one case, as mlp/b8_i16_h24_o10/cpu/amp-fp16");
  const std::string& id = arguments.words.front();
  HM_CHECK(
      std::count(id.begin(), id.end(), '/') == 3,
      fmt::format("{}: dump takes SUBJECT/SIZES/DEVICE/POLICY, as mlp/b8_i16_h24_o10/cpu/amp-fp16, without a harness",
                  id));
  const size_t planned = arguments.scales.pattern.size();
  HM_CHECK(planned == 0 || arguments.steps == 1 || static_cast<size_t>(arguments.steps) == planned,
           fmt::format("--steps {}: --overflows has {} steps", arguments.steps, planned));
  HM_CHECK(planned > 0 || arguments.scales.interval == 0,
           fmt::format("--growth-interval {}: only with --overflows", arguments.scales.interval));
  Case one = case_of(id + "/error");  // any harness: a step of training is written
  DataFiles(arguments.data).add_to(one);
  HM_CHECK(one.subject->network, "subject " + one.subject->id() + " is a function of a program and cannot be written");
  TrialSpec spec = one.trial(open_device(one.device), arguments.seed);
  change_training(arguments.training, spec.settings);
  dump_steps(spec, arguments.steps, arguments.folder, program.command, arguments.scales);
  fmt::print("{}\n", arguments.folder);
}

}  // namespace

void add_dump_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<DumpArguments>();
  line.add("dump", "the tensors of training steps as .npy files, for NumPy and for other programs")
      .words("case", arguments->words, "SUBJECT/SIZES/DEVICE/POLICY, as at the beginning of a case's id", kRequired)
      .option("-o,--output", arguments->folder, "a new or empty folder", kRequired)
      .option("--steps", arguments->steps, "training steps", kShowsDefault | kPositive, 1000)
      .option("--seed", arguments->seed, "random seed of parameters and data", kShowsDefault)
      .list("--training", arguments->training, "KEY=VALUE of a model file's training: optimizer=adamw,rate=0.001")
      .option("--overflows", arguments->scales.pattern,
              "only the loss scale, with planted overflows: a 0 or 1 for each step, as 00100")
      .option("--growth-interval", arguments->scales.interval,
              "with --overflows: steps after which the scale grows; default: those of the policy's scaler", kPositive)
      .files("--model", arguments->models, "a model of your own, as in halfmark run")
      .option("--data", arguments->data, "files in place of drawn data, as in halfmark run")
      .footer(
          "dump.json lists the files: inputs, targets, outputs, gradients with the loss scale (scaled_gradient) and as "
          "the optimizer takes them (gradient: unscaled, and clipped if it clips), parameters, running statistics and "
          "optimizer state after each step, with the model, the policy and the dtype of each "
          "layer's output. bf16 and 8-bit types are stored as the unsigned integers of their codes.")
      .examples({"halfmark dump mlp/b8_i16_h24_o10/cpu/amp-fp16 -o tensors",
                 "halfmark dump gpt/b2_t8_n1_h2_d8_v27/cpu/fp64 -o steps --steps 3 --training optimizer=adam,rate=0.01",
                 "halfmark dump mlp/b8_i16_h24_o10/cpu/amp-fp16 -o scales --overflows 0010011 --growth-interval 2"})
      .action([arguments, &program] { dump(*arguments, program); });
}

}  // namespace halfmark::bench
