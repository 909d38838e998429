// In what the machines of two reports differ, and whether that counts.
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

  // "libraries.onednn: 2.6.3 -> 3.1.1", every leaf that differs or is on one side only.
  std::vector<std::string> lines() const;

  // The leaves that differ and are keys, for a case on this device: facts of other devices do not count.
  const std::vector<std::string>& in(const Keys& keys, const std::string& device);

 private:
  struct Change {
    std::string leaf, base, found;
  };
  std::vector<Change> changes_;
  std::map<std::pair<const Keys*, std::string>, std::vector<std::string>> known_;
};

// "a, b and 3 more"
std::string some_of(const std::vector<std::string>& names, size_t most = 3);

}  // namespace halfmark::reports
