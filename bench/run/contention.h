// What other work did on this machine while something was timed. Linux only; elsewhere everything is unknown (NaN).
#pragma once

#include <optional>
#include <string>

namespace halfmark::bench {

// NaN: the system does not tell. Sources: /proc/stat, /proc/self/task/*/schedstat, /proc/pressure/cpu (proc(5)).
struct Contention {
  double wall = 0;      // seconds
  double cpu = 0;       // CPU seconds of this process / wall
  double others = 0;    // cores that other processes kept busy: their CPU seconds / wall
  double stolen = 0;    // cores that the host of a virtual machine took: stolen seconds / wall
  double waiting = 0;   // seconds that threads of this process were ready to run and did not run / wall
  double pressure = 0;  // share of the time in which some process of the machine waited for a core
};

// Why a time measured under this contention is not valid; nullopt: it is. `cores` are those of the machine, `threads`
// those that the timed work uses.
//
// Another process takes time from the work if it needs cores that the work uses. /proc/stat counts ticks of 10 ms, so
// a share below a tenth of a core is not told from nothing. Waiting without others is the work's own threads.
std::optional<std::string> contention_reason(const Contention& found, int cores, int threads);

class ContentionMeter {
 public:
  ContentionMeter();        // begins
  Contention read() const;  // since the beginning

 private:
  struct Counters {
    double wall = 0, own = 0, busy = 0, stolen = 0, waiting = 0, pressure = 0;  // seconds
  };
  static Counters now();
  Counters begin_;
};

int cores_of_machine();  // cores that are switched on

}  // namespace halfmark::bench
