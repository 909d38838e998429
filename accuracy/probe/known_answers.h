// A known-answer check of a device: random problems with known results, spread over the whole device, again and again.
// A result with other bits is a silent error of the hardware, of a library or of the model that gave the known result.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "accuracy/probe/probe.h"
#include "kernels/tensor/device.h"

namespace halfmark::accuracy::probe {

// One matrix instruction, or one matmul of the device's libraries.
struct CheckedSubject {
  std::string name;      // "wgmma.k16 f16>f32", "matmul f16>f32 1024x1024x64"
  std::string expected;  // where the known results come from
  uint64_t results = 0, wrong = 0;
};

struct WrongResult {
  std::string subject;
  uint64_t round = 0;         // from 1
  std::string place;          // "problem 17, multiprocessor 5", "row 3, column 700"
  std::string expected, got;  // codes in hex
  std::string a, b, c;        // operands: codes in hex, in increasing k
};

struct CheckOptions {
  double seconds = 60;                // every subject is checked at least once, whatever it takes
  uint64_t seed = 1;                  // of the random problems
  int64_t problems = 16384;           // dot products in one launch of an instruction
  MatmulShape shape{1024, 1024, 64};  // of the matmuls; m and n are rounded up to multiples of 16
  std::vector<std::string> types{};   // of the matmuls; empty: usual_types()
  bool instructions = true, matmuls = true;
  size_t listed = 100;  // wrong results that are kept in full; all are counted
};

struct DeviceCheck {
  std::vector<CheckedSubject> subjects;
  std::vector<std::string> not_checked;                 // "matmul e4m3>f32: ..." with the reason
  std::vector<WrongResult> wrong;                       // the first `listed`
  std::map<int64_t, uint64_t> wrong_on_multiprocessor;  // where the device tells
  uint64_t rounds = 0;                                  // completed or begun
  double seconds = 0;
  uint64_t results() const;
  uint64_t wrong_results() const;
};

// Called after each launch and while the check is prepared; false ends the check.
using CheckProgress = std::function<bool(const DeviceCheck& so_far, const std::string& now)>;

// Instructions are compared with the simulated row of the GPU's architecture. Matmuls are compared with the model that
// the probe found for this device, or, where it does not describe them, with the device's own first results.
// A simulated device cannot be checked: throws Unsupported.
DeviceCheck check_device(Device& device, const CheckOptions& options, const CheckProgress& progress);

}  // namespace halfmark::accuracy::probe
