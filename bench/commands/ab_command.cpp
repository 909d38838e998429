// halfmark ab: compares two builds on one machine. halfmark sample: the process of each build that it measures.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/compare_numbers.h"
#include "bench/ab/compare_times.h"
#include "bench/ab/private_code_pages.h"
#include "bench/commands/commands.h"
#include "bench/commands/output_options.h"
#include "bench/run/interruption.h"
#include "bench/run/model_file.h"
#include "bench/run/program_name.h"
#include "bench/run/progress_line.h"
#include "bench/run/standard_streams.h"
#include "bench/run/utc_time.h"
#include "kernels/number/error.h"
#include "reports/record/printable.h"
#include "reports/statistics/noise_facts.h"

namespace halfmark::bench {

namespace {

constexpr int kMostThreads = 4096, kMostPairs = 10'000;

struct AbArguments {
  std::string a, b, suite, noise, learn;
  std::vector<std::string> words, devices, policies, models;
  std::string shapes, data;
  bool one_after_another = false, time_only = false, numbers_only = false, layouts = false;
  std::string rules = "default";
  OutputOptions outputs;
  AbOptions options;
};

std::vector<std::string> selection_of(const AbArguments& arguments) {
  std::vector<std::string> selection = arguments.words;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) selection.insert(selection.end(), {option, value});
  };
  add("--suite", arguments.suite);
  add("--shapes", arguments.shapes);
  add("--data", arguments.data);
  for (const std::string& file : arguments.models) add("--model", file);
  for (const std::string& device : arguments.devices) add("--device", device);
  for (const std::string& policy : arguments.policies) add("--policy", policy);
  return selection;
}

// A separate progress line for each stage, so that it shows the time left of that stage.
class StageLine {
 public:
  void show(const std::string& doing, const PairProgress& progress) {
    if (doing != doing_ || progress.pair == 0) line_.emplace();
    doing_ = doing;
    line_->show(static_cast<size_t>(progress.pair), static_cast<size_t>(progress.pairs),
                fmt::format("{}: {} cases", doing, progress.cases));
  }
  void clear() { line_.reset(); }

 private:
  std::string doing_;
  std::optional<ProgressLine> line_;
};

NoiseProfile noise_in(const std::string& file) {
  if (file.empty() || !std::filesystem::exists(file)) return {};
  return NoiseProfile::load(file);
}

void run_ab(const AbArguments& arguments, Program& program) {
  AbOptions options = arguments.options;
  options.selection = selection_of(arguments);
  options.models = arguments.models, options.data = arguments.data;
  options.side_by_side = !arguments.one_after_another;
  if (arguments.layouts) options.layouts_a = Build::open_layouts(arguments.a);
  const Build a = arguments.layouts ? options.layouts_a.front() : Build::open(arguments.a);
  StageLine line;
  options.progress = [&](const std::string& doing, const PairProgress& progress) { line.show(doing, progress); };
  if (!arguments.learn.empty()) {
    if (!arguments.b.empty() && arguments.b != arguments.a)
      throw Error("--learn: noise is that of one build against itself; name one build");
    NoiseProfile noise = noise_in(arguments.learn);
    learn_noise(a, options, noise);
    noise.save(arguments.learn);
    fmt::print("{}: {} cases known\n", printable(arguments.learn), noise.cases.size());
    return;
  }
  if (arguments.time_only && arguments.numbers_only)
    throw Error("ab: --time-only and --numbers-only exclude each other; without both, everything is compared");
  if (arguments.b.empty()) throw Error("ab: two builds are needed (halfmark ab --help says more)");
  if (!arguments.noise.empty()) options.noise = NoiseProfile::load(arguments.noise);
  arguments.outputs.check();
  const GateRules rules = load_gate_rules(arguments.rules);
  if (arguments.layouts) options.layouts_b = Build::open_layouts(arguments.b);
  const Build b = arguments.layouts ? options.layouts_b.front() : Build::open(arguments.b);
  Judgement judgement;
  Report candidate;
  if (!arguments.numbers_only) judgement = compare_times(a, b, options);
  if (!arguments.time_only) {
    line.show("bytes and numbers of both builds", {0, 1, 0, NAN});
    NumbersCompared numbers = compare_numbers(a, b, options.selection, rules, {.today = utc_date()});
    judgement = arguments.numbers_only ? std::move(numbers.judgement)
                                       : joined(std::move(judgement), std::move(numbers.judgement));
    candidate = std::move(numbers.candidate);
  }
  require_a_comparison(judgement);
  line.clear();
  arguments.outputs.write(judgement, candidate);
  program.exit_code = judgement.exit_code;
}

// After a signal, the processes of the builds are ended and the unpacked archives removed.
void run_ab_until_stopped(const AbArguments& arguments, Program& program) {
  const auto say = [] {
    complain(
        fmt::format("stopped ({}) before there was a verdict; nothing is written", ::strsignal(interrupting_signal())));
  };
  constexpr double kPatience = 2;  // seconds
  Interruption interruption(kPatience, "\n" + program_name() + ": stopped at once\n", say);
  try {
    run_ab(arguments, program);
  } catch (const Interrupted&) {
    say();
    program.exit_code = 128 + interrupting_signal();
  }
  interruption.close();
}

}  // namespace

