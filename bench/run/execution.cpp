#include "bench/run/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "bench/run/data_files.h"
#include "bench/run/isolation.h"
#include "bench/run/run_case.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"

namespace halfmark::bench {

Execution::Execution(const std::vector<Case>& cases, uint64_t seed, ExecutionOptions options)
    : seed_(seed), options_(std::move(options)) {
  for (const Case& one : cases) {
    auto& device = devices_[one.device];
    if (!device) device = open_device(one.device);
  }
}

std::vector<Device*> Execution::devices() const {
  std::vector<Device*> opened;
  for (const auto& [name, device] : devices_) opened.push_back(device.get());
  return opened;
}

Record Execution::measure(const Case& one) const {
  const std::shared_ptr<Device>& device = devices_.at(one.device);
  if (options_.isolate || options_.processes > 0) return measure_isolated(one);
  if (const std::string loss = device->lost(); !loss.empty()) {
    if (said_lost_.insert(one.device).second && !options_.is_isolated)
      complain(fmt::format("{} is lost: {}; its cases are measured in processes of their own", one.device, loss));
    return measure_isolated(one);
  }
  Record record = run_case(one, device, seed_);
  if (const std::string loss = device->lost(); !loss.empty()) note_loss(one, loss, record);
  return record;
}

Record Execution::measure_isolated(const Case& one) const {
  IsolatedRun isolated;
  if (options_.program.empty() || options_.is_isolated)
    isolated.reason = fmt::format("{} is lost: {}", one.device, devices_.at(one.device)->lost());
  else
    isolated = run_isolated(options_.program, one.id(), seed_, options_.timeout, data_options(one));
  if (isolated.record) return *std::move(isolated.record);
  Record record = blank_record(one, seed_);
  record.status = Status::failed;
  record.reason = isolated.reason;
  record.seconds = isolated.seconds;
  return record;
}

// Work on a GPU is enqueued, so that a fault is seen by a later call than the one at fault. This variable of CUDA's makes
// every launch wait for its end.
void Execution::note_loss(const Case& one, const std::string& loss, Record& record) const {
  constexpr const char* kWaits = "CUDA_LAUNCH_BLOCKING";
  constexpr double kShortest = 60, kSlower = 20;  // seconds that the repetition may take, and times the case's
  // What was measured came from a device that has failed meanwhile.
  const std::string lead = one.device + " is lost: ";
  std::string first = record.status == Status::failed ? record.reason : loss;
  if (first.starts_with(lead)) first.erase(0, lead.size());
  Record failed = blank_record(one, seed_);
  failed.status = Status::failed;
  failed.numerics = record.numerics, failed.kernels = record.kernels, failed.seconds = record.seconds;
  failed.reason = lead + first;
  record = std::move(failed);
  const char* waits = std::getenv(kWaits);
  if ((waits && std::string_view(waits) == "1") || options_.program.empty()) return;
  said_lost_.insert(one.device);
  complain(fmt::format("{}: {}; the cases that follow on {} are measured in processes of their own", one.id(),
                       record.reason, one.device));
  const double patience = options_.timeout > 0 ? options_.timeout : std::max(kShortest, kSlower * record.seconds);
  const IsolatedRun again =
      run_isolated(options_.program, one.id(), seed_, patience, data_options(one), {fmt::format("{}=1", kWaits)});
  if (!again.record)
    record.reason += fmt::format("; repeated with {}=1: {}", kWaits, again.reason);
  else if (again.record->status == Status::failed)
    record.reason = fmt::format("{} (found with {}=1; first seen by {})", again.record->reason, kWaits, first);
  else
    record.reason += "; repeated in a process of its own it does not fail";
}

}  // namespace halfmark::bench
