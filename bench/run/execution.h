// Measures cases, each in this process or in a process of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "reports/record/report.h"

namespace halfmark::bench {

struct ExecutionOptions {
  bool isolate = false;   // each case in a process of its own
  int processes = 0;      // each case in this many processes of its own; 0: in none
  double timeout = 0;     // seconds for a case, 0: none; only with isolate or processes
  std::string program{};  // what to start for an isolated case
};

class Execution {
 public:
  // Opens every device of the cases. Throws Error when one cannot be opened.
  Execution(const std::vector<Case>& cases, uint64_t seed, ExecutionOptions options);

  std::vector<Device*> devices() const;

  // Throws nothing but Interrupted: what goes wrong is the record's reason.
  Record measure(const Case& one) const;

 private:
  std::map<std::string, std::shared_ptr<Device>> devices_;
  uint64_t seed_;
  ExecutionOptions options_;
};

}  // namespace halfmark::bench
