// The selection of a command line.
#pragma once

#include <string>
#include <vector>

#include "bench/run/policy_change.h"

namespace halfmark::bench {

// For an empty list the suite decides; without a device, the best one present is used.
struct Selection {
  std::string suite = "quick";
  std::vector<std::string> devices, policies, harnesses;
  std::vector<std::string> subjects{};       // ids: these only
  std::string subjects_option = "--shapes";  // which has named them
  PolicyChange change{};                     // of the selected cases
  std::vector<std::string> words;            // parts of ids: alternatives within one part, all parts must match
};

}  // namespace halfmark::bench
