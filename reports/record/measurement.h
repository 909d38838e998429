// What one case says about itself: named numbers and curves. Knows nothing of devices, formats or models.
// The {} are there so that designated initializers may leave members out without a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halfmark::reports {

enum class Better : uint8_t { lower, higher, neither };

// exact: the same on every run of the same build and machine (bytes, counts, bit patterns).
// bounded: has an a-priori bound. sampled: differs from run to run (times). information: never gated.
enum class Kind : uint8_t { exact, bounded, sampled, information };

// One number. `metric` is dotted, family first ("error.nmse", "time.forward"); `at` says where it was taken: a phase, a
// layer, a tensor ("forward/conv1/output"), empty for the whole case. Units are base units: s, B, FLOP/s, B/s, J,
// bit, 1.
struct Measurement {
  std::string metric{};
  std::string at{};
  double value = 0;
  std::string unit = "1";
  Better better = Better::neither;
  Kind kind = Kind::information;
  std::optional<double> bound{};  // the limit the theory allows, same unit
  std::vector<double> samples{};  // replicates behind a sampled value, in the order taken
};

// A curve or a histogram: y over x, equally long.
struct Series {
  std::string metric{};
  std::string at{};
  std::vector<double> x{}, y{};
  std::string x_unit = "1", y_unit = "1";
};

// What a harness hands back.
struct Findings {
  std::vector<Measurement> measurements;
  std::vector<Series> series;
};

// One row of work inside a record: which kernel did what, how often, and whether its time means anything.
struct KernelUse {
  std::string operation{};  // "matmul"
  std::string phase{};      // "forward", "backward", "optimizer", ...
  std::string dtypes{};     // "f16,f16->f16"
  std::string row{};        // "onednn", "upcast", "tensor-core", "reference", ...
  std::string speed{};      // "real" | "emulated"
  uint64_t calls = 0;
  std::vector<std::string> refusals{};  // "row: reason" of every row that was asked first
};

}  // namespace halfmark::reports
