#include "reports/record/record_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reports/record/checksum.h"
#include "reports/record/lint_json.h"
#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

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
  json.each("choices", [&](const JsonReader& choice) { use.choices.push_back(choice.text()); });
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

}  // namespace

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
  if (const std::string checksum = json.text("checksum"); !checksum.empty())
    record.intact = checksum == checksum_of(json.value()) ? Intact::yes : Intact::no;
  if (const auto determinism = json.optional("determinism")) record.determinism = read_determinism(*determinism);
  json.each("lint", [&](const JsonReader& finding) { record.lint.push_back(read_lint(finding)); });
  return record;
}

Record record_from_json(const nlohmann::ordered_json& json, std::string_view where) {
  return read_record(JsonReader(json, where));
}

}  // namespace halfmark::reports
