// Checks the rows of an extension before they join the tables.
#include "bench/run/extension.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "bench/run/known_names.h"
#include "bench/run/program_name.h"
#include "bench/run/suites.h"
#include "bench/run/work.h"
#include "kernels/number/error.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

Extension& current() {
  static Extension extension;
  return extension;
}

// Part of an id or of a file name: no '/', '=', blank or '*'.
void check_name(std::string_view what, std::string_view name) {
  const bool allowed = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
  HM_CHECK(allowed, fmt::format("extension: {} '{}': a name consists of letters, digits, '_', '-' and '.'", what,
                                reports::printable(name)));
}

// The name of something that a word of the command line selects, or of a program.
void check_word(std::string_view what, std::string_view name) {
  check_name(what, name);
  constexpr std::pair<std::string_view, std::string_view> kReserved[] = {
      {"-", "is read as an option"},
      {".", "is read as a folder, or names a hidden file"},
      {"cpu", "is read as a device"},  // as in plan()
      {"halfmark", "is that of the suite itself"},
  };
  for (const auto& [start, why] : kReserved)
    HM_CHECK(
        !name.starts_with(start),
        fmt::format("extension: {} '{}': a name that starts with '{}' {}; choose another", what, name, start, why));
}

// Names that select something else on the command line; the sizes of subjects are words too, but may be shared by them.
std::set<std::string> words_in_use() {
  std::set<std::string> words;
  for (const auto& names : {policy_names(), harness_names(), device_names()}) words.insert(names.begin(), names.end());
  for (const Suite& suite : suites()) words.emplace(suite.name);
  return words;
}

void check_subjects(const std::vector<Subject>& added, const std::set<std::string>& words) {
  std::set<std::string> ids;
  for (const Subject& known : subjects()) ids.insert(known.id());
  std::set<std::string> names, sizes;
  for (const auto& rows : {subjects(), added})
    for (const Subject& subject : rows) names.insert(subject.name), sizes.insert(subject.sizes);
  for (const Subject& subject : added) {
    check_word("subject", subject.name);
    check_word("sizes of subject " + subject.name + ",", subject.sizes);
    HM_CHECK(ids.insert(subject.id()).second, fmt::format("extension: there is a subject {} already", subject.id()));
    HM_CHECK(
        !words.contains(subject.name),
        fmt::format("extension: subject {}: its name is that of a policy, harness, device or suite", subject.id()));
    HM_CHECK(!words.contains(subject.sizes) && !names.contains(subject.sizes),
             fmt::format("extension: subject {}: its sizes are the name of a subject, policy, harness, device or suite",
                         subject.id()));
    HM_CHECK(!sizes.contains(subject.name),
             fmt::format("extension: subject {}: its name is the sizes of a subject", subject.id()));
    HM_CHECK(subject.make, fmt::format("extension: subject {} has no function `make`", subject.id()));
    HM_CHECK(subject.input.rank() > 0 && subject.input.elements() > 0,
             fmt::format("extension: subject {} has the empty input shape {}", subject.id(), subject.input.text()));
  }
}

void check_harness(const Harness& harness, std::set<std::string>& metrics) {
  check_word("harness", harness.name);
  HM_CHECK(harness.measure, fmt::format("extension: harness {} has no function `measure`", harness.name));
  HM_CHECK(!harness.metrics.empty(), fmt::format("extension: harness {} lists no metrics", harness.name));
  for (const MetricRow& row : harness.metrics) {
    check_name(fmt::format("metric of harness {},", harness.name), row.metric);
    HM_CHECK(metrics.insert(std::string(row.metric)).second,
             fmt::format("extension: harness {}: there is a metric {} already", harness.name, row.metric));
  }
  std::set<std::string_view> axes;
  for (const Axis& axis : harness.axes) {
    HM_CHECK(axes.insert(axis.name).second,
             fmt::format("extension: harness {}: two axes are named {}", harness.name, axis.name));
    check_name(fmt::format("axis of harness {},", harness.name), axis.name);
    HM_CHECK(!axis.values.empty(),
             fmt::format("extension: harness {}: axis {} has no values", harness.name, axis.name));
    for (const std::string_view value : axis.values) check_name(fmt::format("value of axis {},", axis.name), value);
  }
}

void check_harnesses(const std::vector<Harness>& added, std::set<std::string> words) {  // `words`: names in use
  std::set<std::string> metrics;
  for (const MetricRow& row : work_table()) metrics.emplace(row.metric);
  for (const Harness& known : all_harnesses())
    for (const MetricRow& row : known.metrics) metrics.emplace(row.metric);
  for (const Harness& harness : added) {
    check_harness(harness, metrics);
    HM_CHECK(
        words.insert(std::string(harness.name)).second,
        fmt::format(
            "extension: harness {}: its name is that of a subject, its sizes, or a policy, harness, device or suite",
            harness.name));
  }
}

}  // namespace

void extend(Extension extension) {
  HM_CHECK(current().name.empty(), "extension: a program can be extended once");
  check_word("program", extension.name);
  HM_CHECK(reports::printable(extension.version) == extension.version,
           fmt::format("extension: version '{}': it must be one line without control characters",
                       reports::printable(extension.version)));
  std::set<std::string> words = words_in_use();
  check_subjects(extension.subjects, words);
  for (const auto& rows : {subjects(), extension.subjects})
    for (const Subject& subject : rows) words.insert({subject.name, subject.sizes});
  check_harnesses(extension.harnesses, words);
  add_subjects(extension.subjects);
  add_harnesses(extension.harnesses);
  set_program_name(extension.name);
  current() = std::move(extension);
}

const Extension& extension() { return current(); }

}  // namespace halfmark::bench
