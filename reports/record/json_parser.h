// JSON text to a tree. What is long in a file can be taken away piece by piece while it is read: with the whole tree of
// a report of 100 MB in memory, reading it took three times the memory and half as long again.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "reports/record/error.h"

namespace halfmark::reports {

inline constexpr std::string_view kReportKind = "halfmark report";

// JSON text to a tree. `kind` names what the file should be. Throws ReportError with line and column.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view where, std::string_view kind = kReportKind);

// Is shown each element of the outermost list `key` as soon as it is read, with all of the file before that list, and
// says whether it has taken it; what it has not taken stays in the tree.
struct Taker {
  std::string_view key;
  std::function<bool(const nlohmann::ordered_json& before, const nlohmann::ordered_json& element, size_t index)> take;
};

// Throws ReportError with line and column, and what `taker` throws. `where` opens the message.
// A file that is none is said to be no `kind`.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view where, const Taker& taker,
                                  std::string_view kind = kReportKind);

}  // namespace halfmark::reports
