// The differences between the environments of two reports, and which of them matter for a case.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/gate_rules.h"
#include "reports/record/report.h"

namespace halfmark::reports {

class EnvironmentDifference {
 public:
  EnvironmentDifference(const Report& base, const Report& found);

  // "libraries.onednn: 2.6.3 -> 3.1.1": every fact that differs or exists on one side only.
  std::vector<std::string> lines() const;

  // The names of the differing facts that are keys, for a case on this device. Facts of other devices do not count.
  const std::vector<std::string>& in(const Keys& keys, const std::string& device);

 private:
  struct Change {
    std::string name, base, found;
  };
  std::vector<Change> changes_;
  std::map<std::pair<const Keys*, std::string>, std::vector<std::string>> known_;
};

}  // namespace halfmark::reports
