// Pairs of process runs of two builds. Both processes of a pair are new and run side by side: while one measures, the
// other waits, so that the two times of a case are measured as close together as possible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/sampler_process.h"
#include "bench/namespaces.h"
#include "reports/statistics/decision.h"

namespace halfmark::bench {

// A case that a build could measure at first but not any more. what() gives the reason.
class CaseLost : public std::runtime_error {
 public:
  CaseLost(size_t which, bool by_a, const std::string& how) : std::runtime_error(how), index(which), in_a(by_a) {}
  size_t index;
  bool in_a;
};

// Progress of one stage of the measurement.
struct PairProgress {
  int pair, pairs;      // index of the current pair, number of pairs
  size_t cases;         // cases per pair
  double seconds_left;  // of this stage, estimated from the pairs so far
};

inline constexpr int kSlices = 10;

struct PairOptions {
  std::vector<std::string> command_a, command_b;  // the commands to start: "/path/halfmark", "sample", ...
  // If each build was linked several times: the commands of all its layouts. Pair i starts layout i modulo their number.
  std::vector<std::vector<std::string>> layouts_a{}, layouts_b{};
  std::vector<std::string> ids;  // of the cases, in the order of `decide`
  double timeout = 60;           // seconds for one answer
  uint64_t seed = 0;             // of the orders
  bool side_by_side = true;      // false: one process after the other, for devices that only one process may use
  // Number of cores for both processes of a pair, chosen again for each pair; 0: all. Two cores of one machine can
  // differ by a fifth for seconds, because of other work on them.
  int cores = 0;
  // Number of time slices of a case that alternate between the two processes, if they run side by side. A disturbance
  // of some milliseconds then affects both processes, and the median of the ratios is robust against the rest.
  int slices = kSlices;
  std::function<void(const PairProgress&)> progress = [](const PairProgress&) {};
};

// Share of stolen CPU time above which a pair is measured again. The decision does not look at the measured time.
inline constexpr double kStolenShare = 0.1;
// Maximum share of the pairs of a case that are measured again.
inline constexpr double kMostRepeated = 0.2;

class ProcessPairs : public PairSource {
 public:
  explicit ProcessPairs(PairOptions options) : options_(std::move(options)) {}

  // Measures one trial pair of all cases, and discards the times: returns the cases that a build cannot measure.
  struct Trouble {
    size_t index;
    bool refused;            // refused by both builds: nothing to compare
    std::string in_a, in_b;  // reasons; empty if the build can measure the case
  };
  std::vector<Trouble> rehearse();

  // Throws CaseLost.
  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override;

  // The reason why processes share the pages of their code, so that
  // all pairs have the same placement; empty: they do not share them.
  const std::string& shared_pages() const { return shared_pages_; }
  int64_t repeated() const { return repeated_; }    // pairs measured again, over all cases
  int64_t disturbed() const { return disturbed_; }  // pairs kept although the host took time

 private:
  using Answers = std::map<size_t, Pair>;
  struct Asked {
    Pair pair;
    bool disturbed;  // the host took more than kStolenShare of the time
  };
  ProcessSample ask(SamplerProcess& process, size_t index, bool is_a);
  Asked ask_both(SamplerProcess& a, SamplerProcess& b, size_t index, bool a_first);
  const std::vector<std::string>& command(bool of_a, size_t pair) const;
  Answers one_pair(size_t pair, const std::vector<size_t>& order, const std::map<size_t, bool>& a_first,
                   const std::vector<int>& cores, std::map<size_t, int>& may_repeat);

  PairOptions options_;
  uint64_t stage_ = 0;
  std::string shared_pages_;
  int64_t repeated_ = 0, disturbed_ = 0;
};

}  // namespace halfmark::bench
