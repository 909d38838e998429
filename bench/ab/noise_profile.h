// The timing noise of each case on one machine: learned from A/A runs (a build against itself) and stored in a file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/statistics/decision.h"

namespace halfmark::bench {

struct CaseNoise {
  std::vector<double> spreads;  // robust standard deviation of ln(b/a) over the pairs, one per A/A run
  std::vector<double> shifts;   // estimate of ln(b/a), one per A/A run; 0 without noise
};

struct NoiseProfile {
  static constexpr int kSchema = 1;
  std::string machine;  // the CPU or GPU on which it was measured
  std::map<std::string, CaseNoise> cases;

  // Throws ReportError: not readable, or not a noise profile.
  static NoiseProfile load(const std::filesystem::path& path);
  void save(const std::filesystem::path& path) const;

  // Adds one A/A run of a case.
  void add(const std::string& id, const std::vector<Pair>& pairs);

  // The minimum effect that can be reported for this case after `pairs` pairs: three standard errors of its estimate,
  // or three times the spread of the shifts between runs, whichever is larger. 0 for an unknown case.
  double minimum_effect_of(const std::string& id, int pairs) const;
};

}  // namespace halfmark::bench
