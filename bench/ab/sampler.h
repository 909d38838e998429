// One process run of a build, for `halfmark ab`: times cases on request and answers
// each with one line of JSON. The comparison uses the median of a process run. Its
// samples are not replicates: they share clock speeds, memory placement and plans.
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
#include "bench/run/data_files.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// A control: the same machine code in every build, so that only the machine can change its time.
struct Canary {
  std::string_view id;     // "canary/clock"
  std::string_view about;  // what limits its speed
  void (*work)();          // takes about a millisecond
};
const std::vector<Canary>& canaries();
// The ids of all controls for these cases: those above, and for each GPU that a case uses "canary/cuda:0/cache" and
// "canary/cuda:0/memory", which clear memory by the code of the driver.
std::vector<std::string> canary_ids(const std::vector<std::string>& cases);

struct ProcessSample {
  std::string id;
  std::string reason;          // the reason if there is no time; empty: there is one
  bool refused = false;        // no time because it would not be valid, not because of an error
  double seconds = 0;          // median of a hot training step, or of a canary's work
  int64_t samples = 0;         // number of samples
  double half_width = 0;       // of the 95 % interval of the median, relative
  double stolen = 0;           // CPU seconds that the host took from this machine meanwhile
  double wall = 0;             // seconds from request to answer, preparation included
  std::string shared_pages{};  // the reason if the process has no private code pages (private_code_pages.h)
};
std::string line_of(const ProcessSample& sample);
ProcessSample sample_of(const std::string& line);  // throws Error for a line that is not a sample

struct SamplerOptions {
  double seconds = 0.05;                      // duration of the timed steps per case
  int threads = 0;                            // of the CPU's kernels, 0: as many as there are cores
  uint64_t seed = 0;                          // of parameters and data
  std::string data{};                         // path of files in place of drawn data; empty: drawn
  std::string shared_pages{};                 // the result of use_private_code_pages(); part of every answer
  std::map<std::string, double> slow_down{};  // case -> share by which each step is made longer; for tests of the gate
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  ~Sampler();
  // Never throws: errors become the reason. A second request for the same case uses the prepared model in memory.
  ProcessSample sample(const std::string& id);

 private:
  struct PreparedCase;
  std::unique_ptr<PreparedCase> prepare(const std::string& id);
  bool prepare_canary(PreparedCase& prepared);  // false: its id is not that of a canary
  std::shared_ptr<Device> device(const std::string& name);
  void measure(ProcessSample& result);

  SamplerOptions options_;
  DataFiles data_;
  std::map<std::string, std::shared_ptr<Device>> devices_;
  std::unique_ptr<PreparedCase> prepared_;  // the last case
};

// Reads ids line by line until the end of input, and answers each one before reading the next.
void answer_samples(std::istream& in, std::ostream& out, Sampler& sampler);

}  // namespace halfmark::bench
