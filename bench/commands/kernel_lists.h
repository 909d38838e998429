// The lists of kernels, of the rows of the simulated tensor cores and of quantisers, as JSON and as text.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "reports/record/json_parser.h"
#include "reports/text/table.h"

namespace halfmark::bench {

nlohmann::ordered_json kernels_json();
nlohmann::ordered_json instructions_json();
nlohmann::ordered_json quantizers_json();

// `list`: what the function of the same name makes.
std::string kernels_text(const nlohmann::ordered_json& list, const TextOptions& options);
std::string instructions_text(const nlohmann::ordered_json& list, const TextOptions& options);
std::string quantizers_text(const nlohmann::ordered_json& list, const TextOptions& options);

}  // namespace halfmark::bench
