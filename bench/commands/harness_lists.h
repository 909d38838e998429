// The harnesses with their axes and metrics, as JSON and as text, for `halfmark list`.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "reports/record/json_parser.h"
#include "reports/text/table.h"

namespace halfmark::bench {

nlohmann::ordered_json harnesses_json();
// `list`: rows that harnesses_json() makes.
std::string harnesses_text(const nlohmann::ordered_json& list, const TextOptions& options);

}  // namespace halfmark::bench
