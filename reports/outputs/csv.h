// Comma-separated values (RFC 4180): a judgement line by line, a report measurement by measurement. Nothing is cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// Each is a header, then one row per line, ending in CR LF. Numbers read back as the same doubles; a missing number is
// empty. Bytes that are not UTF-8 become U+FFFD.

// A row for each line of the judgement.
std::string csv_of(const Judgement& judgement);

// A row for each measurement. NaN and infinities are written as "NaN", "Infinity", "-Infinity"; a time of a suspect
// record has no value.
std::string measurements_csv_of(const Report& report);

// The parts of such a table.
std::string csv_field(std::string_view text);
std::string csv_number(double value);  // finite numbers, and the three names above
std::string csv_row(const std::vector<std::string>& fields);

}  // namespace halfmark::reports
