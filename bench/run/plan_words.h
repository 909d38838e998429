// What the words of a command line select: cases whose ids they match, and values of axes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/run/case.h"
#include "bench/run/selection.h"

namespace halfmark::bench {

// A number of an axis as ids write it. Throws Error for a value that no harness takes of those that are requested, or of
// all.
std::string settled_setting(const std::string& word, const std::vector<std::string_view>& requested);

// Words that match the same part of the id are alternatives; all parts that words refer to must match:
// "mlp fp16 bf16 error". Each axis is a part of its own, of the harnesses that have it. Throws Error for a word that
// matches no case, and if no case matches all.
std::vector<Case> matching(std::vector<Case> cases, const std::vector<std::string>& words, const Selection& selection,
                           const std::vector<std::string_view>& requested);

// Adds the typed values of axes that no case of the other words has: these cases run with them too, as a subject runs that
// the suite leaves out. All other axes have their default.
std::vector<Case> with_typed_axes(std::vector<Case> cases, const std::vector<std::string>& words,
                                  const Selection& selection, const std::vector<std::string_view>& requested);

}  // namespace halfmark::bench
