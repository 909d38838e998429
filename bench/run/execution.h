// Measures cases, in this process or each in a separate process. Where a device is lost in this process, as a GPU is after
// a fault of device code, the cases that come after are measured in separate processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct ExecutionOptions {
  bool isolate = false;      // measure each case in a separate process
  int processes = 0;         // measure each case in this many separate processes; 0: off
  double timeout = 0;        // seconds per case, 0: none; only with isolate or processes
  std::string program{};     // the program to start for an isolated case
  bool is_isolated = false;  // this process was started for one case of another run: it isolates nothing itself
};

class Execution {
 public:
  // Opens every device of the cases. Throws Error when one cannot be opened.
  Execution(const std::vector<Case>& cases, uint64_t seed, ExecutionOptions options);

  std::vector<Device*> devices() const;

  // The record of a case that loses its device is failed, and names the operation at fault where a repetition in a
  // process of its own, which waits for each of them, finds it. Throws only Interrupted, and DataError where the data of the case cannot be read: errors become the reason of the record.
  Record measure(const Case& one) const;

 private:
  Record measure_isolated(const Case& one) const;
  void note_loss(const Case& one, const std::string& loss, Record& record) const;

  std::map<std::string, std::shared_ptr<Device>> devices_;
  uint64_t seed_;
  ExecutionOptions options_;
  mutable std::set<std::string> said_lost_;  // names of devices
};

}  // namespace halfmark::bench
