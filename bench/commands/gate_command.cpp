// halfmark gate: is a report worse than another? Prints what it found; the exit code is the verdict.
#include <memory>
#include <string>

#include "bench/commands/commands.h"
#include "bench/commands/output_options.h"
#include "bench/run/utc_time.h"
#include "reports/gate/gate.h"

namespace halfmark::bench {

namespace {

struct GateArguments {
  std::string base, candidate, rules = "default", acknowledged;
  bool strict_bits = false, same_environment = false, time = false;
  OutputOptions outputs;
};

void gate(const GateArguments& arguments, Program& program) {
  arguments.outputs.check();
  const GateRules rules = load_gate_rules(arguments.rules);
  GateOptions options;
  options.strict_bits = arguments.strict_bits;
  options.same_environment = arguments.same_environment;
  options.time = arguments.time;
  options.today = utc_date();
  if (!arguments.acknowledged.empty()) options.acknowledgements = Acknowledgements::load(arguments.acknowledged);
  const NamedReport base{arguments.base, Report::load(arguments.base)};
  require_records(base);
  const NamedReport candidate{arguments.candidate, Report::load(arguments.candidate)};
  const Judgement judgement = judge(base, candidate, rules, options);
  arguments.outputs.write(judgement, candidate.report);
  program.exit_code = judgement.exit_code;
}

}  // namespace

void add_gate_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<GateArguments>();
  Command command =
      line.add("gate", "is a report worse than another? numbers, bits, memory; times with --time")
          .option("base", arguments->base, "the report to hold to", kRequired)
          .option("new", arguments->candidate, "the report to judge", kRequired)
          .option("--rules", arguments->rules, "what is allowed: default, strict or a file", kShowsDefault)
          .option("--acknowledge", arguments->acknowledged, "file of changes that somebody looked at and accepts")
          .flag("--strict-bits", arguments->strict_bits, "a change that nobody acknowledged fails")
          .flag("--same-environment", arguments->same_environment,
                "another machine or library makes the verdict ENV_SUSPECT")
          .flag("--time", arguments->time,
                "judge times too, where both reports are of one machine and of halfmark run --processes 24 or more")
          .footer(
              "Exit codes: 0 pass, 1 worse or a case lost, 2 the command or a file was wrong, 3 no verdict "
              "(inconclusive, "
              "or "
              "another environment).")
          .action([arguments, &program] { gate(*arguments, program); });
  arguments->outputs.add_to(command);
}

}  // namespace halfmark::bench
