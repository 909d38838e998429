// What tables say below themselves of the settings that their numbers come from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// The settings that all records of a harness have; over which axes best and worst are taken, with the settings of those
// numbers; and what means are of. `columns`: the figures that the table shows.
std::string settings_text(const Group& group, std::span<const Figure> columns, const std::vector<std::string>& policies,
                          const TextOptions& options);

}  // namespace halfmark::reports
