#include "reports/record/record.h"

#include <algorithm>
#include <iterator>

#include "reports/record/checksum.h"
#include "reports/record/json_number.h"
#include "reports/record/lint_json.h"

namespace halfmark::reports {

std::string_view name_of(Status status) { return kStatusNames[static_cast<size_t>(status)]; }
std::string_view name_of(Better better) { return kBetterNames[static_cast<size_t>(better)]; }
std::string_view name_of(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::string_view name_of(Determinism::Proof proof) { return kProofNames[static_cast<size_t>(proof)]; }

namespace {

using Json = nlohmann::ordered_json;

Json numbers(const std::vector<double>& values) {
  Json json = Json::array();
  for (double value : values) json.push_back(json_number(value));
  return json;
}

Json to_json(const KernelUse& use) {
  Json json = {{"op", use.operation}, {"phase", use.phase}, {"dtypes", use.dtypes},
               {"row", use.row},      {"speed", use.speed}, {"calls", use.calls}};
  if (!use.refusals.empty()) json["refusals"] = use.refusals;
  if (!use.choices.empty()) json["choices"] = use.choices;
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

}  // namespace

const Measurement* find(const Record& record, std::string_view metric, std::string_view at) {
  const auto found = std::find_if(record.measurements.begin(), record.measurements.end(),
                                  [&](const Measurement& one) { return one.metric == metric && one.at == at; });
  return found == record.measurements.end() ? nullptr : &*found;
}

namespace {

// Whether a number depends on how long something took. The peaks of the machine do not: they are measured by themselves.
bool is_of_times(const Measurement& one) {
  constexpr std::string_view kUnits[] = {"s", "1/s", "J", "W"},
                             kOthers[] = {"speedup.control", "roofline.share", "timing.half_width"};
  return one.kind == Kind::sampled || std::ranges::find(kUnits, one.unit) != std::end(kUnits) ||
         std::ranges::find(kOthers, one.metric) != std::end(kOthers);
}

}  // namespace

bool misleads(const Record& record, const Measurement& measurement) {
  return record.status == Status::suspect && is_of_times(measurement);
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
  json["checksum"] = checksum_of(json);
  if (!record.lint.empty()) {
    json["lint"] = Json::array();
    for (const LintFinding& finding : record.lint) json["lint"].push_back(to_json(finding));
  }
  return json;
}

}  // namespace halfmark::reports
