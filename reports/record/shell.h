// Quotes command lines that users copy from a report into a shell.
#pragma once

#include <string>
#include <string_view>

namespace halfmark::reports {

// The text as one word of a POSIX shell: unchanged if it has no special characters, else quoted.
std::string shell_word(std::string_view text);

// The same for a path, made absolute: the command is run from any folder.
std::string shell_path(const std::string& path);

}  // namespace halfmark::reports
