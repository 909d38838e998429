#include "kernels/number/named.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

// Letters put in, left out, replaced, or two neighbours exchanged (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({next[j] + 1, row[j + 1] + 1, row[j] + (a[i] != b[j])});
      const bool is_exchange = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (is_exchange) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    std::swap(before, row), std::swap(row, next);
  }
  return row.back();
}

std::string in_small_letters(std::string_view name) {
  std::string small(name);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

std::string joined(const std::vector<std::string>& names, std::string_view separator) {
  std::string text;
  for (const std::string& name : names) (text += text.empty() ? "" : separator) += name;
  return text;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view typed, const std::vector<std::string>& known) {
  const std::string name = in_small_letters(typed);
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& as_listed : known) {
    const std::string other = in_small_letters(as_listed);
    if (other == name && as_listed != typed) return {as_listed};  // only its capitals are wrong
    const bool part =
        name.size() >= 2 && (other.find(name) != other.npos || (other.size() >= 3 && name.find(other) != name.npos));
    const size_t far = part ? 1 : edit_distance(name, other);
    if (far <= std::max<size_t>(1, std::min(name.size(), other.size()) / 2)) ranked.emplace_back(far, as_listed);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (size_t i = 0; i < ranked.size() && i < 3; ++i) result.push_back(ranked[i].second);
  return result;
}

std::string hint(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> near = nearest_names(name, known);
  return near.empty() ? "" : "; did you mean " + joined(near, " or ") + "?";
}

void throw_unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                        std::string_view shown_by) {
  constexpr size_t kLongest = 200;  // of the list, in characters: three lines of a terminal
  std::vector<std::string> shown;
  size_t length = 0;
  for (const std::string& one : known)
    if ((length += one.size() + 2) <= kLongest || shown.empty())
      shown.push_back(one);
    else
      break;
  const std::string near = hint(name, known);
  std::string rest;
  if (shown.size() < known.size()) rest = " and " + std::to_string(known.size() - shown.size()) + " more";
  if (!rest.empty() && !shown_by.empty()) rest += ": " + std::string(shown_by);
  throw Error("unknown " + std::string(what) + " '" + std::string(name) + "'" + (near.empty() ? ";" : near) +
              " known: " + joined(shown, ", ") + rest);
}

}  // namespace halfmark::kernels
