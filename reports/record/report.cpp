#include "reports/record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"
#include "reports/record/lint_json.h"
#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStatusNames[] = {"ok", "suspect", "skipped", "failed"};
constexpr std::string_view kBetterNames[] = {"lower", "higher", "neither"};
constexpr std::string_view kKindNames[] = {"exact", "bounded", "sampled", "information"};
constexpr std::string_view kProofNames[] = {"unproved", "proved", "refuted"};

Json numbers(const std::vector<double>& values) {
  Json json = Json::array();
  for (double value : values) json.push_back(json_number(value));
  return json;
}

Json to_json(const KernelUse& use) {
  Json json = {{"op", use.operation}, {"phase", use.phase}, {"dtypes", use.dtypes},
               {"row", use.row},      {"speed", use.speed}, {"calls", use.calls}};
  if (!use.refusals.empty()) json["refusals"] = use.refusals;
  return json;
}

Json to_json(const Measurement& measurement) {
  Json json = {{"metric", measurement.metric},
               {"at", measurement.at},
               {"value", json_number(measurement.value)},
               {"unit", measurement.unit},
               {"better", name_of(measurement.better)},
               {"kind", name_of(measurement.kind)}};
  if (measurement.interval)
    json["interval"] = {json_number(measurement.interval->lower), json_number(measurement.interval->upper)};
  if (measurement.bound) json["bound"] = json_number(*measurement.bound);
  if (measurement.standard_error) json["standard_error"] = json_number(*measurement.standard_error);
  if (!measurement.samples.empty()) json["samples"] = numbers(measurement.samples);
  return json;
}

Json to_json(const Series& series) {
  return {{"metric", series.metric}, {"at", series.at},        {"x_unit", series.x_unit},
          {"y_unit", series.y_unit}, {"x", numbers(series.x)}, {"y", numbers(series.y)}};
}

Json to_json(const Expectation& expectation) {
  return {{"metric", expectation.metric},
          {"at", expectation.at},
          {"relation", expectation.relation},
          {"limit", json_number(expectation.limit)},
          {"found", json_number(expectation.found)},
          {"met", expectation.met}};
}

Json to_json(const RunInfo& run) {
  Json json = {{"started", run.started}, {"seconds", json_number(run.seconds)},
               {"command", run.command}, {"seed", run.seed},
               {"suite", run.suite},     {"complete", run.complete}};
  if (run.planned > 0) json["planned"] = run.planned;
  if (!run.shard.empty()) json["shard"] = run.shard;
  if (run.plan.cases > 0) json["plan"] = {{"cases", run.plan.cases}, {"hash", run.plan.hash}};
  return json;
}

KernelUse read_kernel(const JsonReader& json) {
  json.expect_object();
  KernelUse use;
  use.operation = json.required("op").text();
  use.phase = json.text("phase");
  use.dtypes = json.text("dtypes");
  use.row = json.required("row").text();
  use.speed = json.text("speed");
  use.calls = json.unsigned_integer("calls");
  json.each("refusals", [&](const JsonReader& refusal) { use.refusals.push_back(refusal.text()); });
  return use;
}

Measurement read_measurement(const JsonReader& json) {
  json.expect_object();
  Measurement measurement;
  measurement.metric = json.required("metric").text();
  measurement.at = json.text("at");
  measurement.value = json.required("value").number();
  measurement.unit = json.text("unit", measurement.unit);
  if (const auto better = json.optional("better")) measurement.better = better->one_of<Better>(kBetterNames);
  if (const auto kind = json.optional("kind")) measurement.kind = kind->one_of<Kind>(kKindNames);
  if (const auto interval = json.optional("interval")) {
    const std::vector<double> ends = json.numbers("interval");
    if (ends.size() != 2 || !(ends[0] <= ends[1])) interval->fail("expected two numbers, the smaller one first");
    if (!(ends[0] <= measurement.value && measurement.value <= ends[1])) interval->fail("does not hold the value");
    measurement.interval = Range{ends[0], ends[1]};
  }
  if (const auto bound = json.optional("bound")) measurement.bound = bound->number();
  if (const auto error = json.optional("standard_error")) measurement.standard_error = error->number();
  measurement.samples = json.numbers("samples");
  return measurement;
}

