// Command lines that a person copies from a report into a shell.
#pragma once

#include <string>
#include <string_view>

namespace halfmark::reports {

// The text as one word of a POSIX shell: as it is when no character of it means anything there, else in quotes.
std::string shell_word(std::string_view text);

}  // namespace halfmark::reports
