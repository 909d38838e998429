// Pairs of process runs of two builds. Of each pair both processes are fresh, and live side by side: while one works
// the other waits for a question, so that the two times of a case lie as close together as they can.
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

// A case that one of the builds measured at first and then no more. what() says how.
class CaseLost : public std::runtime_error {
 public:
  CaseLost(size_t which, bool by_a, const std::string& how) : std::runtime_error(how), index(which), in_a(by_a) {}
  size_t index;
  bool in_a;
};

// How far the measurement of one stage is.
struct PairProgress {
  int pair, pairs;      // under way, of how many
  size_t cases;         // in each
  double seconds_left;  // of this stage, from how long the pairs took so far
};

inline constexpr int kSlices = 10;

struct PairOptions {
  std::vector<std::string> command_a, command_b;  // what to start: "/there/halfmark", "sample", ...
  std::vector<std::string> ids;                   // of the cases, as `decide` numbers them
  double timeout = 60;                            // seconds for one answer
  uint64_t seed = 0;                              // of the orders
  bool side_by_side = true;  // false: one process after the other, for devices that only one may use
  // Of this machine's cores for both processes of a pair, others in each pair; 0: all. Two cores of one machine can
  // differ by a fifth for seconds, by what else they have to do.
  int cores = 0;
  // Questions about a case in turn to either process, where both are there: what disturbs the machine for some
  // milliseconds meets both alike, and of what it meets alone the median of the ratios knows nothing.
  int slices = kSlices;
  std::function<void(const PairProgress&)> progress = [](const PairProgress&) {};
};

// The host took so much of a time that a pair is measured again: looked at before the time is.
inline constexpr double kStolenShare = 0.1;
// At most so many of a case's pairs are.
inline constexpr double kMostRepeated = 0.2;

class ProcessPairs : public PairSource {
 public:
  explicit ProcessPairs(PairOptions options) : options_(std::move(options)) {}

  // A first pair of all cases, whose times are thrown away: which of them either build cannot measure, and why.
  struct Trouble {
    size_t index;
    bool refused;            // by both builds alike: nothing to judge
    std::string in_a, in_b;  // empty where there is a time
  };
  std::vector<Trouble> rehearse();

  // Throws CaseLost.
  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override;

  // Why processes share the pages of their code, so that all pairs share one accident of placement; empty: they do not.
  const std::string& shared_pages() const { return shared_pages_; }
  int64_t repeated() const { return repeated_; }    // pairs measured again, over all cases
  int64_t disturbed() const { return disturbed_; }  // and those kept although the host had taken time

 private:
  using Answers = std::map<size_t, Pair>;
  struct Asked {
    Pair pair;
    bool disturbed;  // the host has taken time
  };
  ProcessSample ask(SamplerProcess& process, size_t index, bool is_a);
  Asked ask_both(SamplerProcess& a, SamplerProcess& b, size_t index, bool a_first);
  Answers one_pair(const std::vector<size_t>& order, const std::map<size_t, bool>& a_first,
                   const std::vector<int>& cores, std::map<size_t, int>& may_repeat);

  PairOptions options_;
  uint64_t stage_ = 0;
  std::string shared_pages_;
  int64_t repeated_ = 0, disturbed_ = 0;
};

}  // namespace halfmark::bench
