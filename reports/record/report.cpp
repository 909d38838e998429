#include "reports/record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "reports/record/file.h"
#include "reports/record/json_number.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"
#include "reports/record/lint_json.h"
#include "reports/record/printable.h"
#include "reports/record/record_reading.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const RunInfo& run) {
  Json json = {{"started", run.started}, {"seconds", json_number(run.seconds)},
               {"command", run.command}, {"seed", run.seed},
               {"suite", run.suite},     {"complete", run.complete}};
  if (run.planned > 0) json["planned"] = run.planned;
  if (!run.shard.empty()) json["shard"] = run.shard;
  if (run.plan.cases > 0) json["plan"] = {{"cases", run.plan.cases}, {"hash", run.plan.hash}};
  return json;
}

RunInfo read_run(const JsonReader& json) {
  json.expect_object();
  RunInfo run;
  run.started = json.text("started");
  run.seconds = json.number("seconds");
  run.command = json.text("command");
  run.seed = json.unsigned_integer("seed");
  run.suite = json.text("suite");
  if (const auto complete = json.optional("complete")) run.complete = complete->boolean();
  run.planned = json.unsigned_integer("planned");
  run.shard = json.text("shard");
  if (const auto plan = json.optional("plan")) {
    plan->expect_object();
    run.plan.cases = plan->unsigned_integer("cases");
    run.plan.hash = plan->text("hash");
  }
  return run;
}

// Ids must be unique: with two equal ones it would be undefined which is compared.
class Ids {
 public:
  void add(const Record& record, const JsonReader& json) {
    if (!ids_.insert(record.id).second) json.fail(fmt::format("the id \"{}\" is used twice", printable(record.id)));
  }

 private:
  std::unordered_set<std::string> ids_;
};

int schema_of(const JsonReader& report, std::string_view where) {
  const int schema = report.required("schema").integer();
  if (schema == Report::kSchema) return schema;
  throw ReportError(fmt::format("{}: is a report of schema {}, this program reads schema {}; use a matching halfmark",
                                where, schema, Report::kSchema));
}

// The section of all records, each finding with the case that it is of. A case with an expectation planted its mistake.
Json lint_section(const Report& report) {
  Json section = Json::array();
  for (const Record& record : report.records)
    for (const LintFinding& finding : record.lint) {
      Json json = {{"case", record.id}, {"expected", record.expectation.has_value()}};
      json.update(to_json(finding));
      section.push_back(std::move(json));
    }
  return section;
}

// Gives each record its findings of the section.
void take_lint_section(const JsonReader& report, std::vector<Record>& records) {
  std::unordered_map<std::string_view, Record*> owners;
  for (Record& record : records) owners[record.id] = &record;
  report.each("lint", [&](const JsonReader& one) {
    LintFinding finding = read_lint(one);
    const std::string id = one.required("case").text();
    const auto owner = owners.find(id);
    if (owner == owners.end()) one.fail(fmt::format("no record has the id \"{}\"", printable(id)));
    owner->second->lint.push_back(std::move(finding));
  });
}

Json without_records(const Report& report) {
  Json json = {{"schema", report.schema},
               {"minor", report.minor},
               {"environment", report.environment},
               {"run", to_json(report.run)}};
  if (Json section = lint_section(report); !section.empty()) json["lint"] = std::move(section);
  return json;
}

// As in the list of a report, whose section "lint" has the findings.
Json without_lint(const Record& record) {
  Json json = to_json(record);
  json.erase("lint");
  return json;
}

// Bytes that are not UTF-8 (a device name from a driver) become U+FFFD instead of throwing.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// One record per line, so that two reports can be compared with diff.
std::string file_text(const Report& report) {
  std::string text = dump(without_records(report), 1);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n \"records\": [";
  for (size_t i = 0; i < report.records.size(); ++i) {
    text += i == 0 ? "\n  " : ",\n  ";
    text += dump(without_lint(report.records[i]));
  }
  text += report.records.empty() ? "]\n}\n" : "\n ]\n}\n";
  return text;
}

// With whole numbers as integers: tools that rewrite JSON may make 1.0 or 1e3 of an integer, and the reverse.
nlohmann::ordered_json with_integers(nlohmann::ordered_json json) {
  constexpr double kExact = 9007199254740992;  // 2^53: below it each integer is one double
  if (json.is_number_float()) {
    const auto number = json.get<double>();
    if (std::fabs(number) < kExact && number == std::trunc(number)) return static_cast<int64_t>(number);
  } else if (json.is_structured()) {
    for (auto& part : json) part = with_integers(part);
  }
  return json;
}

