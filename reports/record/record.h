// One record of a report: a case, its status and what was measured.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/measurement.h"

namespace halfmark::reports {

// suspect: measured, but the times are not valid (an emulated kernel in the timed region). failed: the measurement
// failed. NaN, divergence and zeroed gradients are measurements of an ok record. All but ok have a reason.
enum class Status : uint8_t { ok, suspect, skipped, failed };

std::string_view name_of(Status status);
std::string_view name_of(Better better);
std::string_view name_of(Kind kind);

// The expectation of a negative control ("error.nonfinite" ">" 0 at "output") and its result.
struct Expectation {
  std::string metric;
  std::string at;
  std::string relation;  // "<", "<=", "==", "!=", ">=", ">"
  double limit = 0;
  double found = 0;
  bool met = false;
};

// Whether a case gives the same bits every time: how many separate processes measured it, and how many of them gave a
// different fingerprint than the first. by_construction: a single process, and every kernel in it, also those of the
// reference, computes each element by one thread in a fixed order.
struct Determinism {
  enum class Proof : uint8_t { unproved, proved, refuted };
  int processes = 0, differing = 0;
  bool by_construction = false;
  Proof proof() const {
    return differing > 0 ? Proof::refuted : processes > 1 || by_construction ? Proof::proved : Proof::unproved;
  }
};
std::string_view name_of(Determinism::Proof proof);

// The files that a record was measured on, in place of data drawn from the seed. Records on other data are not compared.
struct DataOrigin {
  std::string kind;           // of files: "mnist"
  std::string name;           // of the folder or file, without the path to it
  std::string hash, hashed;   // 16 hexadecimal digits, and what they are a hash of: "contents"
  std::string normalisation;  // how bytes became numbers
  std::string unit;           // what is counted: "images"
  int64_t training = 0, held_out = 0;
  friend bool operator==(const DataOrigin&, const DataOrigin&) = default;
};

// Whether a record that was read is as it was written, by its checksum. unknown: it has none; in a report of a minor version
// with checksums that is no.
enum class Intact : uint8_t { unknown, yes, no };

struct Record {
  std::string id;  // "mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/error", unique in a report
  int case_version = 1;
  std::string subject, device, policy, harness;
  std::string definition;            // hash of the subject's layers, arguments, input, data and loss; empty: not known
  std::optional<DataOrigin> data{};  // nothing: drawn from the seed
  std::map<std::string, std::string> axes;
  Status status = Status::ok;
  std::string reason;    // why not ok
  std::string repro;     // the command line that runs only this case again
  std::string numerics;  // how exact the device's arithmetic is: "instruction-exact" on simulated devices
  double seconds = 0;    // duration of the case, for planning; not a measurement
  std::vector<KernelUse> kernels;
  std::vector<Measurement> measurements;
  std::vector<Series> series;
  std::optional<Expectation> expectation;
  std::string fingerprint;
  Determinism determinism;
  Intact intact = Intact::unknown;
  // The mistakes that rules found. In the file of a report they are the section "lint", which names this record.
  std::vector<LintFinding> lint;
};

// The fingerprint of a case without a number that repeats, such as one of times only.
inline constexpr std::string_view kOfNothing = "cbf29ce484222325";

// The first measurement with this metric and place, or null.
const Measurement* find(const Record& record, std::string_view metric, std::string_view at = {});

// Whether a measurement is not valid: a time of a suspect record.
bool misleads(const Record& record, const Measurement& measurement);

nlohmann::ordered_json to_json(const Record& record);

// The words of a report's file for the enumerations, by their numbers.
inline constexpr std::string_view kStatusNames[] = {"ok", "suspect", "skipped", "failed"};
inline constexpr std::string_view kBetterNames[] = {"lower", "higher", "neither"};
inline constexpr std::string_view kKindNames[] = {"exact", "bounded", "sampled", "information"};
inline constexpr std::string_view kProofNames[] = {"unproved", "proved", "refuted"};

}  // namespace halfmark::reports
