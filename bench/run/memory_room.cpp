#include "bench/run/memory_room.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/run/known_names.h"
#include "models/memory_prediction.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// The number behind "KEY:", in bytes, of a file with lines "KEY: NUMBER kB"; 0: there is none.
double kibibytes_in(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) {
      std::istringstream rest(line.substr(key.size()));
      double number = 0;
      return rest >> number ? number * 1024 : 0;
    }
  return 0;
}

double limit_in(const std::string& file) {
  std::ifstream in(file);
  double bytes = 0;
  return in >> bytes ? bytes : kUnlimited;  // version 2 writes "max" for no limit, version 1 a number near 2^63
}

// The least limit of the control groups of this process, versions 1 and 2, with those around them. In a container the
// group can be mounted as the uppermost one.
double group_limit(const std::string& root) {
  double least = kUnlimited;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_second = controllers == ",,";
    if (!is_second && controllers.find(",memory,") == controllers.npos) continue;
    const std::string folder = root + (is_second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory"),
                      file = is_second ? "/memory.max" : "/memory.limit_in_bytes";
    std::string path = line.substr(second + 1);
    while (true) {
      while (path.ends_with('/')) path.pop_back();
      least = std::min(least, limit_in(folder + path + file));
      if (path.empty()) break;
      path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

// Harnesses that make no gradients or have operands of their own.
bool runs_a_step(const Harness& harness) {
  return is_built_in(harness) && harness.name != "accumulation" && harness.name != "batchnorm_drift";
}

}  // namespace

double memory_available(const std::string& root) {
  const std::string machine = root + "/proc/meminfo";
  const double swap = kibibytes_in(machine, "SwapFree:"), free = kibibytes_in(machine, "MemAvailable:");
  // What earlier cases have left to this process counts as free, for the next case reuses it.
  double most = free > 0 ? free + swap + kibibytes_in(root + "/proc/self/status", "VmRSS:") : kUnlimited;
  most = std::min(most, group_limit(root) + swap);
  rlimit space = {};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    most = std::min(most, static_cast<double>(space.rlim_cur));
  return most;
}

std::optional<double> bytes_needed(const Harness& harness, const TrialSpec& spec) {
  if (!spec.subject->network || !runs_a_step(harness)) return {};
  // `error` and `range` compare one step with the same step in fp64, one after the other. They do not update, so there is no
  // state of the optimizer. The results of the step before, which they keep, are not counted.
  const bool compares = harness.name == "error" || harness.name == "range";
  const auto step = [&](const Policy& given) {
    // Where layers have policies of their own none takes more than fp32.
    const Policy& policy = given.layers.empty() ? given : policy_named("fp32");
    const models::MemoryUse use = models::predict_memory(*spec.subject, policy, spec.settings).peak;
    return static_cast<double>(use.total) -
           (compares ? static_cast<double>(use.by_purpose[static_cast<size_t>(Purpose::optimizer)]) : 0);
  };
  try {
    return compares ? std::max(step(*spec.policy), step(policy_named("fp64"))) : step(*spec.policy);
  } catch (const std::exception&) {  // the case itself says what the policy or the sizes lack
    return {};
  }
}

std::optional<std::string> lacks_memory(const Harness& harness, const TrialSpec& spec, double available) {
  if (spec.device->name().starts_with("cuda")) return {};  // has memory of its own
  const std::optional<double> needed = bytes_needed(harness, spec);
  if (!needed || *needed <= available) return {};
  return fmt::format("needs {} (predicted), this machine has {} free", reports::human(*needed, "B"),
                     reports::human(available, "B"));
}

}  // namespace halfmark::bench
