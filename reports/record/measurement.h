// The measurements of one case: named numbers and curves. Independent of devices, formats and models. The {} let
// designated initializers leave members out without a warning.
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

struct Range {
  double lower = 0, upper = 0;
  bool holds(double value) const { return lower <= value && value <= upper; }
};

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
  std::optional<double> bound{};    // derived upper limit, in the same unit
  std::optional<Range> interval{};  // confidence interval of the value; the metric's formula says how sure
  // Of a value that estimates a mean from a sample, such as an accuracy; in the same unit.
  std::optional<double> standard_error{};
  std::vector<double> samples{};  // replicates from which a sampled value is computed, in the order of measurement
};

// A curve or a histogram: y over x, equally long.
struct Series {
  std::string metric{};
  std::string at{};
  std::vector<double> x{}, y{};
  std::string x_unit = "1", y_unit = "1";
};

// A number that shows a mistake.
struct NamedNumber {
  std::string name{};  // "norm of the gradients / norm of the exact ones"
  double value = 0;
};

// A mistake of mixed-precision training that a rule has found in a case.
struct LintFinding {
  std::string rule{};                   // "not_unscaled"
  std::vector<NamedNumber> evidence{};  // the number that the rule judges first
  std::string remedy{};                 // a sentence
  std::string reference{};              // where the rule comes from
};

// The result of a harness.
struct Findings {
  std::vector<Measurement> measurements;
  std::vector<Series> series;
  std::vector<LintFinding> lint{};
};

// One kernel row used in a record: its work, how often it ran, and whether its time is a valid speed.
struct KernelUse {
  std::string operation{};  // "matmul"
  std::string phase{};      // "forward", "backward", "optimizer", ...
  std::string dtypes{};     // "f16,f16->f16"
  std::string row{};        // "onednn", "upcast", "tensor-core", "reference", ...
  std::string speed{};      // "real" | "emulated"
  uint64_t calls = 0;
  std::vector<std::string> refusals{};  // "row: reason" of every row that was tried before it
  std::vector<std::string> choices{};   // what a library chose, for each size: "32x48x64: algorithm 3 ..."
};

}  // namespace halfmark::reports
