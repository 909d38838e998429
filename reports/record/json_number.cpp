#include "reports/record/json_number.h"

#include <cmath>

namespace halfmark::reports {

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace halfmark::reports
