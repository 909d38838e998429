// How noisy each case is on one machine, learned from runs of a build against itself, kept in a file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/statistics/decision.h"

namespace halfmark::bench {

struct CaseNoise {
  std::vector<double> spreads;  // robust standard deviation of ln(b/a) of the pairs, one for each A/A run
  std::vector<double> shifts;   // estimate of ln(b/a): 0 were there no noise
};

struct Noise {
  static constexpr int kSchema = 1;
  std::string machine;  // CPU or GPU on which it was learned
  std::map<std::string, CaseNoise> cases;

  // Throws ReportError: unreadable, or not such a file.
  static Noise load(const std::filesystem::path& path);
  void save(const std::filesystem::path& path) const;

  // Adds one A/A run of a case.
  void add(const std::string& id, const std::vector<Pair>& pairs);

  // The least floor at which this case should be judged after `pairs` pairs: three standard errors of its estimate, or
  // three times the spread of the shifts seen between runs, whichever is more; 0 for a case nobody knows.
  double floor_of(const std::string& id, int pairs) const;
};

}  // namespace halfmark::bench
