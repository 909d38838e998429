// A finding of the linter as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "reports/record/json_reader.h"
#include "reports/record/measurement.h"

namespace halfmark::reports {

nlohmann::ordered_json to_json(const LintFinding& finding);
LintFinding read_lint(const JsonReader& json);

}  // namespace halfmark::reports
