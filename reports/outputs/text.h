// A judgement for the terminal: the verdict, then the failures as text, then the changes as tables.
#pragma once

#include <string>

#include "reports/gate/judgement.h"
#include "reports/text/table.h"

namespace halfmark::reports {

// With options.all every line, also passed ones; else the first ones of each kind and the count of the rest.
std::string text_of(const Judgement& judgement, const TextOptions& options);

}  // namespace halfmark::reports
