#include "bench/run/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "bench/run/attainable.h"
#include "bench/run/case_processes.h"
#include "bench/run/environment.h"
#include "bench/run/interruption.h"
#include "bench/run/program_name.h"
#include "bench/run/record_store.h"
#include "bench/run/schedule.h"
#include "bench/run/standard_streams.h"
#include "bench/run/utc_time.h"
#include "kernels/cpu/blas_room.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "models/files/data_set.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

Report header_of(const RunOptions& options, const Execution& execution) {
  Report header;
  // The report of one case of another run is that case: nothing is asked of its devices before.
  const bool is_of_another = options.descriptor >= 0;
  header.environment = environment_of(is_of_another ? std::vector<Device*>{} : execution.devices(), options.probes);
  header.run = options.info;
  header.run.started = utc_now_iso8601();
  header.run.complete = false;
  header.run.planned = options.cases.size();
  return header;
}

// A call of exit() in a case, or in a library that it uses, would end the run without a report and with the exit code
// of that call. While an object exists, such a call runs `last` and ends the run with exit code 2.
class ExitGuard {
 public:
  explicit ExitGuard(std::function<void()> last) {
    // Registered late, so that this comes before the destructors of most static objects.
    [[maybe_unused]] static const bool registered = std::atexit(at_exit) == 0 && ::at_quick_exit(at_exit) == 0;
    last_ = std::move(last);
  }
  ~ExitGuard() { last_ = nullptr; }
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

 private:
  static void at_exit() {
    if (!last_) return;
    last_();
    ::_exit(2);
  }
  static inline std::function<void()> last_;
};

// To records of measured times. A device that fails while its rates are measured leaves them out; the next case shows why.
void add_rates(Record& record, const std::vector<Device*>& devices, AttainableRates& rates) {
  if (record.harness != "throughput" || (record.status != Status::ok && record.status != Status::suspect)) return;
  for (Device* device : devices)
    if (device->name() == record.device) try {
        add_roofline(record, rates.of(*device));
      } catch (const Error& error) {
        complain(fmt::format("{}: what it attains was not measured: {}", device->name(), error.what()));
      }
}

void measure_all(const RunOptions& options, const Execution& execution, RecordStore& store, const Progress& progress) {
  const int processes = options.execution.processes;
  AttainableRates rates;
  const std::vector<Turn> turns = schedule_of(options.cases.size(), processes);
  std::string running;
  const ExitGuard guard([&] {
    const bool is_kept = options.descriptor < 0 && !is_written_in_place(options.output);
    complain(fmt::format("{}: ended the program by exit(); {}", running,
                         is_kept ? fmt::format("finished cases are in {}: repeat the command with --isolate --resume",
                                               journal_of(options.output).string())
                                 : "nothing is written"));
    store.release_lock();
  });
  for (size_t done = 0; done < turns.size(); ++done) {
    const Case& one = options.cases[turns[done].place];
    const std::optional<Record>& known = store.record(turns[done].place);
    if (!is_due(turns[done], known, processes)) continue;
    stop_if_interrupted();
    progress(done, turns.size(), one.id());
    running = one.id();
    Record record = execution.measure(one);
    if (options.probes) add_rates(record, execution.devices(), rates);
    if (processes > 0) record = with_process(known, std::move(record));
    store.add(turns[done].place, std::move(record));
  }
  progress(turns.size(), turns.size(), "");
}

// `store` may be null: a signal came before it was opened.
Report save(RecordStore* store) {
  Report report;
  report.run.complete = false;
  if (!store) return report;
  report = store->save();
  store->end_journal(report);
  return report;
}

// Closes the interruption before the store is destroyed, because a signal would otherwise use the store.
class CloseAtEnd {
 public:
  explicit CloseAtEnd(Interruption& interruption) : interruption_(interruption) {}
  ~CloseAtEnd() { interruption_.close(); }
  CloseAtEnd(const CloseAtEnd&) = delete;
  CloseAtEnd& operator=(const CloseAtEnd&) = delete;

 private:
  Interruption& interruption_;
};

}  // namespace

std::string interruption_text(const Report& report, const std::filesystem::path& output) {
  const char* const signal = ::strsignal(interrupting_signal());
  if (report.run.complete)
    return fmt::format("stopped ({}) after the last case; the report in {} is complete", signal, output.string());
  if (report.records.empty())
    return fmt::format("stopped ({}) before the first case was finished; nothing is written", signal);
  const std::string done = fmt::format("{} of {} cases", report.records.size(), report.run.planned);
  if (is_written_in_place(output)) return fmt::format("stopped ({}) after {}; they are written", signal, done);
  return fmt::format("stopped ({}) after {}, saved in {}; to continue, repeat the command with --resume", signal, done,
                     output.string());
}

Report run_cases(const RunOptions& options, const Progress& progress) {
  constexpr double kPatience = 2;  // seconds to wait for the current case after a signal
  // Exists from before the first file is created until after the last one is removed.
  std::atomic<RecordStore*> opened = nullptr;
  Interruption interruption(kPatience,
                            fmt::format("\n{}: stopped at once; finished cases are in {}\n", program_name(),
                                        printable(journal_of(options.output).string())),
                            [&] {
                              RecordStore* const store = opened;
                              const Report report = save(store);
                              fmt::print(stderr, "{}{}: {}\n", ::isatty(STDERR_FILENO) ? "\n" : "", program_name(),
                                         printable(interruption_text(report, options.output)));
                              if (store) store->release_lock();
                            });
  RecordStore store(options.output, options.descriptor);
  opened = &store;
  const CloseAtEnd guard(interruption);
  try {
    stop_if_interrupted();
    const Execution execution(options.cases, options.info.seed, options.execution);
    require_blas_room(host_threads());  // libraries of a device may have used much of the address space
    std::vector<std::string> ids;
    for (const Case& one : options.cases) ids.push_back(one.id());
    stop_if_interrupted();
    Report header = header_of(options, execution);
    stop_if_interrupted();
    store.begin(std::move(header), ids, options.execution.processes, options.resume);
    measure_all(options, execution, store, progress);
  } catch (const Interrupted&) {
  } catch (const models::DataError& error) {
    if (options.descriptor >= 0) throw;  // a case of another run, which ends as a whole
    const Report finished = save(&store);
    throw Error(fmt::format("{}; {}", error.what(),
                            finished.records.empty()
                                ? "no case was finished and nothing is written"
                                : fmt::format("the run ends after {} of {} cases, saved in {}", finished.records.size(),
                                              finished.run.planned, options.output.string())));
  }
  return save(&store);
}

}  // namespace halfmark::bench
