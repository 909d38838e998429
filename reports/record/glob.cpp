#include "reports/record/glob.h"

#include <cstddef>

namespace halfmark::reports {

bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace halfmark::reports