void add_ab_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<AbArguments>();
  AbOptions& options = arguments->options;
  DecisionRules& rules = options.rules;
  rules.layout_spread = kLayoutSpread;
  Command command =
      line.add("ab", "two builds on one machine: which cases became slower, larger or less accurate")
          .option("a", arguments->a,
                  "the old build: a program, the folder of a build or of an unpacked archive (or the folder around "
                  "it), or a .tar.gz",
                  kRequired)
          .option("b", arguments->b, "the new build")
          .words("words", arguments->words, "select cases, as in halfmark run")
          .option("--suite", arguments->suite, "smoke, quick (default), full")
          .list("--device", arguments->devices, "cpu, cuda:0, ... (more: a,b); default: the best one present")
          .list("--policy", arguments->policies, "precisions (more: a,b; * as a glob)")
          .option("--shapes", arguments->shapes, "these subjects only: a list as in halfmark run")
          .files("--model", arguments->models, "a model of your own as JSON, as in halfmark run; both builds read it")
          .option("--data", arguments->data, "files in place of drawn data, as in halfmark run; both builds read them")
          .option("--seconds", options.seconds, "seconds of timed steps for each case in one process",
                  kShowsDefault | kPositive)
          .option("--threads", options.threads,
                  "threads of the CPU's kernels, 0: all cores; 1 gives quieter times on a machine with other work",
                  kShowsDefault, kMostThreads)
          .option("--floor", rules.minimum_effect, "smallest slow-down reported: 0.03 is 3 %",
                  kShowsDefault | kPositive)
          .option("--margin", rules.margin, "slow-down that the confidence bound must exceed", kShowsDefault)
          .option("--screen-pairs", rules.screen_pairs, "pairs of processes for the screening of every case",
                  kShowsDefault, kMostPairs)
          .option("--confirm-pairs", rules.confirm_pairs,
                  "fresh pairs for each case that seems slower in the screening", kShowsDefault, kMostPairs)
          .option("--extend-pairs", rules.extend_pairs, "further pairs for each case that is still undecided",
                  kShowsDefault, kMostPairs)
          .flag("--layouts", arguments->layouts,
                "a and b are folders of programs: one build each, linked with its objects in several orders")
          .option("--layout-spread", rules.layout_spread,
                  "without --layouts: shift of a case by the placement of the code of one build; 0.02 is 2 %",
                  kShowsDefault)
          .flag("--improvements", rules.improvements, "confirm cases that became faster, too")
          .option("--noise", arguments->noise,
                  "file that --learn wrote: cases known to be noisy get a higher threshold")
          .option("--learn", arguments->learn, "measure build a against itself and add its noise to this file")
          .flag("--time-only", arguments->time_only, "compare times only, not bytes and numbers")
          .flag("--numbers-only", arguments->numbers_only, "compare bytes and numbers only, not times")
          .option("--rules", arguments->rules,
                  "which changes of bytes and numbers are allowed: default, strict or a rules file", kShowsDefault)
          .flag("--one-after-another", arguments->one_after_another,
                "never run both builds at once: for a device that only one process may use")
          .option("--timeout", options.timeout, "seconds for one case in one process", kShowsDefault | kPositive)
          .option("--seed", options.seed, "random seed of the pair order", kShowsDefault)
          .footer(
              "Exit codes: 0 pass, 1 a case is slower or lost, 2 wrong input, 3 undecided or the machine itself "
              "moved.")
          .examples({"halfmark ab old/halfmark new/halfmark", "halfmark ab v1.tar.gz v2.tar.gz mlp 'amp-*'",
                     "halfmark ab old/halfmark new/halfmark --threads 1 --json judgement.json",
                     "halfmark ab --layouts old/layouts new/layouts"})
          .action([arguments, &program] { run_ab_until_stopped(*arguments, program); });
  arguments->outputs.add_to(command);
}

void add_sample_command(CommandLine& line, Program& program) {
  struct SampleArguments {
    SamplerOptions options;
    std::vector<std::string> models;
    bool shared_pages = false;
  };
  auto arguments = std::make_shared<SampleArguments>();
  SamplerOptions& options = arguments->options;
  line.add_internal("sample", "for `halfmark ab`: reads ids of cases, answers each with its time")
      .option("--seconds", options.seconds, "seconds of timed steps for each case", kShowsDefault | kPositive)
      .option("--threads", options.threads, "threads of the CPU's kernels; 0: as many as there are cores",
              kShowsDefault, kMostThreads)
      .option("--seed", options.seed, "random seed of parameters and data", kShowsDefault)
      .files("--model", arguments->models, "model files of the cases")
      .option("--data", arguments->options.data, "files in place of drawn data")
      .flag("--shared-pages", arguments->shared_pages,
            "share the memory pages of the code with other processes of this program (scripts/placement.py)")
      .action([arguments, &program] {
        arguments->options.shared_pages = arguments->shared_pages ? "asked for" : use_private_code_pages();
        arguments->options.slow_down = program.slow_down;
        for (const std::string& file : arguments->models) add_model_file(file);
        Sampler sampler(arguments->options);
        answer_samples(std::cin, std::cout, sampler);
      });
}

}  // namespace halfmark::bench
