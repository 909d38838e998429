// What a GPU says of itself at one moment.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace halfmark::kernels {

// NaN: the GPU does not tell.
struct DeviceState {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double core_clock = kUnknown;          // MHz
  double most_core_clock = kUnknown;     // MHz, the highest that it can have
  double memory_clock = kUnknown;        // MHz
  double temperature = kUnknown;         // degrees Celsius
  double power = kUnknown;               // W
  double energy = kUnknown;              // J since the driver was loaded
  double other_processes = kUnknown;     // that compute on this GPU
  double uncorrected_errors = kUnknown;  // of its memory, since the driver was loaded
  std::vector<std::string> slowed_by;    // why its clock is lower than the work allows: "power cap"
};

}  // namespace halfmark::kernels
