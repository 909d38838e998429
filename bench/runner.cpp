// Measures the cases one after another. A case that goes wrong costs its own record and nothing else.
#include "bench/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "bench/environment.h"
#include "bench/interruption.h"
#include "bench/isolation.h"
#include "bench/processes.h"
#include "bench/run_case.h"
#include "bench/utc.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/file.h"
#include "reports/journal.h"
#include "reports/lock.h"
#include "reports/provenance.h"

namespace halfmark {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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
  if (!is_written_in_place(output) && ::access(folder.c_str(), W_OK) != 0)
    throw Error(folder.string() + ": cannot be written to; name another place with -o");
}

// A run that begins anew must not cost what an earlier one has left.
void set_aside(const std::filesystem::path& journal) {
  const std::filesystem::path kept = journal.string() + ".old";
  try {
    if (Journal::read(journal).records.empty()) return;
  } catch (const ReportError&) {  // whatever it is, it is not ours to overwrite
  }
  std::filesystem::rename(journal, kept);
  fmt::print(stderr, "halfmark: the journal of an earlier run is kept as {}; --resume would have gone on from it\n",
             kept.string());
}

// The records of the journal to go on with; it must be of this very run.
std::map<std::string, Record> finished_records(const RunOptions& options, const Report& now,
                                               const std::filesystem::path& journal) {
  std::map<std::string, Record> finished;
  std::error_code ignored;
  if (!std::filesystem::exists(journal, ignored)) return finished;
  if (!options.resume) return set_aside(journal), finished;
  Report kept = Journal::read(journal);
  const auto refuse = [&](const std::string& what) {
    throw Error(
        fmt::format("{}: was begun with {}; go on as it was begun or start without --resume", journal.string(), what));
  };
  if (kept.run.seed != options.seed) refuse(fmt::format("--seed {}", kept.run.seed));
  if (kept.run.plan.cases > 0 && (kept.run.plan.hash != now.run.plan.hash || kept.run.shard != now.run.shard))
    refuse(fmt::format("other cases (`{}`)", kept.run.command));
  if (const auto other = difference_of(kept.environment, now.environment))
    refuse(fmt::format("{} {}, which is {} now", other->key, other->here, other->there));
  for (Record& record : kept.records) finished.emplace(record.id, std::move(record));
  return finished;
}

Record measured(const RunOptions& options, const Case& one, const std::shared_ptr<Device>& device) {
  if (!options.isolate && options.processes == 0) return run_case(one, device, options.seed);
  const IsolatedRun isolated = run_isolated(options.program, one.id(), options.seed, options.timeout);
  if (isolated.record) return *isolated.record;
  Record record = blank_record(one, options.seed);
  record.status = Status::failed;
  record.reason = isolated.reason;
  record.seconds = isolated.seconds;
  return record;
}

// What the journal holds of a case, where the run can go on from it: a record that was measured, but not in processes
// of its own, is no part of one that was.
bool counts(const Record& record, const RunOptions& options) {
  return options.processes == 0 || is_complete(record, 1);
}

[[noreturn]] void throw_kept(const ReportError& error, const std::filesystem::path& journal) {
  throw Error(fmt::format("{}; the finished cases are in {}, then go on with the same command and --resume",
                          error.what(), journal.string()));
}

// The records there are so far, in the order of the plan. The loop adds one while a signal may ask for all.
class Progressing {
 public:
  Progressing(const RunOptions& options, Report header)
      : header_(std::move(header)),
        records_(options.cases.size()),
        processes_(options.processes),
        output_(options.output) {}

  // Of the loop, which alone adds.
  const std::optional<Record>& record(size_t i) const { return records_[i]; }
  void add(size_t i, Record record) {
    const std::lock_guard lock(mutex_);
    records_[i] = std::move(record);
  }
  Report report() const {
    const std::lock_guard lock(mutex_);
    Report report = header_;
    report.run.complete = true;
    for (const auto& record : records_) {
      if (record) report.records.push_back(*record);
      report.run.complete = report.run.complete && record && is_complete(*record, processes_);
    }
    report.run.seconds = seconds_since(start_);
    return report;
  }
  // A run that was cut short before its first case ended leaves the report of an earlier one alone.
  Report save() const {
    Report whole = report();
    if (!whole.run.complete && whole.records.empty()) return whole;
    try {
      whole.save(output_);
    } catch (const ReportError& error) {
      if (is_written_in_place(output_)) throw;
      throw_kept(error, journal_of(output_));
    }
    return whole;
  }

