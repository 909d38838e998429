// Measures the cases one after another. A case that goes wrong costs its own record and nothing else.
#include "bench/runner.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "bench/environment.h"
#include "bench/fingerprint.h"
#include "bench/isolation.h"
#include "bench/performance.h"
#include "bench/processes.h"
#include "bench/timing.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/journal.h"

namespace halfmark {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<KernelUse> uses_of(const KernelLog& log) {
  std::vector<KernelUse> uses;
  for (const LoggedKernel& entry : log.entries()) {
    KernelUse use;
    use.operation = entry.operation, use.phase = entry.phase, use.dtypes = entry.dtypes, use.row = entry.row;
    use.speed = name_of(entry.speed), use.calls = entry.calls, use.refusals = entry.refusals;
    uses.push_back(std::move(use));
  }
  return uses;
}

// The rows whose time is that of an imitation.
bool emulated_in_timed_region(const Record& record, std::string& rows) {
  std::set<std::string> named;
  for (const KernelUse& use : record.kernels)
    if (use.speed == "emulated" && is_timed_phase(use.phase))
      named.insert(use.operation + " " + use.dtypes + " by " + use.row);
  size_t shown = 0;
  for (const std::string& name : named) {
    if (++shown > 3) {
      rows += fmt::format(" and {} more", named.size() - 3);
      break;
    }
    rows += (rows.empty() ? "" : ", ") + name;
  }
  return !named.empty();
}

bool holds(double value, std::string_view relation, double limit) {
  if (relation == "<") return value < limit;
  if (relation == "<=") return value <= limit;
  if (relation == "==") return value == limit;
  if (relation == "!=") return value != limit;
  if (relation == ">=") return value >= limit;
  if (relation == ">") return value > limit;
  throw Error(fmt::format("an expectation has the relation '{}'", relation));
}

void check_expectation(const Expect& expect, Record& record) {
  Expectation result{
      std::string(expect.metric), std::string(expect.at), std::string(expect.relation), expect.limit, 0, false};
  const Measurement* found = find(record, expect.metric, expect.at);
  result.found = found ? found->value : std::nan("");
  result.met = found && holds(found->value, expect.relation, expect.limit);
  if (!result.met) {
    record.status = Status::failed;
    record.reason = fmt::format("control not met: {} should be {} {}, is {:.4g}", expect.metric, expect.relation,
                                expect.limit, result.found);
  }
  record.expectation = result;
}

Record blank(const Case& one, uint64_t seed) {
  Record record;
  record.id = one.id();
  record.subject = one.subject->id();
  record.device = one.device;
  record.policy = one.policy->name;
  record.harness = one.harness->name;
  record.axes = one.axes;
  record.repro = "halfmark run --case " + record.id + (seed == 0 ? "" : fmt::format(" --seed {}", seed));
  return record;
}

std::string now() {
  std::tm utc{};
  const std::time_t seconds = std::time(nullptr);
  gmtime_r(&seconds, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
}

bool is_device_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

void check_output(const std::filesystem::path& output) {
  if (output.empty()) throw Error("no output file: -o needs a name");
  std::error_code ignored;
  if (std::filesystem::is_directory(output, ignored))
    throw Error(output.string() + ": is a directory; name a file with -o");
  const bool exists = std::filesystem::exists(output, ignored);
  if (exists && ::access(output.c_str(), W_OK) != 0)
    throw Error(output.string() + ": cannot be written; name another file with -o");
  const std::filesystem::path folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
  if (!exists && !std::filesystem::is_directory(folder, ignored))
    throw Error(folder.string() + ": no such directory; make it or name another file with -o");
  if (!is_device_file(output) && ::access(folder.c_str(), W_OK) != 0)
    throw Error(folder.string() + ": cannot be written to; name another place with -o");
}

// The records of the journal to go on with; it must be of this very run.
std::map<std::string, Record> finished_records(const RunOptions& options, const std::filesystem::path& journal) {
  std::map<std::string, Record> finished;
  std::error_code ignored;
  if (!options.resume || !std::filesystem::exists(journal, ignored)) return finished;
  Report kept = Journal::read(journal);
  if (kept.run.seed != options.seed)
    throw Error(fmt::format("{}: was begun with --seed {}; go on with that seed or start without --resume",
                            journal.string(), kept.run.seed));
  for (Record& record : kept.records) finished.emplace(record.id, std::move(record));
  return finished;
}

Record run_elsewhere(const Case& one, const RunOptions& options) {
  const IsolatedRun isolated = run_isolated(options.program, one.id(), options.seed, options.timeout);
  if (isolated.record) return *isolated.record;
  Record record = blank(one, options.seed);
  record.status = Status::failed;
  record.reason = isolated.reason;
  record.seconds = isolated.seconds;
  return record;
}

// In the order of the cases; nothing where a case is still to be begun.
std::vector<std::optional<Record>> records_so_far(const RunOptions& options,
                                                  const std::map<std::string, Record>& finished) {
  std::vector<std::optional<Record>> records;
  for (const Case& one : options.cases) {
    const auto found = finished.find(one.id());
    // A record that was measured, but not in processes of its own, cannot be gone on with in such.
    const bool counts = found != finished.end() && (options.processes == 0 || is_complete(found->second, 1));
    records.push_back(counts ? std::optional(found->second) : std::nullopt);
  }
  return records;
}

}  // namespace

std::filesystem::path journal_of(const std::filesystem::path& output) { return output.string() + ".journal"; }

Record run_case(const Case& one, const std::shared_ptr<Device>& device, uint64_t seed) {
  Record record = blank(one, seed);
  record.numerics = device->numerics();
  const auto start = Clock::now();
  KernelLog log;
  try {
    if (flushes_subnormals())
      throw Error(
          "this process flushes subnormal numbers to zero; a library linked with -ffast-math has set that, no number "
          "would be right");
    const TrialSpec spec = one.trial(device, seed);
    if (const auto refusal = one.harness->refuses(spec)) {
      record.status = Status::skipped;
      record.reason = one_line(*refusal);
      record.seconds = seconds_since(start);
      return record;
    }
    log.clear();
    Findings findings = one.harness->measure(spec);
    record.fingerprint = fingerprint_of(findings);
    record.measurements = std::move(findings.measurements);
    record.series = std::move(findings.series);
    record.kernels = uses_of(log);
    const bool timed = std::any_of(record.measurements.begin(), record.measurements.end(),
                                   [](const Measurement& m) { return m.kind == Kind::sampled; });
    if (std::string rows; timed && emulated_in_timed_region(record, rows)) {
      record.status = Status::suspect;
      record.reason = "emulated arithmetic in the timed region, its time means nothing: " + rows;
    }
    const Measurement* width = find(record, "timing.half_width", "hot/step");
    if (record.status == Status::ok && width && width->value > kWidestHalfWidth) {
      record.status = Status::suspect;
      record.reason =
          fmt::format("the median step is only known to within {:.2g} %: the machine was busy with something else",
                      100 * width->value);
    }
    if (one.harness->expects)
      if (const auto expect = one.harness->expects(spec)) check_expectation(*expect, record);
  } catch (const Unsupported& error) {
    record.status = Status::skipped;
    record.reason = one_line(error.what());
  } catch (const std::exception& error) {
    record.status = Status::failed;
    record.reason = one_line(error.what());
  }
  if (record.kernels.empty()) record.kernels = uses_of(log);
  record.seconds = seconds_since(start);
  return record;
}

Report run_cases(const RunOptions& options, const Progress& progress) {
  const auto start = Clock::now();
  check_output(options.output);
  std::map<std::string, std::shared_ptr<Device>> devices;
  std::vector<Device*> opened;
  for (const Case& one : options.cases) {
    auto& device = devices[one.device];
    if (device) continue;
    device = open_device(one.device);
    opened.push_back(device.get());
  }

  Report report;
  report.environment = environment_of(opened, options.probes);
  report.run = {now(), 0, options.command, options.seed, options.suite};
  const std::filesystem::path journal_path = journal_of(options.output);
  const std::map<std::string, Record> finished = finished_records(options, journal_path);
  std::optional<Journal> journal;
  if (!is_device_file(options.output))
    journal = finished.empty() ? Journal::create(journal_path, report) : Journal::resume(journal_path);

  // In several processes: one of every case, then the next of every case, so that the processes of a case are spread
  // over the time of the run.
  std::vector<std::optional<Record>> records = records_so_far(options, finished);
  const size_t rounds = static_cast<size_t>(std::max(options.processes, 1)), all = rounds * options.cases.size();
  for (size_t turn = 0; turn < all; ++turn) {
    const size_t round = turn / options.cases.size(), i = turn % options.cases.size();
    std::optional<Record>& record = records[i];
    const Case& one = options.cases[i];
    if (record &&
        (is_complete(*record, options.processes) || static_cast<size_t>(record->determinism.processes) > round))
      continue;
    progress(turn, all, one.id());
    Record run = options.isolate || options.processes > 0 ? run_elsewhere(one, options)
                                                          : run_case(one, devices[one.device], options.seed);
    record = options.processes > 0 ? with_process(std::move(record), std::move(run)) : std::move(run);
    if (journal) journal->append(*record);
  }
  for (std::optional<Record>& record : records) report.records.push_back(std::move(*record));
  progress(all, all, "");
  report.run.seconds = seconds_since(start);
  report.save(options.output);
  if (journal) {
    journal.reset();
    std::error_code ignored;
    std::filesystem::remove(journal_path, ignored);
  }
  return report;
}

}  // namespace halfmark
