// The record of a run and its JSON file (schema/report-1.schema.json). It knows names and numbers only, so that it
// reads a report of another machine with formats, devices and metrics this build has never heard of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <utility>

#include "reports/record/error.h"
#include "reports/record/measurement.h"

namespace halfmark::reports {

// suspect: measured, but the times mean nothing (an emulated kernel in the timed region). failed: could not measure.
// NaN, divergence and zeroed gradients are measurements of an ok record. All but ok carry a reason.
enum class Status : uint8_t { ok, suspect, skipped, failed };

std::string_view name_of(Status status);
std::string_view name_of(Better better);
std::string_view name_of(Kind kind);

// What a negative control promised ("error.nonfinite" ">" 0 at "output") and what came of it.
struct Expectation {
  std::string metric;
  std::string at;
  std::string relation;  // "<", "<=", "==", "!=", ">=", ">"
  double limit = 0;
  double found = 0;
  bool met = false;
};

// Whether a case gives the same bits every time: so many processes of its own measured it, and so many of them gave
// another fingerprint than the first.
struct Determinism {
  enum class Proof : uint8_t { unproved, proved, refuted };
  int processes = 0, differing = 0;
  Proof proof() const { return differing > 0 ? Proof::refuted : processes > 1 ? Proof::proved : Proof::unproved; }
};
std::string_view name_of(Determinism::Proof proof);

struct Record {
  std::string id;  // "mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/error", unique in a report
  int case_version = 1;
  std::string subject, device, policy, harness;
  std::map<std::string, std::string> axes;
  Status status = Status::ok;
  std::string reason;    // why not ok
  std::string repro;     // the one command line that runs this case again alone
  std::string numerics;  // what the device promises, "instruction-exact" on simulated devices
  double seconds = 0;    // how long the case took, for planning; not a measurement
  std::vector<KernelUse> kernels;
  std::vector<Measurement> measurements;
  std::vector<Series> series;
  std::optional<Expectation> expectation;
  std::string fingerprint;
  Determinism determinism;
};

// Every case that a command line asks for, before they are dealt out to shards.
struct Plan {
  uint64_t cases = 0;
  std::string hash{};  // of the ids in their order: equal hashes, equal plans
};

struct RunInfo {
  std::string started{};  // ISO 8601 with zone
  double seconds = 0;     // wall time of the whole run
  std::string command{};
  uint64_t seed = 0;
  std::string suite{};
  bool complete = true;  // false: cut short, or shards are missing; the records are the cases that ended
  uint64_t planned = 0;  // records of the complete report; 0 when unknown (before minor 1)
  std::string shard{};   // "2/8": the second of eight parts of the plan
  Plan plan{};           // no cases: unknown (before minor 1)
};

struct Report {
  static constexpr int kSchema = 1;  // another major is refused
  static constexpr int kMinor = 1;   // a newer minor is read, its new fields ignored

  int schema = kSchema;
  int minor = kMinor;
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();  // a free tree: key -> value or subtree
  RunInfo run;
  std::vector<Record> records;

  // Throws ReportError: unreadable, not JSON, wrong type, unknown major schema, an id or a measurement twice.
  static Report load(const std::filesystem::path& path);
  static Report parse(std::string_view text, std::string_view where);  // the same from memory

  // The file is replaced whole or left as it was. Throws ReportError naming the path and the cause.
  void save(const std::filesystem::path& path) const;
  void write_to(int descriptor, const std::filesystem::path& name) const;  // the same text; `name` is for the error
};

// The first measurement with this metric and place, or nothing.
const Measurement* find(const Record& record, std::string_view metric, std::string_view at = {});

// Whether a measurement must not be read as what its metric says: a time of a suspect record.
bool misleads(const Record& record, const Measurement& measurement);

// JSON has no NaN and no infinity; in our field they are findings and are written as strings.
nlohmann::ordered_json json_number(double value);

nlohmann::ordered_json to_json(const Record& record);
nlohmann::ordered_json to_json(const Report& report);

// `where` opens the message of a ReportError: a file name, "journal.jsonl, line 7".
Record record_from_json(const nlohmann::ordered_json& json, std::string_view where);
Report report_from_json(const nlohmann::ordered_json& json, std::string_view where);

// A report with the name that tables and messages use for it: its file name.
struct NamedReport {
  std::string name;
  Report report;
};

// Throws ReportError when there are no records: a comparison with nothing would always pass.
void require_records(const NamedReport& named);

// "cpu.model", "Example 9000": the facts of an environment as dotted names and values, in its order.
std::vector<std::pair<std::string, std::string>> environment_facts(const nlohmann::ordered_json& environment);

}  // namespace halfmark::reports