Series read_series(const JsonReader& json) {
  json.expect_object();
  Series series;
  series.metric = json.required("metric").text();
  series.at = json.text("at");
  series.x = json.numbers("x");
  series.y = json.numbers("y");
  series.x_unit = json.text("x_unit", series.x_unit);
  series.y_unit = json.text("y_unit", series.y_unit);
  if (series.x.size() != series.y.size()) {
    json.fail(fmt::format("x has {} values and y has {}", series.x.size(), series.y.size()));
  }
  return series;
}

Expectation read_expectation(const JsonReader& json) {
  json.expect_object();
  Expectation expectation;
  expectation.metric = json.required("metric").text();
  expectation.at = json.text("at");
  expectation.relation = json.text("relation");
  expectation.limit = json.required("limit").number();
  expectation.found = json.required("found").number();
  expectation.met = json.required("met").boolean();
  return expectation;
}

Determinism read_determinism(const JsonReader& json) {
  json.expect_object();
  Determinism determinism;
  determinism.processes = json.required("processes").integer();
  determinism.differing = json.required("differing").integer();
  if (determinism.processes < 1) json.fail(fmt::format("{} processes measured it", determinism.processes));
  if (determinism.differing < 0 || determinism.differing >= determinism.processes)
    json.fail(fmt::format("{} of {} processes differ", determinism.differing, determinism.processes));
  if (const auto by_construction = json.optional("by_construction"))
    determinism.by_construction = by_construction->boolean();
  return determinism;
}

DataOrigin read_data(const JsonReader& json) {
  json.expect_object();
  DataOrigin data;
  data.kind = json.required("kind").text();
  data.name = json.text("name");
  data.hash = json.required("hash").text();
  data.hashed = json.text("hashed");
  data.normalisation = json.text("normalisation");
  data.unit = json.text("unit");
  data.training = static_cast<int64_t>(json.unsigned_integer("training"));
  data.held_out = static_cast<int64_t>(json.unsigned_integer("held_out"));
  return data;
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

// The id of a case names its parts. With other parts, the tables would show a number under one precision and the gate
// would compare it under another.
void check_id(const Record& record, const JsonReader& json) {
  constexpr auto kSlashes = 4;  // subject/sizes/device/policy/harness; other programs may use shorter ids
  if (std::count(record.id.begin(), record.id.end(), '/') < kSlashes) return;
  const std::string parts = fmt::format("{}/{}/{}/{}", record.subject, record.device, record.policy, record.harness);
  if (record.id != parts && !record.id.starts_with(parts + "/"))
    json.fail(fmt::format("the id \"{}\" contradicts its subject, device, policy and harness, \"{}\"",
                          printable(record.id), printable(parts)));
}

Record read_record(const JsonReader& json) {
  json.expect_object();
  Record record;
  record.id = json.required("id").text();
  record.case_version = json.integer("case_version", 1);
  if (record.case_version < 0) json.fail(fmt::format("\"case_version\" is {}, which is negative", record.case_version));
  record.subject = json.required("subject").text();
  record.device = json.required("device").text();
  record.policy = json.required("policy").text();
  record.harness = json.required("harness").text();
  check_id(record, json);
  json.each_member("axes", [&](const std::string& key, const JsonReader& value) { record.axes[key] = value.text(); });
  record.status = json.required("status").one_of<Status>(kStatusNames);
  record.reason = json.text("reason");
  record.definition = json.text("definition");
  if (const auto data = json.optional("data")) record.data = read_data(*data);
  record.repro = json.text("repro");
  record.numerics = json.text("numerics");
  record.seconds = json.number("seconds");
  json.each("kernels", [&](const JsonReader& use) { record.kernels.push_back(read_kernel(use)); });
  std::set<std::pair<std::string, std::string>> known;
  json.each("measurements", [&](const JsonReader& one) {
    Measurement measurement = read_measurement(one);
    if (!known.emplace(measurement.metric, measurement.at).second)
      one.fail(fmt::format("\"{}\" at \"{}\" is used twice", measurement.metric, measurement.at));
    record.measurements.push_back(std::move(measurement));
  });
  json.each("series", [&](const JsonReader& one) { record.series.push_back(read_series(one)); });
  if (const auto expectation = json.optional("expectation")) record.expectation = read_expectation(*expectation);
  record.fingerprint = json.text("fingerprint");
  if (const auto determinism = json.optional("determinism")) record.determinism = read_determinism(*determinism);
  json.each("lint", [&](const JsonReader& finding) { record.lint.push_back(read_lint(finding)); });
  return record;
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

void collect_facts(const nlohmann::ordered_json& json, const std::string& path,
                   std::vector<std::pair<std::string, std::string>>& facts) {
  if (json.is_null()) return;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect_facts(value, path.empty() ? key : path + "." + key, facts);
  } else {
    constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
    facts.emplace_back(path, json.is_string() ? json.get<std::string>() : json.dump(-1, ' ', false, kReplace));
  }
}

}  // namespace

