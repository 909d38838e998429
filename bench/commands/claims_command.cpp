// halfmark claims: measures the cases that decide the claims of articles, and prints a verdict for each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/run/default_device.h"
#include "bench/run/interruption.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/plan.h"
#include "bench/run/progress_line.h"
#include "bench/run/runner.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/claims/claims_text.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"
#include "reports/record/provenance.h"

namespace halfmark::bench {

namespace {

struct ClaimsArguments {
  std::vector<std::string> ids;
  std::string device, output = "claims_report.json", from, json, markdown;
  uint64_t seed = 0;
  bool quick = false, all = false, resume = false, dry_run = false;
};

// Those that are named, also by the article: S1 is all of its claims.
void select(ClaimList& list, const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  std::vector<std::string> known;
  for (const auto& [article, name] : list.articles) known.push_back(article);
  for (const Claim& claim : list.claims) known.push_back(claim.id);
  const std::vector<std::string> chosen = chosen_names("claim", ids, known);
  std::erase_if(list.claims, [&](const Claim& claim) {
    return std::ranges::find(chosen, claim.id) == chosen.end() &&
           std::ranges::find(chosen, claim.article) == chosen.end();
  });
}

std::vector<Case> cases_of(const ClaimList& list, const std::string& device) {
  std::vector<Case> cases;
  std::set<std::string> seen;
  for (const Claim& claim : list.claims) {
    if (!device.starts_with(claim.needs)) continue;
    for (const std::string& id : claim.cases) {
      Case one = case_of(id);
      HM_CHECK(one.id() == id, fmt::format("claim {}: the id of case {} is {}", claim.id, id, one.id()));
      if (seen.insert(id).second) cases.push_back(std::move(one));
    }
  }
  return in_running_order(std::move(cases));
}

Report measured(const ClaimsArguments& arguments, std::vector<Case> cases, Program& program) {
  const EarlyInterruption early;
  RunOptions options;
  options.cases = std::move(cases);
  std::vector<std::string> planned;
  for (const Case& one : options.cases)
    planned.push_back(reports::planned_case(one.id(), definition_of(*one.subject), ""));
  options.info.plan = reports::plan_of(planned);
  options.info.suite = "claims";
  options.info.command = program.command;
  options.info.seed = arguments.seed;
  options.output = arguments.output;
  options.resume = arguments.resume;
  options.probes = false;
  ProgressLine line;
  return run_cases(options, [&](size_t done, size_t all, const std::string& next) { line.show(done, all, next); });
}

// One file would replace the other.
void refuse_equal_files(const ClaimsArguments& arguments) {
  std::map<std::filesystem::path, std::string_view> options;
  const auto add = [&](std::string_view option, const std::string& file) {
    if (file.empty()) return;
    const auto [known, is_new] = options.try_emplace(std::filesystem::weakly_canonical(file), option);
    HM_CHECK(is_new, fmt::format("{} and {} name the same file: {}", known->second, option, file));
  };
  if (arguments.from.empty())
    add("--output", arguments.output);
  else
    add("--from", arguments.from);
  add("--json", arguments.json), add("--markdown", arguments.markdown);
}

void decide(const ClaimsArguments& arguments, Program& program) {
  const std::string device =
      arguments.device.empty() ? default_device() : chosen_names("device", {arguments.device}, device_names()).front();
  HM_CHECK(arguments.from.empty() || !(arguments.resume || arguments.dry_run),
           "--from: measures nothing, so it takes no --resume and --dry-run");
  refuse_equal_files(arguments);
  ClaimList list = reports::shipped_claims(device, arguments.quick);
  select(list, arguments.ids);
  std::vector<Case> cases = arguments.from.empty() ? cases_of(list, device) : std::vector<Case>{};
  if (arguments.dry_run) {
    for (const Case& one : cases) fmt::print("{}\n", one.id());
    return;
  }
  Report report;
  if (!arguments.from.empty())
    report = Report::load(arguments.from);
  else if (!cases.empty())
    report = measured(arguments, std::move(cases), program);
  if (interrupting_signal() != 0) {
    complain(interruption_text(report, arguments.output));
    program.exit_code = 128 + interrupting_signal();
    return;
  }
  const std::vector<reports::ClaimVerdict> verdicts = reports::judge_claims(list, report, device);
  if (!arguments.json.empty())
    reports::write_file(arguments.json, reports::claims_json(list, verdicts, report).dump(1) + "\n");
  if (!arguments.markdown.empty())
    reports::write_file(arguments.markdown, reports::claims_markdown(list, verdicts, report, program.command));
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO);
  text.colour = wants_colour(STDOUT_FILENO);
  text.all = arguments.all;
  fmt::print("{}", reports::claims_text(list, verdicts, text));
  for (const std::string& one : reports::substitutes(report)) fmt::print("note: {}\n", reports::printable(one));
  for (const reports::ClaimVerdict& one : verdicts)
    if (one.outcome == reports::ClaimOutcome::inconclusive) program.exit_code = kUndecided;
  for (const Record& record : report.records)
    if (record.status == Status::failed && std::ranges::any_of(list.claims, [&](const reports::Claim& claim) {
          return std::ranges::find(claim.cases, record.id) != claim.cases.end();
        }))
      program.exit_code = kFailed;
}

}  // namespace

void add_claims_command(CommandLine& line, Program& program) {
  auto arguments = std::make_shared<ClaimsArguments>();
  Command command = line.add("claims", "claims of articles about mixed precision: measured, with a verdict each");
  command.words("ids", arguments->ids, "these claims only: S1-4, all of an article: S1; * as a glob");
  command.option("--device", arguments->device, "cpu, sim:hopper, cuda:0, ...; default: the best one present");
  command.flag("--quick", arguments->quick, "with fewer seeds and steps: minutes; also of --from");
  command.option("-o,--output", arguments->output, "report of the measured cases", kShowsDefault | kFile);
  command.option("--from", arguments->from, "judge the cases of this report and measure nothing");
  command.option("--json", arguments->json, "write the verdicts as JSON to this file", kFile);
  command.option("--markdown", arguments->markdown, "write the verdicts as Markdown to this file", kFile);
  command.option("--seed", arguments->seed, "random seed of parameters and data", kShowsDefault);
  command.flag("--resume", arguments->resume, "continue a run that was cut short, from its journal");
  command.flag("--all", arguments->all, "show the rules, and the cases behind each verdict");
  command.flag("--dry-run", arguments->dry_run, "list the ids of the cases and stop");
  command.examples({"halfmark claims S1-10 S3-5 --all", "halfmark claims S1 --quick --dry-run",
                    "halfmark claims S1-10 --from claims_report.json --markdown claims.md"});
  command.action([arguments, &program] { decide(*arguments, program); });
}

}  // namespace halfmark::bench
