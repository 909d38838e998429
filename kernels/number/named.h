// Looks up a table row by its name; an unknown name is an Error that lists the known ones.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::kernels {

// The most similar names (by edit distance, or one contains the other), best first, at most three.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known);

// "; did you mean mlp or tf32?", or empty if no name is similar.
std::string hint(std::string_view name, const std::vector<std::string>& known);

// Throws Error: "unknown format 'fp17'; did you mean fp16? known: fp64, fp32, fp16". Of a long list the first names, and the
// command that shows all of them.
[[noreturn]] void throw_unknown_name(std::string_view what, std::string_view name,
                                     const std::vector<std::string>& known, std::string_view shown_by = {});

// The row of that name. `name_of` is a member or a function of a row. A row for which `listed` is false is found, but
// not listed as known.
template <class Rows, class NameOf, class Listed>
const auto& named(std::string_view what, const Rows& rows, std::string_view name, const NameOf& name_of,
                  const Listed& listed) {
  for (const auto& row : rows)
    if (std::invoke(name_of, row) == name) return row;
  std::vector<std::string> known;
  for (const auto& row : rows)
    if (std::invoke(listed, row)) known.emplace_back(std::invoke(name_of, row));
  throw_unknown_name(what, name, known);
}

template <class Rows, class NameOf>
const auto& named(std::string_view what, const Rows& rows, std::string_view name, const NameOf& name_of) {
  return named(what, rows, name, name_of, [](const auto&) { return true; });
}

template <class Rows>
const auto& named(std::string_view what, const Rows& rows, std::string_view name) {
  return named(what, rows, name, [](const auto& row) -> decltype(auto) { return (row.name); });
}

}  // namespace halfmark::kernels
