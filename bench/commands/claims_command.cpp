// halfmark claims: measures the cases that decide the claims of articles, and prints a verdict for each.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/commands/claims_records.h"
#include "bench/commands/commands.h"
#include "bench/run/default_device.h"
#include "bench/run/environment.h"
#include "bench/run/interruption.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/plan.h"
#include "bench/run/program_name.h"
#include "bench/run/progress_line.h"
#include "bench/run/runner.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "reports/claims/claims_text.h"
#include "reports/outputs/outputs.h"
#include "reports/record/file.h"
#include "reports/record/glob.h"
#include "reports/record/printable.h"
#include "reports/record/provenance.h"

namespace halfmark::bench {

namespace {

struct ClaimsArguments {
  std::vector<std::string> ids;
  std::string device, output = "claims_report.json", from, json, markdown;
  uint64_t seed = 0;
  bool quick = false, all = false, resume = false, dry_run = false;
  std::function<bool()> has_seed, has_output;
};

// Those that are named, also by the article: S1 is all of its claims.
void select(ClaimList& list, const std::vector<std::string>& ids) {
  if (ids.empty()) return;
  std::vector<std::string> known;
  for (const auto& [article, name] : list.articles) known.push_back(article);
  for (const Claim& claim : list.claims) known.push_back(claim.id);
  // Without a list of all names, which would be ninety.
  for (const std::string& id : ids)
    HM_CHECK(std::ranges::any_of(known, [&](const std::string& name) { return reports::glob_matches(id, name); }),
             fmt::format("unknown claim '{}'{} ({} list claims shows all)", id, hint(id, known), program_name()));
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

// --from measures nothing, so that what a measurement takes would be ignored.
void refuse_beside_from(const ClaimsArguments& arguments) {
  if (arguments.from.empty()) return;
  std::vector<std::string_view> ignored;
  if (arguments.resume) ignored.emplace_back("--resume");
  if (arguments.dry_run) ignored.emplace_back("--dry-run");
  if (arguments.has_seed()) ignored.emplace_back("--seed");
  if (arguments.has_output()) ignored.emplace_back("--output");
  HM_CHECK(ignored.empty(), fmt::format("--from: measures nothing, so it takes no {}{}", fmt::join(ignored, " and no "),
                                        arguments.has_seed() ? "; the report has its own seed" : ""));
}

// One file would replace the other, or cannot be written: said before minutes of measuring.
void check_files(const ClaimsArguments& arguments) {
  std::map<std::filesystem::path, std::string_view> options;
  const auto add = [&](std::string_view option, const std::string& file) {
    if (file.empty() || reports::is_written_in_place(file)) return;
    const auto [known, is_new] = options.try_emplace(std::filesystem::weakly_canonical(file), option);
    HM_CHECK(is_new, fmt::format("{} and {} name the same file: {}", known->second, option, file));
  };
  if (arguments.from.empty())
    add("--output", arguments.output);
  else
    add("--from", arguments.from);
  add("--json", arguments.json), add("--markdown", arguments.markdown);
  reports::check_outputs({.markdown = arguments.markdown, .json = arguments.json});
}

size_t cases_in(const Report& report, const ClaimList& list) {
  std::set<std::string> found;
  for (const Record& record : report.records)
    for (const Claim& claim : list.claims)
      if (std::ranges::find(claim.cases, record.id) != claim.cases.end()) found.insert(record.id);
  return found.size();
}

// What to say of a report that has more cases of the other length of the run; else nothing.
std::string wrong_length(const ClaimsArguments& arguments, const std::string& device, const ClaimList& list,
                         const Report& report) {
  if (arguments.from.empty()) return "";
  ClaimList other = reports::shipped_claims(device, !arguments.quick);
  select(other, arguments.ids);
  if (cases_in(report, other) <= cases_in(report, list)) return "";
  return arguments.quick ? "the report has more cases of the full run than of the quick one: leave out --quick"
                         : "the report has more cases of a quick run than of the full one: add --quick";
}

// A report without a case of these claims on this device decides none of them.
void refuse_other_report(const ClaimsArguments& arguments, const std::string& device, const ClaimList& list,
                         const Report& report) {
  const bool needs_cases = std::ranges::any_of(list.claims, [&](const Claim& one) { return !one.cases.empty(); });
  if (!needs_cases || cases_in(report, list) > 0) return;
  std::set<std::string> devices;
  for (const Record& record : report.records) devices.insert(record.device);
  std::string advice = wrong_length(arguments, device, list, report);
  if (advice.empty() && !devices.empty() && !devices.contains(device))
    advice = fmt::format("its devices: {}; name one with --device", fmt::join(devices, ", "));
  if (advice.empty()) advice = "halfmark claims --dry-run lists them";
  throw Error(fmt::format("{}: holds none of the cases of these claims on {}; {}", arguments.from, device, advice));
}

// The rules are those of this program, the numbers those of the one that wrote the report.
std::string other_program(const Report& report) {
  const auto here = environment_of({}, false);
  const auto said = [](const nlohmann::ordered_json& environment) {
    return fmt::format("halfmark {} ({})", reports::fact(environment, "/halfmark/version"),
                       reports::fact(environment, "/halfmark/git"));
  };
  if (said(here) == said(report.environment)) return "";
  return fmt::format("the report was written by {}, this is {}", reports::printable(said(report.environment)),
                     said(here));
}

void decide(const ClaimsArguments& arguments, Program& program) {
  const std::string device =
      arguments.device.empty() ? default_device() : chosen_names("device", {arguments.device}, device_names()).front();
  refuse_beside_from(arguments);
  check_files(arguments);
  ClaimList list = reports::shipped_claims(device, arguments.quick);
  select(list, arguments.ids);
  std::vector<Case> cases = arguments.from.empty() ? cases_of(list, device) : std::vector<Case>{};
  if (arguments.dry_run) {
    for (const Case& one : cases) fmt::print("{}\n", one.id());
    return;
  }
  Report report;
  if (!arguments.from.empty()) {
    report = Report::load(arguments.from);
    refuse_other_report(arguments, device, list, report);
  } else if (!cases.empty()) {
    report = measured(arguments, std::move(cases), program);
  }
  if (interrupting_signal() != 0) {
    complain(interruption_text(report, arguments.output));
    program.exit_code = 128 + interrupting_signal();
    return;
  }
  const bool from_file = !arguments.from.empty();
  const std::vector<reports::ClaimVerdict> verdicts =
      reports::judge_claims(list, report, device, from_file ? refused_cases(list, report) : reports::RefusedCases{});
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO);
  text.colour = wants_colour(STDOUT_FILENO);
  text.all = arguments.all;
  std::vector<std::string> remarks = reports::claims_remarks(list, report);
  if (std::string wrong = wrong_length(arguments, device, list, report); !wrong.empty())
    remarks.push_back(std::move(wrong));
  fmt::print("{}", reports::claims_text(list, verdicts, text, remarks));
  for (const std::string& one : reports::substitutes(report)) fmt::print("note: {}\n", reports::printable(one));
  if (const std::string other = from_file ? other_program(report) : ""; !other.empty()) fmt::print("note: {}\n", other);
  if (!arguments.json.empty())
    reports::write_file(arguments.json, reports::claims_json(list, verdicts, report).dump(1) + "\n");
  if (!arguments.markdown.empty())
    reports::write_file(arguments.markdown, reports::claims_markdown(list, verdicts, report, program.command));
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
  command.option("--from", arguments->from,
                 "judge the cases of this report and measure nothing; without -o, --seed, --resume and --dry-run");
  command.option("--json", arguments->json, "write the verdicts as JSON to this file", kFile);
  command.option("--markdown", arguments->markdown, "write the verdicts as Markdown to this file", kFile);
  command.option("--seed", arguments->seed, "random seed of parameters and data", kShowsDefault);
  command.flag("--resume", arguments->resume, "continue a run that was cut short, from its journal");
  command.flag("--all", arguments->all, "show the rules, and the cases behind each verdict");
  command.flag("--dry-run", arguments->dry_run, "list the ids of the cases and stop");
  command.footer(
      "A verdict is INCONCLUSIVE (exit code 3) if the spread of its numbers does not decide it, or if a case is "
      "missing, failed (exit code 1), is of another version than those of this program, or was measured on another "
      "network or on files. A "
      "partial report decides the claims whose cases it holds, and a line says so. `halfmark list claims` lists them.");
  command.examples({"halfmark claims S1-10 S3-5 --all", "halfmark claims S1 --quick --dry-run",
                    "halfmark claims S1-10 --from claims_report.json --markdown claims.md"});
  arguments->has_seed = command.has("--seed"), arguments->has_output = command.has("--output");
  command.action([arguments, &program] { decide(*arguments, program); });
}

}  // namespace halfmark::bench
