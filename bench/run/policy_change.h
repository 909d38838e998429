// Changes of the policies of selected cases: --scaler, --cast-rules and --precision.
#pragma once

#include <string>
#include <vector>

#include "bench/run/case.h"

namespace halfmark::bench {

struct PolicyChange {
  std::vector<std::string> scalers;  // each gives cases of its own
  std::string rules, precision;
  bool is_empty() const { return scalers.empty() && rules.empty() && precision.empty(); }
};

// The cases under their changed policies, without controls and without those whose policy or subject cannot be changed so.
// Throws Error for a change that cannot be, or if no case remains.
std::vector<Case> under_change(const std::vector<Case>& cases, const PolicyChange& change);

}  // namespace halfmark::bench
