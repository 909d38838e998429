// The suites as tables: the combinations of subjects, policies and harnesses that they run.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace halfmark::bench {

struct Suite {
  std::string_view name, about;
};
const std::vector<Suite>& suites();  // the default is "quick"

struct SuiteRow {
  // "linear": the first size of that name; "linear/*": all its sizes; "*": everything.
  std::vector<std::string_view> subjects;
  std::vector<std::string_view> policies;         // globs
  std::vector<std::string_view> harnesses;        // names
  std::vector<std::string_view> variants = {""};  // axes as "key=value key=value"
};

std::span<const SuiteRow> rows_of(std::string_view suite);  // empty for an unknown suite

// Adds the rows that run this experiment on its own subjects and under its own policies; false for another harness.
bool add_experiment(std::string_view harness, std::vector<SuiteRow>& rows);

}  // namespace halfmark::bench