 private:
  const Clock::time_point start_ = Clock::now();
  Report header_;
  std::vector<std::optional<Record>> records_;
  int processes_;
  std::filesystem::path output_;
  mutable std::mutex mutex_;
};

}  // namespace

std::filesystem::path journal_of(const std::filesystem::path& output) { return output.string() + ".journal"; }

std::string interruption_text(const Report& report, const std::filesystem::path& output) {
  const char* const signal = ::strsignal(interrupting_signal());
  const std::string done = fmt::format("{} of {} cases", report.records.size(), report.run.planned);
  if (is_written_in_place(output)) return fmt::format("stopped ({}) after {}, which are written", signal, done);
  if (report.records.empty()) return fmt::format("stopped ({}) before a case had ended; nothing is written", signal);
  return fmt::format("stopped ({}) after {}, now in {}; go on with the same command and --resume", signal, done,
                     output.string());
}

Report run_cases(const RunOptions& options, const Progress& progress) {
  check_output(options.output);
  const bool to_file = !is_written_in_place(options.output);
  const std::filesystem::path journal_path = journal_of(options.output);
  std::optional<FileLock> lock;
  if (to_file) lock.emplace(options.output);
  if (to_file) remove_leftovers(options.output), remove_leftovers(journal_path);
  std::map<std::string, std::shared_ptr<Device>> devices;
  std::vector<Device*> opened;
  for (const Case& one : options.cases) {
    auto& device = devices[one.device];
    if (device) continue;
    device = open_device(one.device);
    opened.push_back(device.get());
  }

  Report header;
  header.environment = environment_of(opened, options.probes);
  header.run = {now(),         0,           options.command, options.seed, options.suite, false, options.cases.size(),
                options.shard, options.plan};
  std::map<std::string, Record> finished;
  if (to_file) finished = finished_records(options, header, journal_path);
  std::optional<Journal> journal;
  if (to_file) journal = finished.empty() ? Journal::create(journal_path, header) : Journal::resume(journal_path);

  Progressing so_far(options, header);
  for (size_t i = 0; i < options.cases.size(); ++i)
    if (const auto done = finished.find(options.cases[i].id()); done != finished.end() && counts(done->second, options))
      so_far.add(i, std::move(done->second));
  // A case that does not end by itself soon is given up, and with it this process.
  constexpr double kPatience = 2;  // seconds
  Interruption interruption(
      kPatience, fmt::format("\nhalfmark: stopped at once; finished cases are in {}\n", journal_path.string()), [&] {
        const Report report = so_far.save();
        fmt::print(stderr, "{}halfmark: {}\n", ::isatty(STDERR_FILENO) ? "\n" : "",
                   interruption_text(report, options.output));
        lock.reset();
      });
  try {
    // In several processes: one of every case, then the next of every case, so that the processes of a case are spread
    // over the time of the run.
    const size_t rounds = static_cast<size_t>(std::max(options.processes, 1)), all = rounds * options.cases.size();
    for (size_t turn = 0; turn < all; ++turn) {
      const size_t round = turn / options.cases.size(), i = turn % options.cases.size();
      const std::optional<Record>& known = so_far.record(i);
      if (known &&
          (is_complete(*known, options.processes) || static_cast<size_t>(known->determinism.processes) > round))
        continue;
      stop_if_interrupted();
      const Case& one = options.cases[i];
      progress(turn, all, one.id());
      Record record = measured(options, one, devices[one.device]);
      if (options.processes > 0) record = with_process(known, std::move(record));
      if (journal) journal->append(record);
      so_far.add(i, std::move(record));
    }
    progress(all, all, "");
  } catch (const Interrupted&) {
  } catch (const ReportError& error) {  // the journal's: the disk is full
    throw_kept(error, journal_path);
  }
  interruption.close();
  Report report = so_far.save();
  if (journal && report.run.complete) {
    journal.reset();
    std::error_code ignored;
    std::filesystem::remove(journal_path, ignored);
  }
  return report;
}

}  // namespace halfmark
