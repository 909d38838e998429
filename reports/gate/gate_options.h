// What a call of the gate asks for, besides its rules.
#pragma once

#include <string>

#include "reports/gate/acknowledgement.h"

namespace halfmark::reports {

struct GateOptions {
  bool strict_bits = false;       // a change that nobody acknowledged is a breach
  bool same_environment = false;  // another environment makes the verdict ENV_SUSPECT
  bool time = false;              // times are judged where they can be
  Acknowledgements acknowledgements{};
  std::string today = "0000-01-01";  // entries that expired before this day do not count
};

}  // namespace halfmark::reports
