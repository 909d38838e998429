#include "reports/record/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"

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
  if (measurement.bound) json["bound"] = json_number(*measurement.bound);
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
  if (const auto bound = json.optional("bound")) measurement.bound = bound->number();
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
  if (determinism.differing < 0 || determinism.differing >= std::max(determinism.processes, 1))
    json.fail(fmt::format("{} of {} processes differ", determinism.differing, determinism.processes));
  return determinism;
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

Record read_record(const JsonReader& json) {
  json.expect_object();
  Record record;
  record.id = json.required("id").text();
  record.case_version = json.integer("case_version", 1);
  record.subject = json.required("subject").text();
  record.device = json.required("device").text();
  record.policy = json.required("policy").text();
  record.harness = json.required("harness").text();
  json.each_member("axes", [&](const std::string& key, const JsonReader& value) { record.axes[key] = value.text(); });
  record.status = json.required("status").one_of<Status>(kStatusNames);
  record.reason = json.text("reason");
  record.repro = json.text("repro");
  record.numerics = json.text("numerics");
  record.seconds = json.number("seconds");
  json.each("kernels", [&](const JsonReader& use) { record.kernels.push_back(read_kernel(use)); });
  json.each("measurements", [&](const JsonReader& one) { record.measurements.push_back(read_measurement(one)); });
  json.each("series", [&](const JsonReader& one) { record.series.push_back(read_series(one)); });
  if (const auto expectation = json.optional("expectation")) record.expectation = read_expectation(*expectation);
  record.fingerprint = json.text("fingerprint");
  if (const auto determinism = json.optional("determinism")) record.determinism = read_determinism(*determinism);
  return record;
}

int schema_of(const JsonReader& report, std::string_view where) {
  const int schema = report.required("schema").integer();
  if (schema == Report::kSchema) return schema;
  throw ReportError(fmt::format("{}: is a report of schema {}, this program reads schema {}; use a matching halfmark",
                                where, schema, Report::kSchema));
}

Json without_records(const Report& report) {
  return {{"schema", report.schema},
          {"minor", report.minor},
          {"environment", report.environment},
          {"run", to_json(report.run)}};
}

// Bytes that are no UTF-8 (a device name from a driver) become U+FFFD instead of an exception.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// One record a line: long arrays stay out of the way, and two reports can be diffed.
std::string file_text(const Report& report) {
  std::string text = dump(without_records(report), 1);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n \"records\": [";
  for (size_t i = 0; i < report.records.size(); ++i) {
    text += i == 0 ? "\n  " : ",\n  ";
    text += dump(to_json(report.records[i]));
  }
  text += report.records.empty() ? "]\n}\n" : "\n ]\n}\n";
  return text;
}

void collect_leaves(const nlohmann::ordered_json& json, const std::string& path,
                    std::vector<std::pair<std::string, std::string>>& leaves) {
  if (json.is_null()) return;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect_leaves(value, path.empty() ? key : path + "." + key, leaves);
  } else {
    constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
    leaves.emplace_back(path, json.is_string() ? json.get<std::string>() : json.dump(-1, ' ', false, kReplace));
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
  }
  return json;
}

Json to_json(const Report& report) {
  Json json = without_records(report);
  json["records"] = Json::array();
  for (const Record& record : report.records) json["records"].push_back(to_json(record));
  return json;
}

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Record record_from_json(const Json& json, std::string_view where) { return read_record(JsonReader(json, where)); }

Report report_from_json(const Json& json, std::string_view where) {
  const JsonReader reader(json, where);
  reader.expect_object();
  Report report;
  // The schema first: of another major nothing else can be trusted.
  report.schema = schema_of(reader, where);
  report.minor = reader.integer("minor", 0);
  if (const auto environment = reader.optional("environment")) {
    environment->expect_object();
    report.environment = environment->value();
  }
  if (const auto run = reader.optional("run")) report.run = read_run(*run);
  reader.required("records").each([&](const JsonReader& one) { report.records.push_back(read_record(one)); });
  return report;
}

Report Report::load(const std::filesystem::path& path) { return parse(read_file(path), path.string()); }

Report Report::parse(std::string_view text, std::string_view where) {
  std::vector<Record> records;
  const Taker taker{"records", [&](const Json& before, const Json& element, size_t index) {
                      if (!before.contains("schema")) return false;
                      const JsonReader report(before, where);
                      schema_of(report, where);
                      records.push_back(read_record(report.required("records").element(element, index)));
                      return true;
                    }};
  Report report = report_from_json(parse_json(text, where, taker), where);
  // A list is taken as a whole or not at all.
  if (!records.empty()) report.records = std::move(records);
  return report;
}

void Report::save(const std::filesystem::path& path) const { write_file(path, file_text(*this)); }

std::vector<std::pair<std::string, std::string>> leaves_of(const nlohmann::ordered_json& environment) {
  std::vector<std::pair<std::string, std::string>> leaves;
  collect_leaves(environment, "", leaves);
  return leaves;
}

}  // namespace halfmark::reports
