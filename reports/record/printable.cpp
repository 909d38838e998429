#include "reports/record/printable.h"

#include <algorithm>

namespace halfmark::reports {

std::string printable(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, '?');
  return clean;
}

}  // namespace halfmark::reports
