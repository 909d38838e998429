// Matches a user's patterns against lists of known names, and suggests similar names for an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// The names of `known` that one of the patterns matches, in the order of `known`. Throws Error for a pattern that
// matches none, calling it a `what`; `shown_by` is the command that shows them all.
std::vector<std::string> chosen_names(std::string_view what, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& known, std::string_view shown_by = {});

// "a/b" split at '/' is {"a", "b"}; there is always one more part than separators.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace halfmark::bench
