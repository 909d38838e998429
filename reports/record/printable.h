// Strings of files and command lines, made safe to print.
#pragma once

#include <string>
#include <string_view>

namespace halfmark::reports {

// Control characters become '?': a report of unknown origin must not drive the terminal.
std::string printable(std::string_view text);

}  // namespace halfmark::reports