std::string_view name_of(Status status) { return kStatusNames[static_cast<size_t>(status)]; }
std::string_view name_of(Better better) { return kBetterNames[static_cast<size_t>(better)]; }
std::string_view name_of(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::string_view name_of(Determinism::Proof proof) { return kProofNames[static_cast<size_t>(proof)]; }

const Measurement* find(const Record& record, std::string_view metric, std::string_view at) {
  const auto found = std::find_if(record.measurements.begin(), record.measurements.end(),
                                  [&](const Measurement& one) { return one.metric == metric && one.at == at; });
  return found == record.measurements.end() ? nullptr : &*found;
}

bool misleads(const Record& record, const Measurement& measurement) {
  return record.status == Status::suspect && measurement.kind == Kind::sampled;
}

Json to_json(const Record& record) {
  Json json = {{"id", record.id},           {"case_version", record.case_version},
               {"subject", record.subject}, {"device", record.device},
               {"policy", record.policy},   {"harness", record.harness},
               {"axes", Json::object()},    {"status", name_of(record.status)},
               {"reason", record.reason}};
  for (const auto& [key, value] : record.axes) json["axes"][key] = value;
  if (!record.definition.empty()) json["definition"] = record.definition;
  if (const auto& data = record.data)
    json["data"] = {{"kind", data->kind},
                    {"name", data->name},
                    {"hash", data->hash},
                    {"hashed", data->hashed},
                    {"normalisation", data->normalisation},
                    {"unit", data->unit},
                    {"training", data->training},
                    {"held_out", data->held_out}};
  if (!record.repro.empty()) json["repro"] = record.repro;
  if (!record.numerics.empty()) json["numerics"] = record.numerics;
  if (record.seconds != 0) json["seconds"] = json_number(record.seconds);
  for (const char* list : {"kernels", "measurements", "series"}) json[list] = Json::array();
  for (const KernelUse& use : record.kernels) json["kernels"].push_back(to_json(use));
  for (const Measurement& measurement : record.measurements) json["measurements"].push_back(to_json(measurement));
  for (const Series& series : record.series) json["series"].push_back(to_json(series));
  if (record.expectation) json["expectation"] = to_json(*record.expectation);
  if (!record.fingerprint.empty()) json["fingerprint"] = record.fingerprint;
  if (const Determinism& found = record.determinism; found.processes > 0) {
    json["determinism"] = {
        {"proof", name_of(found.proof())}, {"processes", found.processes}, {"differing", found.differing}};
    if (found.by_construction) json["determinism"]["by_construction"] = true;
  }
  if (!record.lint.empty()) {
    json["lint"] = Json::array();
    for (const LintFinding& finding : record.lint) json["lint"].push_back(to_json(finding));
  }
  return json;
}

Json to_json(const Report& report) {
  Json json = without_records(report);
  json["records"] = Json::array();
  for (const Record& record : report.records) json["records"].push_back(without_lint(record));
  return json;
}

Record record_from_json(const Json& json, std::string_view where) { return read_record(JsonReader(json, where)); }

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
  return report;
}

void Report::save(const std::filesystem::path& path) const { write_file(path, file_text(*this)); }

void Report::write_to(int descriptor, const std::filesystem::path& name) const {
  write_all(descriptor, file_text(*this), name);
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
