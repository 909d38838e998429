// A judgement as comma-separated values (RFC 4180): every line, nothing cut.
#pragma once

#include <string>

#include "reports/gate/judgement.h"

namespace halfmark::reports {

// A header, then a row a line, ending in CR LF. Numbers read back as the same doubles; a number that there is not is
// empty. Bytes that are no UTF-8 become U+FFFD.
std::string csv_of(const Judgement& judgement);

}  // namespace halfmark::reports
