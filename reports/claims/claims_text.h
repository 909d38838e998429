// Verdicts on claims as a table, as Markdown and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// What a reader of the verdicts must know about their numbers: that the run was a quick one, that the report is partial.
std::vector<std::string> claims_remarks(const ClaimList& list, const Report& report);

// A line for each claim; with `options.all` also the rule, the numbers and the cases behind it. `remarks` are at the end.
std::string claims_text(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const TextOptions& options,
                        const std::vector<std::string>& remarks = {});
// `command`: what wrote it. The environment of the report says on which machine the numbers were measured.
// Both have the remarks on the report.
std::string claims_markdown(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts, const Report& report,
                            const std::string& command);
nlohmann::ordered_json claims_json(const ClaimList& list, const std::vector<ClaimVerdict>& verdicts,
                                   const Report& report);

}  // namespace halfmark::reports
