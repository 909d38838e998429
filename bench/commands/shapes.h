// Reads a list of subjects from a file: CSV or JSON, for `halfmark run --shapes FILE`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// The ids of the subjects, each once, in the order of the file. CSV: a header "subject,b,c,..." and one row per subject;
// `subject` is a family or an id, the other columns are letters of sizes, an empty field means the usual value, lines
// that begin with # are comments. JSON: a list of ids and of objects {"subject": "conv2d", "b": 8, "k": "3x1"}.
// Throws Error "FILE:LINE: what is wrong" (JSON: "FILE: entry 3: ...").
std::vector<std::string> subjects_in_file(const std::string& file);

// The same for text in memory. `where` is the name in messages; JSON if the text begins with [.
std::vector<std::string> subjects_in(std::string_view text, const std::string& where);

}  // namespace halfmark::bench
