// JSON has no NaN and no infinity; here they are measurements, so they are written as strings.
#pragma once

#include <nlohmann/json.hpp>

namespace halfmark::reports {

nlohmann::ordered_json json_number(double value);

}  // namespace halfmark::reports
