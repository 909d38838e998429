// Parses JSON text to a tree. The elements of a long list can be processed one by one while the file is read: with the
// whole tree in memory, a report of 100 MB took three times the memory and 1.5 times the time.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "reports/record/error.h"

namespace halfmark::reports {

inline constexpr std::string_view kReportKind = "halfmark report";

// JSON text to a tree. `kind` names what the file should be. Throws ReportError with line and column.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view where, std::string_view kind = kReportKind);

// Called with each element of the outermost list `key` as soon as it is read, and with the file's tree before that
// list. Returns true if it has taken the element; others stay in the tree.
struct Taker {
  std::string_view key;
  std::function<bool(const nlohmann::ordered_json& before, const nlohmann::ordered_json& element, size_t index)> take;
};

// Throws ReportError with line and column, and what `taker` throws. `where` is the prefix of the message; `kind` says
// in it what the file should be.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view where, const Taker& taker,
                                  std::string_view kind = kReportKind);

}  // namespace halfmark::reports
