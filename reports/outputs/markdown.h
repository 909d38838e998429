// A judgement as GitHub-flavoured Markdown: for a step summary or a comment on a pull request.
#pragma once

#include <cstddef>
#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// GitHub drops a step summary of more than 1 MiB whole.
inline constexpr size_t kMarkdownLimit = 900 * 1024;

// The verdict, at most 20 of the lines that failed, the rest folded. Never more than `limit` bytes: rows that find no
// room are left out, the last ones first, and counted.
std::string markdown_of(const Judgement& judgement, size_t limit = kMarkdownLimit);

}  // namespace halfmark::reports
