// A judgement as JSON (schema/judgement-1.schema.json): everything in it, for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

nlohmann::ordered_json to_json(const Judgement& judgement);

// The text of the file: valid UTF-8, even if names are not.
std::string json_of(const Judgement& judgement);

}  // namespace halfmark::reports
