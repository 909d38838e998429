// One process run of a build, for `halfmark ab`: cases timed one after another as they are asked for, one line of JSON
// an answer. What counts above is the median of a process run; its samples are no replicates (they share clocks, memory
// placement and plans).
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// Work that is the same machine code in every build: what moves them is the machine.
struct Canary {
  std::string_view id;     // "canary/clock"
  std::string_view about;  // what bounds it
  void (*work)();          // about a millisecond
};
const std::vector<Canary>& canaries();

struct ProcessSample {
  std::string id;
  std::string reason;          // why there is no time; empty: there is one
  bool refused = false;        // no time because its time means nothing, not because something broke
  double seconds = 0;          // median of a hot training step, of a canary's work
  int64_t samples = 0;         // behind the median
  double half_width = 0;       // of its 95 % interval, relative
  double stolen = 0;           // seconds of this machine's cores that the host gave to others meanwhile
  double wall = 0;             // seconds from question to answer, preparations counted in
  std::string shared_pages{};  // why the process has no pages of its own (own_pages.h); empty: it has
};
std::string line_of(const ProcessSample& sample);
ProcessSample sample_of(const std::string& line);  // throws Error for a line that is none

struct SamplerOptions {
  double seconds = 0.05;                      // of timed steps for each case
  int threads = 0;                            // of the CPU's kernels, 0: as many as there are cores
  uint64_t seed = 0;                          // of parameters and data
  std::string shared_pages{};                 // what take_own_pages() said; goes into every answer
  std::map<std::string, double> slow_down{};  // case -> share by which each step is made longer; for tests of the gate
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  ~Sampler();
  // Never throws: what goes wrong is the reason. Asked again about the same case it goes on with what it has in memory.
  ProcessSample sample(const std::string& id);

 private:
  struct Ready;
  std::unique_ptr<Ready> prepared(const std::string& id);
  void measure(ProcessSample& result);

  SamplerOptions options_;
  std::map<std::string, std::shared_ptr<Device>> devices_;
  std::unique_ptr<Ready> ready_;  // the case that was asked for last
};

// Reads ids line by line until the end of input and answers each before it reads the next.
void answer_samples(std::istream& in, std::ostream& out, Sampler& sampler);

}  // namespace halfmark::bench
