#include "bench/run/name_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/number/error.h"
#include "reports/record/glob.h"

namespace halfmark::bench {

namespace {

size_t distance(std::string_view a, std::string_view b) {  // Levenshtein
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const bool part =
        word.size() >= 2 && (name.find(word) != name.npos || (name.size() >= 3 && word.find(name) != word.npos));
    const size_t far = part ? 1 : distance(word, name);
    if (far <= std::max<size_t>(1, std::min(word.size(), name.size()) / 2)) ranked.emplace_back(far, name);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (size_t i = 0; i < ranked.size() && i < 3; ++i) result.push_back(ranked[i].second);
  return result;
}

std::string hint(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string> near = nearest(word, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

std::vector<std::string> chosen_names(std::string_view what, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& known) {
  std::vector<std::string> result;
  for (const std::string& pattern : patterns)
    if (std::none_of(known.begin(), known.end(), [&](const std::string& name) { return glob_matches(pattern, name); }))
      throw Error(
          fmt::format("unknown {} '{}'{} (known: {})", what, pattern, hint(pattern, known), fmt::join(known, ", ")));
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
