// Reviewed and accepted changes: a checked-in file that the gate reads with --acknowledge.
//   {"acknowledgements": 1, "entries": [
//     {"case": "mlp/*/cpu/*/memory", "metric": "memory.peak", "at": "train", "from": 12000, "to": 15000,
//      "reason": "#123: a second buffer", "expires": "2026-03-01"},
//     {"case": "linear/b4_i16_o8/cpu/fp16/error", "from": "5d0c..", "to": "77a1..",
//      "reason": "...", "expires": "..."}]}
// An entry without a metric is about the fingerprint. The numbers of the fp64 reference are acknowledged together, by
// the number "reference.all" that sums them up; the gate prints it:
//   {"case": "batchnorm2d/b16_c64_s28/cpu/*/error", "metric": "reference.all", "from": 61.03515625, "to": 61.25,
//    "reason": "#124: epsilon as in the paper", "expires": "2026-03-01"}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/measurement.h"

namespace halfmark::reports {

inline constexpr std::string_view kReferenceAll = "reference.all";

struct Acknowledgement {
  std::string cases, metric, at = "*";  // globs; empty metric: the fingerprint
  std::string from, to;                 // fingerprints
  double from_value = 0, to_value = 0;  // of the metric
  std::string reason, expires;          // expires: the last day on which it is valid, "2026-03-01"
  bool used = false;
};

class Acknowledgements {
 public:
  // Throws ReportError with one line: file, field, problem.
  static Acknowledgements load(const std::string& path);
  static Acknowledgements from_json(const nlohmann::ordered_json& json, std::string_view where);

  // The valid entry on this day ("2026-02-28") for such a change, or null; marks it as used. Numbers must agree within
  // 1 %, because people copy them from a text. A number on the better side of `to` is also covered.
  const Acknowledgement* find_bits(const std::string& id, const std::string& from, const std::string& to,
                                   std::string_view today);
  const Acknowledgement* find_number(const std::string& id, const Measurement& from, double to, std::string_view today);

  // The same for the numbers of the fp64 reference, by their sum. It must agree to kReferenceAgreement, because every
  // further change of the mathematics moves it by more; people copy all its digits.
  static constexpr double kReferenceAgreement = 1e-6;
  const Acknowledgement* find_reference(const std::string& id, double from, double to, std::string_view today);

  // "acknowledged.json: entry 3 about X expired on ...": expired or unused entries.
  std::vector<std::string> remarks(std::string_view today) const;

 private:
  std::string where_;
  std::vector<Acknowledgement> entries_;
};

}  // namespace halfmark::reports