void collect_facts(const nlohmann::ordered_json& json, const std::string& path,
                   std::vector<std::pair<std::string, std::string>>& facts) {
  if (json.is_null()) return;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect_facts(value, path.empty() ? key : path + "." + key, facts);
  } else {
    constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
    facts.emplace_back(path,
                       json.is_string() ? json.get<std::string>() : with_integers(json).dump(-1, ' ', false, kReplace));
  }
}

}  // namespace

Json to_json(const Report& report) {
  Json json = without_records(report);
  json["records"] = Json::array();
  for (const Record& record : report.records) json["records"].push_back(without_lint(record));
  return json;
}

namespace {

// With the records in the tree; their findings of the section "lint" are still missing.
Report report_without_lint(const JsonReader& reader, std::string_view where) {
  reader.expect_object();
  Report report;
  // The schema is checked first: in another major version any other field may have another meaning.
  report.schema = schema_of(reader, where);
  report.minor = reader.integer("minor", 0);
  if (const auto environment = reader.optional("environment")) {
    environment->expect_object();
    report.environment = environment->value();
  }
  if (const auto run = reader.optional("run")) report.run = read_run(*run);
  Ids ids;
  reader.required("records").each([&](const JsonReader& one) {
    report.records.push_back(read_record(one));
    ids.add(report.records.back(), one);
  });
  return report;
}

}  // namespace

Report report_from_json(const Json& json, std::string_view where) {
  const JsonReader reader(json, where);
  Report report = report_without_lint(reader, where);
  take_lint_section(reader, report.records);
  expect_checksums(report);
  return report;
}

Report Report::load(const std::filesystem::path& path) { return parse(read_file(path), path.string()); }

Report Report::parse(std::string_view text, std::string_view where) {
  std::vector<Record> records;
  Ids ids;
  const Taker taker{"records", [&](const Json& before, const Json& element, size_t index) {
                      if (!before.contains("schema")) return false;
                      const JsonReader report(before, where);
                      schema_of(report, where);
                      const JsonReader list = report.required("records");
                      const JsonReader one = list.element(element, index);
                      records.push_back(read_record(one));
                      ids.add(records.back(), one);
                      return true;
                    }};
  const Json json = parse_json(text, where, taker);
  const JsonReader reader(json, where);
  Report report = report_without_lint(reader, where);
  // A list is processed completely or not at all.
  if (!records.empty()) report.records = std::move(records);
  take_lint_section(reader, report.records);
  expect_checksums(report);
  return report;
}

void Report::save(const std::filesystem::path& path) const { write_file(path, file_text(*this)); }

void Report::write_to(int descriptor, const std::filesystem::path& name) const {
  write_all(descriptor, file_text(*this), name);
}

std::string changed_text(const Report& report) {
  const auto is_changed = [](const Record& record) { return record.intact == Intact::no; };
  const auto count = std::ranges::count_if(report.records, is_changed);
  if (count == 0) return {};
  const Record& first = *std::ranges::find_if(report.records, is_changed);
  return fmt::format(
      "records changed after they were written (checksum wrong or missing): {} of {}, the first is {}; measure again",
      count, report.records.size(), printable(first.id));
}

NamedReport load_unchanged(const std::string& file) {
  NamedReport named{file, Report::load(file)};
  if (const std::string changed = changed_text(named.report); !changed.empty())
    throw ReportError(fmt::format("{}: {}", file, changed));
  return named;
}

void expect_checksums(Report& report) {
  if (report.minor < Report::kFirstMinorWithChecksums) return;
  for (Record& record : report.records)
    if (record.intact == Intact::unknown) record.intact = Intact::no;
}

void require_records(const NamedReport& named) {
  if (named.report.records.empty())
    throw ReportError(named.name + ": has no records, so there is nothing to compare; name the report of a run");
}

std::vector<std::pair<std::string, std::string>> environment_facts(const nlohmann::ordered_json& environment) {
  std::vector<std::pair<std::string, std::string>> facts;
  collect_facts(environment, "", facts);
  return facts;
}

}  // namespace halfmark::reports
