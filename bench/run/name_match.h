// Matches a user's patterns against lists of known names, and suggests similar names for an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// The most similar names by edit distance, best first, at most three.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names);

// "; did you mean mlp or tf32?", or empty if no name is similar.
std::string hint(std::string_view word, const std::vector<std::string>& names);

// The names in `known` that match at least one pattern, in the order of `known`. Throws Error for a pattern that
// matches none; `what` says in the message what kind of name it is.
std::vector<std::string> chosen_names(std::string_view what, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& known);

// "a/b" split at '/' is {"a", "b"}; there is always one more part than separators.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace halfmark::bench
