// Verdicts on claims as a table, as Markdown and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// A line for each claim; with `options.all` also the rule, the numbers and the cases behind it.
std::string claims_text(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const TextOptions& options);
// `command`: what wrote it. The environment of the report says on which machine the numbers were measured.
std::string claims_markdown(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const Report& report,
                            const std::string& command);
nlohmann::ordered_json claims_json(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts,
                                   const Report& report);

}  // namespace halfmark::reports
