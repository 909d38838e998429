// Names with holes: "gradient/*", "*fp16".
#pragma once

#include <string_view>

namespace halfmark::reports {

// `*` stands for any characters, everything else for itself.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace halfmark::reports
