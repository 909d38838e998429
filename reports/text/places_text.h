// Tables of experiments with a row for each place: a form of evaluation, a layer, a way to add.
#pragma once

#include <string>
#include <string_view>

#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// The numbers of the experiments whose worst number over all places says nothing, so that the tables of the subjects do not
// have them. Numbers at the same places share a table; with options.all every place.
std::string places_text(const Report& report, const TextOptions& options);

bool is_shown_by_place(std::string_view harness);

}  // namespace halfmark::reports
