#include "bench/run/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "bench/run/case_processes.h"
#include "bench/run/environment.h"
#include "bench/run/interruption.h"
#include "bench/run/program_name.h"
#include "bench/run/record_store.h"
#include "bench/run/schedule.h"
#include "bench/run/utc_time.h"
#include "kernels/cpu/blas_room.h"
#include "kernels/cpu/thread_pool.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

Report header_of(const RunOptions& options, const Execution& execution) {
  Report header;
  header.environment = environment_of(execution.devices(), options.probes);
  header.run = options.info;
  header.run.started = utc_now_iso8601();
  header.run.complete = false;
  header.run.planned = options.cases.size();
  return header;
}

void measure_all(const RunOptions& options, const Execution& execution, RecordStore& store, const Progress& progress) {
  const int processes = options.execution.processes;
  const std::vector<Turn> turns = schedule_of(options.cases.size(), processes);
  for (size_t done = 0; done < turns.size(); ++done) {
    const Case& one = options.cases[turns[done].place];
    const std::optional<Record>& known = store.record(turns[done].place);
    if (!is_due(turns[done], known, processes)) continue;
    stop_if_interrupted();
    progress(done, turns.size(), one.id());
    Record record = execution.measure(one);
    if (processes > 0) record = with_process(known, std::move(record));
    store.add(turns[done].place, std::move(record));
  }
  progress(turns.size(), turns.size(), "");
}

}  // namespace

std::string interruption_text(const Report& report, const std::filesystem::path& output) {
  const char* const signal = ::strsignal(interrupting_signal());
  const std::string done = fmt::format("{} of {} cases", report.records.size(), report.run.planned);
  if (is_written_in_place(output)) return fmt::format("stopped ({}) after {}; they are written", signal, done);
  if (report.records.empty())
    return fmt::format("stopped ({}) before the first case was finished; nothing is written", signal);
  return fmt::format("stopped ({}) after {}, saved in {}; to continue, repeat the command with --resume", signal, done,
                     output.string());
}

Report run_cases(const RunOptions& options, const Progress& progress) {
  RecordStore store(options.output, options.descriptor);
  const Execution execution(options.cases, options.info.seed, options.execution);
  require_blas_room(host_threads());  // libraries of a device may have used much of the address space
  std::vector<std::string> ids;
  for (const Case& one : options.cases) ids.push_back(one.id());
  store.begin(header_of(options, execution), ids, options.execution.processes, options.resume);

  constexpr double kPatience = 2;  // seconds to wait for the current case after a signal
  Interruption interruption(kPatience,
                            fmt::format("\n{}: stopped at once; finished cases are in {}\n", program_name(),
                                        printable(journal_of(options.output).string())),
                            [&] {
                              const Report report = store.save();
                              fmt::print(stderr, "{}{}: {}\n", ::isatty(STDERR_FILENO) ? "\n" : "", program_name(),
                                         printable(interruption_text(report, options.output)));
                              store.release_lock();
                            });
  try {
    measure_all(options, execution, store, progress);
  } catch (const Interrupted&) {
  }
  interruption.close();
  const Report report = store.save();
  if (report.run.complete) store.remove_journal();
  return report;
}

}  // namespace halfmark::bench
