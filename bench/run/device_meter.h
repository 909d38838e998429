// What a GPU said of itself while something was timed on it: clocks, and why they were lower than the work allowed.
//
// A reading takes 10 to 1000 us, so none is made inside a timed region, and between samples one each few milliseconds.
// The work between two readings counts only if the GPU gave no reason in either. A reason that came and went between two
// readings is not seen.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// Its own clock, so that tests need no time.
using SecondsNow = std::function<double()>;
double steady_seconds();

class DeviceMeter {
 public:
  explicit DeviceMeter(Device& device, SecondsNow now = steady_seconds);  // the first reading

  bool tells() const { return tells_; }  // false: a CPU, or a GPU without NVML. Then all work counts.

  // Reads. Whether the work since the reading before counts. To be called when the work is done.
  bool counts();
  // The same if the last reading is old enough or the answer is needed; nothing: to be asked again after more work.
  std::optional<bool> judge(bool is_needed);

  // The numbers of the readings, as metrics of device_table(). `discarded`: pieces of work that were dropped, `slowed`:
  // share of the others that the GPU gave a reason for. Nothing if the device tells nothing.
  void write(FindingsWriter& out, const std::string& at, size_t discarded, double slowed) const;
  // Also clocks, temperature and errors: the medians over the readings after work that counts, or over all if none does.
  void write_all(FindingsWriter& out, const std::string& at, size_t discarded, double slowed) const;

 private:
  struct Reading {
    kernels::DeviceState state;
    bool counts = false;  // the work before it
  };
  double median_of(double kernels::DeviceState::*number) const;

  Device& device_;
  SecondsNow now_;
  bool tells_ = false, was_slowed_ = false;
  double next_ = 0;  // seconds, when the next reading is due
  double most_others_ = kernels::DeviceState::kUnknown;
  std::vector<Reading> readings_;         // without the first
  std::map<std::string, int> slowed_by_;  // pieces of work for which the GPU gave this reason
};

// Rows of the throughput harness. No gate judges them: they are about the machine.
const std::vector<MetricRow>& device_table();

}  // namespace halfmark::bench
