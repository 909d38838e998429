// Turns the findings of a harness into a record: the kernels that
// ran, the validity of its timing, and the result of a control.
#include "bench/run/run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/data_files.h"
#include "bench/run/environment.h"
#include "bench/run/fingerprint.h"
#include "bench/run/interruption.h"
#include "bench/run/known_names.h"
#include "bench/run/memory_room.h"
#include "bench/run/model_file.h"
#include "bench/run/performance.h"
#include "bench/run/program_name.h"
#include "bench/run/time_validity.h"
#include "bench/run/work.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/shell.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

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
    use.choices = entry.choices;
    uses.push_back(std::move(use));
  }
  return uses;
}

bool holds(double value, std::string_view relation, double limit) {
  if (relation == "<") return value < limit;
  if (relation == "<=") return value <= limit;
  if (relation == "==") return value == limit;
  if (relation == "!=") return value != limit;
  if (relation == ">=") return value >= limit;
  if (relation == ">") return value > limit;
  throw Error(fmt::format("an expectation has the unknown relation '{}'", relation));
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

}  // namespace

Record blank_record(const Case& one, uint64_t seed) {
  Record record;
  record.id = one.id();
  record.subject = one.subject->id();
  record.device = one.device;
  record.policy = one.policy->name;
  record.harness = one.harness->name;
  record.axes = one.axes;
  record.definition = models::definition_of(*one.subject);
  record.data = data_origin(one);
  record.repro = fmt::format("{} run --case {}", program_name(), shell_word(record.id));
  for (const std::string& option : model_file_options()) record.repro += " " + shell_word(option);
  for (const std::string& option : data_options(one)) record.repro += " " + shell_word(option);
  if (seed != 0) record.repro += fmt::format(" --seed {}", seed);
  return record;
}

Record run_case(const Case& one, const std::shared_ptr<Device>& device, uint64_t seed) {
  Record record = blank_record(one, seed);
  record.numerics = device->numerics();
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  // Rows are chosen once for a case: what an earlier one had no memory to try may fit now.
  device->dispatch.reset();
  KernelLog log;
  try {
    if (flushes_subnormals())
      throw Error(
          "this process flushes subnormal numbers to zero, which makes all numbers wrong; a library linked with "
          "-ffast-math has set this mode");
    const TrialSpec spec = one.trial(device, seed);
    if (const auto refusal = refusal_of(*one.harness, spec)) {
      record.status = Status::skipped;
      record.reason = one_line(*refusal);
      record.seconds = seconds();
      return record;
    }
    if (const auto lacks = lacks_memory(*one.harness, spec, memory_available())) throw Error(*lacks);
    log.clear();
    const RepeatsWatch watch;
    Findings findings = one.harness->measure(spec);
    check_findings(*one.harness, findings);
    record.fingerprint = fingerprint_of(findings);
    const bool timed = std::any_of(findings.measurements.begin(), findings.measurements.end(),
                                   [](const Measurement& m) { return m.kind == Kind::sampled; });
    // The code of an extension is not known to repeat.
    if (watch.all_repeat() && !timed && is_built_in(*one.harness) && one.subject->built_in)
      record.determinism = {1, 0, true};
    record.measurements = std::move(findings.measurements);
    record.series = std::move(findings.series);
    record.lint = std::move(findings.lint);
    record.kernels = uses_of(log);
    add_work(spec, record);
    if (const auto reason = why_times_mislead(record)) {
      record.status = Status::suspect;
      record.reason = *reason;
    }
    if (one.harness->expects)
      if (const auto expect = one.harness->expects(spec)) check_expectation(*expect, record);
  } catch (const models::DataError&) {  // no result of the case: the run ends
    throw;
  } catch (const Unsupported& error) {
    record.status = Status::skipped;
    record.reason = one_line(error.what());
  } catch (const std::bad_alloc&) {
    record.status = Status::failed;
    const auto needed = bytes_needed(*one.harness, one.trial(device, seed));
    record.reason =
        fmt::format("out of memory{}; take smaller sizes or raise a limit (ulimit -v)",
                    needed ? fmt::format(": its tensors alone need {} (predicted)", reports::human(*needed, "B")) : "");
  } catch (const std::exception& error) {
    record.status = Status::failed;
    record.reason = one_line(error.what());
  } catch (const Interrupted&) {
    throw;
  } catch (...) {  // code of an extension may throw anything
    record.status = Status::failed;
    record.reason = "an exception that is not a std::exception";
  }
  if (record.kernels.empty()) record.kernels = uses_of(log);
  record.seconds = seconds();
  return record;
}

}  // namespace halfmark::bench
