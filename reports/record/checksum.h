// Of a record as a file has it: shows that something was changed in it after it was written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace halfmark::reports {

// 16 hexadecimal digits, over all members but "checksum" and "lint" (a report has that as a section of its own), whatever their
// order and whether a whole number is written as 1 or 1.0. It detects mistakes, not a forger.
std::string checksum_of(const nlohmann::ordered_json& record);

}  // namespace halfmark::reports
