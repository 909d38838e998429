// A judgement for the terminal: the verdict first, then what failed in words, then what changed in a table.
#pragma once

#include <string>

#include "reports/gate/judgement.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// With options.all every line, passed ones too; else the first of each kind and how many there are more.
std::string text_of(const Judgement& judgement, const TextOptions& options);

}  // namespace halfmark::reports
