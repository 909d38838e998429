// halfmark check: whether a device computes what it should, for minutes, with known results.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accuracy/probe/known_answers.h"
#include "bench/commands/commands.h"
#include "bench/commands/matmul_shape.h"
#include "bench/run/default_device.h"
#include "bench/run/interruption.h"
#include "bench/run/progress_line.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/file.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

using CheckJson = nlohmann::ordered_json;

struct CheckArguments {
  std::string device, shape = "1024x1024x64", output;
  std::vector<std::string> types;
  double minutes = 1;
  uint64_t seed = 1;
  int problems = 16384;
  bool instructions_only = false, matmuls_only = false, json = false;
};

// With no wrong result among n, the share of wrong ones is below this with 95 % confidence (the rule of three).
double rate_bound(const probe::DeviceCheck& check) { return 3 / static_cast<double>(check.results()); }

CheckJson json_of(const Device& device, const CheckArguments& arguments, const probe::DeviceCheck& check, int signal) {
  CheckJson facts = CheckJson::object();
  for (const auto& [name, value] : device.describe()) facts[name] = value;
  CheckJson subjects = CheckJson::array(), wrong = CheckJson::array(), places = CheckJson::object();
  for (const probe::CheckedSubject& one : check.subjects)
    subjects.push_back(
        {{"name", one.name}, {"expected_from", one.expected}, {"results", one.results}, {"wrong", one.wrong}});
  for (const probe::WrongResult& one : check.wrong)
    wrong.push_back({{"subject", one.subject},
                     {"round", one.round},
                     {"place", one.place},
                     {"expected", one.expected},
                     {"got", one.got},
                     {"a", one.a},
                     {"b", one.b},
                     {"c", one.c}});
  for (const auto& [multiprocessor, count] : check.wrong_on_multiprocessor)
    places[std::to_string(multiprocessor)] = count;
  CheckJson json = {{"device", device.name()},
                    {"facts", facts},
                    {"numerics", device.numerics()},
                    {"seed", arguments.seed},
                    {"seconds", check.seconds},
                    {"rounds", check.rounds},
                    {"results", check.results()},
                    {"wrong", check.wrong_results()},
                    {"wrong_on_multiprocessor", places},
                    {"subjects", subjects},
                    {"wrong_results", wrong},
                    {"not_checked", check.not_checked},
                    {"stopped_by_signal", signal}};
  if (check.results() > 0 && check.wrong_results() == 0) json["wrong_share_below"] = rate_bound(check);
  return json;
}

std::string text_of(const Device& device, const probe::DeviceCheck& check, bool is_stopped,
                    const TextOptions& options) {
  std::string text;
  if (is_stopped)
    text += toned(wrapped("", "stopped before its time was over", options.width), Tone::bad, options.colour);
  text += wrapped("",
                  fmt::format("{}: {} results in {:.0f} s, {} of problems", device.name(), check.results(),
                              check.seconds, counted(check.rounds, "round")),
                  options.width);
  if (const std::string what = substitute_text(device); !what.empty()) text += wrapped("", what, options.width);
  Table table({"checked", "known results from", "results", "wrong"}, 2);
  for (const probe::CheckedSubject& one : check.subjects)
    table.add({{one.name},
               {one.expected},
               {fmt::format("{}", one.results)},
               {fmt::format("{}", one.wrong), one.wrong ? Tone::bad : Tone::plain}});
  if (!table.empty()) text += "\n" + table.text(options);
  if (!check.not_checked.empty()) {
    text += "\nnot checked:\n";
    for (const std::string& one : check.not_checked) text += wrapped("  ", one, options.width);
  }
  if (!check.wrong.empty()) {
    constexpr size_t kShown = 10;
    text += fmt::format("\n{}, the first:\n", counted(check.wrong_results(), "wrong result"));
    for (size_t i = 0; i < std::min(kShown, check.wrong.size()); ++i) {
      const probe::WrongResult& one = check.wrong[i];
      text += wrapped(
          "  ",
          fmt::format("{}, round {}, {}: {} instead of {}", one.subject, one.round, one.place, one.got, one.expected),
          options.width);
      const std::string c = one.c.empty() ? "" : " c " + one.c;
      text += wrapped("    ", fmt::format("a {} b {}{}", one.a, one.b, c), options.width);
    }
    std::string places;
    for (const auto& [multiprocessor, count] : check.wrong_on_multiprocessor)
      places += fmt::format("{}{} ({})", places.empty() ? "" : ", ", multiprocessor, count);
    if (!places.empty()) text += wrapped("wrong by multiprocessor: ", places, options.width);
  } else if (check.results() > 0) {
    text +=
        "\n" + wrapped("",
                       fmt::format("no wrong result: their share is below {:.1e} (95 % confidence)", rate_bound(check)),
                       options.width);
  }
  return text;
}

