// The claims that the program can measure, as JSON and as text, for `halfmark list`.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "reports/record/json_parser.h"
#include "reports/text/table.h"

namespace halfmark::bench {

nlohmann::ordered_json claims_list_json();
// `list`: what claims_list_json() makes.
std::string claims_list_text(const nlohmann::ordered_json& list, const TextOptions& options);

}  // namespace halfmark::bench
