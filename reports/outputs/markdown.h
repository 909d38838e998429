// A judgement as GitHub-flavoured Markdown: for a step summary or a comment on a pull request.
#pragma once

#include <cstddef>
#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// GitHub drops a step summary of more than 1 MiB completely.
inline constexpr size_t kMarkdownLimit = 900 * 1024;

// The verdict and at most 20 of the failed lines; the rest is folded. Never more than `limit` bytes: the last rows are
// left out and counted if necessary.
std::string markdown_of(const Judgement& judgement, size_t limit = kMarkdownLimit);

}  // namespace halfmark::reports
