// The report of a run and its JSON file (schema/report-1.schema.json). It contains only names and numbers, so this
// build can read reports with formats, devices and metrics that it does not know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/record/error.h"
#include "reports/record/record.h"

namespace halfmark::reports {

// All cases that a command line selects, before they are distributed to shards.
struct Plan {
  uint64_t cases = 0;
  std::string hash{};  // hash of the ids in order; equal for equal plans
};

struct RunInfo {
  std::string started{};  // ISO 8601 with zone
  double seconds = 0;     // wall time of the whole run
  std::string command{};
  uint64_t seed = 0;
  std::string suite{};
  bool complete = true;  // false: the run was interrupted, or shards are missing; the records are the finished cases
  uint64_t planned = 0;  // records of the complete report; 0 when unknown (before minor 1)
  std::string shard{};   // "2/8": the second of eight parts of the plan
  Plan plan{};           // no cases: unknown (before minor 1)
};

struct Report {
  static constexpr int kSchema = 1;  // another major version is rejected
  static constexpr int kFirstMinorWithChecksums = 7;
  static constexpr int kMinor = 7;   // a newer minor version is read without its new fields

  int schema = kSchema;
  int minor = kMinor;
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();  // facts; their layout is not fixed
  RunInfo run;
  std::vector<Record> records;

  // Throws ReportError: unreadable, not JSON, wrong type, unknown major schema, a duplicate id or measurement.
  static Report load(const std::filesystem::path& path);
  static Report parse(std::string_view text, std::string_view where);  // the same from memory

  // The file is replaced completely or stays as it was. Throws ReportError naming the path and the cause.
  void save(const std::filesystem::path& path) const;
  void write_to(int descriptor, const std::filesystem::path& name) const;  // the same text; `name` is for the error
};

nlohmann::ordered_json to_json(const Report& report);

// `where` is the prefix of the message of a ReportError: a file name.
Report report_from_json(const nlohmann::ordered_json& json, std::string_view where);

// A report with the name that tables and messages use for it: its file name.
struct NamedReport {
  std::string name;
  Report report;
};

// "records changed after they were written (checksum wrong or missing): 2 of 8, the first is ...": their checksum is not
// that of what they hold. Empty if there are none.
std::string changed_text(const Report& report);

// Of a report that was read: records without a checksum that must have one count as changed.
void expect_checksums(Report& report);

// Throws ReportError as Report::load does, and for a report with changed records: for what judges or passes numbers on.
NamedReport load_unchanged(const std::string& file);

// Throws ReportError when there are no records: a comparison with nothing would always pass.
void require_records(const NamedReport& named);

// "cpu.model", "Example 9000": the facts of an environment as dotted names and values, in its order.
std::vector<std::pair<std::string, std::string>> environment_facts(const nlohmann::ordered_json& environment);

}  // namespace halfmark::reports
