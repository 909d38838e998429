#include "bench/run/name_match.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/namespaces.h"
#include "kernels/number/named.h"
#include "reports/record/glob.h"

namespace halfmark::bench {

std::vector<std::string> chosen_names(std::string_view what, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& known, std::string_view shown_by) {
  std::vector<std::string> result;
  for (const std::string& pattern : patterns)
    if (std::none_of(known.begin(), known.end(), [&](const std::string& name) { return glob_matches(pattern, name); }))
      throw_unknown_name(what, pattern, known, shown_by);
  for (const std::string& name : known)
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return glob_matches(pattern, name); }))
      result.push_back(name);
  return result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find(separator, begin)) != text.npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

}  // namespace halfmark::bench
