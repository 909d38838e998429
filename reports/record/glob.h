// Glob patterns for names: "gradient/*", "*fp16".
#pragma once

#include <string_view>

namespace halfmark::reports {

// `*` matches any characters, every other character itself.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace halfmark::reports
