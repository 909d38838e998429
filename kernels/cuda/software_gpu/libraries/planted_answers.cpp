#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

#include <algorithm>
#include <cstdlib>

namespace halfmark::kernels::software_gpu {

bool planted(std::string_view word) {
  const char* text = std::getenv("HALFMARK_SOFTWARE_LIBRARIES");
  if (!text) return false;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    if (rest.substr(0, end) == word) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

}  // namespace halfmark::kernels::software_gpu
