#include "reports/record/lint_json.h"

#include <string>

#include "reports/record/json_number.h"

namespace halfmark::reports {

nlohmann::ordered_json to_json(const LintFinding& finding) {
  nlohmann::ordered_json json = {{"rule", finding.rule}, {"evidence", nlohmann::ordered_json::object()}};
  for (const auto& [name, value] : finding.evidence) json["evidence"][name] = json_number(value);
  json["remedy"] = finding.remedy;
  if (!finding.reference.empty()) json["reference"] = finding.reference;
  return json;
}

LintFinding read_lint(const JsonReader& json) {
  json.expect_object();
  LintFinding finding;
  finding.rule = json.required("rule").text();
  json.required("evidence").expect_object();
  json.each_member("evidence", [&](const std::string& name, const JsonReader& value) {
    finding.evidence.push_back({name, value.number()});
  });
  finding.remedy = json.required("remedy").text();
  finding.reference = json.text("reference");
  return finding;
}

}  // namespace halfmark::reports