void run_check(const CheckArguments& arguments, Program& program) {
  HM_CHECK(!arguments.instructions_only || !arguments.matmuls_only,
           "--instructions-only and --matmuls-only exclude each other");
  HM_CHECK(!arguments.instructions_only || arguments.types.empty(),
           "--types selects matmuls, and --instructions-only leaves them out");
  probe::CheckOptions options;
  options.seconds = 60 * arguments.minutes, options.seed = arguments.seed, options.types = arguments.types;
  options.problems = arguments.problems, options.shape = matmul_shape_named(arguments.shape);
  options.instructions = !arguments.matmuls_only, options.matmuls = !arguments.instructions_only;
  for (const std::string& types : arguments.types) (void)probe::matmul_types_named(types);  // errors before the work
  const auto device = open_device(arguments.device.empty() ? default_device() : arguments.device);

  Interruption interruption(30, "halfmark: stopped\n", [] {});
  probe::DeviceCheck check;
  {
    ProgressLine progress;
    const auto seconds = static_cast<size_t>(std::ceil(options.seconds));
    check = probe::check_device(*device, options, [&](const probe::DeviceCheck& so_far, const std::string& now) {
      const uint64_t wrong = so_far.wrong_results();
      progress.show(std::min(seconds, static_cast<size_t>(so_far.seconds)), seconds,
                    wrong ? fmt::format("{} wrong; {}", wrong, now) : now);
      return !interrupted();
    });
  }
  const int signal = interrupting_signal();
  interruption.close();

  const std::string json = json_of(*device, arguments, check, signal).dump(2) + "\n";
  if (!arguments.output.empty()) write_file(arguments.output, json);
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO), text.colour = wants_colour(STDOUT_FILENO);
  fmt::print("{}", arguments.json ? json : text_of(*device, check, signal != 0, text));
  if (check.wrong_results() > 0)
    program.exit_code = kFailed;
  else if (signal != 0)
    program.exit_code = 128 + signal;
  else if (check.results() == 0)
    program.exit_code = kUndecided;
}

}  // namespace

void add_check_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<CheckArguments>();
  line.add("check", "whether a device computes what it should: known results, for minutes, on the whole device")
      .option("--device", arguments->device, "cuda:0, cpu, ...; default: the best one present")
      .option("--minutes", arguments->minutes, "how long; everything is checked at least once",
              kShowsDefault | kPositive)
      .list("--types", arguments->types, "types of the matmuls, as in halfmark probe; default: the usual ones")
      .option("--shape", arguments->shape, "shape of the matmuls, MxNxK", kShowsDefault)
      .option("--problems", arguments->problems, "dot products in one launch of a matrix instruction",
              kShowsDefault | kPositive, 1 << 24)
      .flag("--instructions-only", arguments->instructions_only, "no matmuls of the libraries")
      .flag("--matmuls-only", arguments->matmuls_only, "no matrix instructions")
      .option("--seed", arguments->seed, "of the random problems", kShowsDefault)
      .flag("--json", arguments->json, "machine-readable output")
      .option("-o,--output", arguments->output, "write the JSON to this file as well", kFile)
      .footer(
          "Matrix instructions are compared with the simulated instruction of the same GPU, matmuls with the model "
          "that\n"
          "the probe finds for the device, or with its own first results where no model describes them.\n"
          "Exit codes: 0 no wrong result; 1 wrong results; 3 nothing could be checked.")
      .examples({"halfmark check --device cpu --minutes 0.02 --types 'f32>f32' --shape 64x64x32",
                 "halfmark check --device cpu --minutes 0.02 --matmuls-only --types 'f32>f32,bf16>f32' --shape "
                 "32x32x32 --json"})
      .action([arguments, &program] { run_check(*arguments, program); });
}

}  // namespace halfmark::bench
