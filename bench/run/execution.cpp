#include "bench/run/execution.h"

#include <utility>

#include "bench/run/data_files.h"
#include "bench/run/isolation.h"
#include "bench/run/run_case.h"
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
  if (!options_.isolate && options_.processes == 0) return run_case(one, devices_.at(one.device), seed_);
  IsolatedRun isolated = run_isolated(options_.program, one.id(), seed_, options_.timeout, data_options(one));
  if (isolated.record) return *std::move(isolated.record);
  Record record = blank_record(one, seed_);
  record.status = Status::failed;
  record.reason = isolated.reason;
  record.seconds = isolated.seconds;
  return record;
}

}  // namespace halfmark::bench
