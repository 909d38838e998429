// A judgement for the terminal: the verdict first, then what failed in words, then what changed in a table.
#pragma once

#include <string>

#include "reports/judgement.h"
#include "reports/table.h"

namespace halfmark {

// With options.all every line, passed ones too; else the first of each kind and how many there are more.
std::string text_of(const Judgement& judgement, const TextOptions& options);

}  // namespace halfmark
