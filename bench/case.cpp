// Cases and their ids, and how a command line becomes a plan.
#include "bench/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "bench/performance.h"
#include "bench/suites.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find(separator, begin)) != text.npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (!policy.hidden) names.emplace_back(policy.name);
  return names;
}

std::vector<std::string> harness_names() {
  std::vector<std::string> names;
  for (const Harness& harness : all_harnesses()) names.emplace_back(harness.name);
  return names;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceRow& row : known_devices()) names.push_back(row.name);
  return names;
}

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

std::string hint(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string> near = nearest(word, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

// The names of `known` that one of the patterns matches, in the order of `known`. Throws for a pattern that matches
// none.
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

std::vector<const Subject*> subjects_of(std::string_view pattern) {
  std::vector<const Subject*> found;
  const bool every_size = pattern == "*" || pattern.find('/') != pattern.npos;
  for (const Subject& subject : subjects()) {
    if (every_size ? glob_matches(pattern, subject.id()) : subject.name == pattern) found.push_back(&subject);
    if (!every_size && !found.empty()) break;
  }
  HM_CHECK(!found.empty(), "a suite names the subject '" + std::string(pattern) + "', which the zoo does not have");
  return found;
}

Axes axes_of(std::string_view variant) {
  Axes axes;
  for (const std::string& part : split(variant, ' ')) {
    const size_t equals = part.find('=');
    if (equals != part.npos) axes[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return axes;
}

// Axes at their first value are not part of an id: one case has one id.
void drop_defaults(Case& one) {
  for (const Axis& axis : one.harness->axes) {
    const auto named = one.axes.find(std::string(axis.name));
    if (named != one.axes.end() && named->second == axis.values.front()) one.axes.erase(named);
  }
}

void check_axes(const Case& one, const std::string& id) {
  for (const auto& [key, value] : one.axes) {
    const auto axis = std::find_if(one.harness->axes.begin(), one.harness->axes.end(),
                                   [&, name = std::string_view(key)](const Axis& a) { return a.name == name; });
    HM_CHECK(axis != one.harness->axes.end(),
             fmt::format("case {}: harness {} has no axis '{}'", id, one.harness->name, key));
    HM_CHECK(
        std::find(axis->values.begin(), axis->values.end(), value) != axis->values.end(),
        fmt::format("case {}: axis {} has no value '{}' (it has {})", id, key, value, fmt::join(axis->values, ", ")));
  }
}

// Every case that the suite's rows give for these devices, one subject after another.
std::vector<Case> expand(const Selection& selection, const std::vector<std::string>& devices) {
  const std::vector<std::string> only_policies = chosen_names("policy", selection.policies, policy_names());
  const std::vector<std::string> only_harnesses = chosen_names("harness", selection.harnesses, harness_names());
  std::vector<SuiteRow> rows;
  for (SuiteRow row : rows_of(selection.suite)) {
    if (!only_harnesses.empty())
      std::erase_if(row.harnesses, [&](std::string_view name) {
        return std::find(only_harnesses.begin(), only_harnesses.end(), name) == only_harnesses.end();
      });
    rows.push_back(std::move(row));
  }
  // A harness asked for by name that the suite lacks meets the suite's main subjects.
  for (const std::string& name : only_harnesses)
    if (std::none_of(rows.begin(), rows.end(), [&](const SuiteRow& row) {
          return std::find(row.harnesses.begin(), row.harnesses.end(), name) != row.harnesses.end();
        }))
      rows.push_back({rows.front().subjects, rows.front().policies, {name}, {""}});

  std::vector<Case> cases;
  std::set<std::string> seen;
  for (const SuiteRow& row : rows) {
    const bool control = row.variants.front().starts_with("control=");
    for (const std::string_view pattern : row.subjects)
      for (const Subject* subject : subjects_of(pattern))
        for (const std::string& device : devices)
          for (const Policy& policy : policies()) {
            if (policy.hidden) continue;
            const std::string name(policy.name);
            const auto wanted = [&](const auto& list) {
              return std::any_of(list.begin(), list.end(), [&](const auto& glob) { return glob_matches(glob, name); });
            };
            // A control speaks of its own policies only; elsewhere --policy widens the suite.
            const bool in_row = wanted(row.policies);
            if (only_policies.empty() || control ? !in_row : false) continue;
            if (!only_policies.empty() && !wanted(only_policies)) continue;
            for (const std::string_view harness : row.harnesses)
              for (const std::string_view variant : row.variants) {
                Case one{subject, device, &policy, &harness_named(harness), axes_of(variant)};
                drop_defaults(one);
                check_axes(one, one.id());
                if (seen.insert(one.id()).second) cases.push_back(std::move(one));
              }
          }
  }
  const auto order = [](const Case& one) {
    return std::pair(one.subject - subjects().data(), one.policy - policies().data());
  };
  std::stable_sort(cases.begin(), cases.end(), [&](const Case& a, const Case& b) { return order(a) < order(b); });
  return cases;
}

// The places of the id at which the word matches; a word with slashes matches that many neighbouring segments.
std::set<size_t> places(const std::string& word, const std::vector<std::string>& segments) {
  constexpr size_t kAxes = 5;  // subject, sizes, device, policy, harness come first; all axes count as one place
  const std::vector<std::string> parts = split(word, '/');
  std::set<size_t> found;
  for (size_t begin = 0; begin + parts.size() <= segments.size(); ++begin) {
    bool all = true;
    for (size_t i = 0; all && i < parts.size(); ++i) all = glob_matches(parts[i], segments[begin + i]);
    if (all) found.insert(std::min(begin, kAxes));
  }
  return found;
}

// The parts of the id, and the axes that it leaves out because they have their first value.
std::vector<std::string> words_of(const Case& one) {
  std::vector<std::string> words = one.segments();
  for (const Axis& axis : one.harness->axes)
    if (!one.axes.contains(std::string(axis.name)))
      words.push_back(fmt::format("{}={}", axis.name, axis.values.front()));
  return words;
}

// Words about the same part of the id are alternatives, words about different parts must all hold: "mlp fp16 bf16
// error".
std::vector<Case> matching(std::vector<Case> cases, const std::vector<std::string>& words, const Selection& selection) {
  std::map<size_t, std::vector<std::string>> by_place;
  for (const std::string& word : words) {
    std::set<size_t> found;
    std::set<std::string> known;
    for (const Case& one : cases) {
      const std::vector<std::string> segments = words_of(one);
      found.merge(places(word, segments));
      known.insert(segments.begin(), segments.end());
    }
    if (found.empty()) {
      for (const Subject& subject : subjects()) known.insert({subject.name, subject.id()});
      for (const auto& names : {policy_names(), harness_names(), device_names()})
        known.insert(names.begin(), names.end());
      const bool elsewhere = known.contains(word);
      throw Error(elsewhere ? fmt::format("'{}' is in no case of suite {}; try --suite full{}", word, selection.suite,
                                          selection.suite == "full" ? " with another selection" : "")
                            : fmt::format("unknown word '{}'{} (halfmark list shows all names)", word,
                                          hint(word, {known.begin(), known.end()})));
    }
    by_place[*found.begin()].push_back(word);
  }
  std::erase_if(cases, [&](const Case& one) {
    const std::vector<std::string> segments = words_of(one);
    return !std::all_of(by_place.begin(), by_place.end(), [&](const auto& place) {
      return std::any_of(place.second.begin(), place.second.end(),
                         [&](const std::string& word) { return !places(word, segments).empty(); });
    });
  });
  if (cases.empty())
    throw Error(fmt::format("no case of suite {} matches {} together", selection.suite, fmt::join(words, " ")));
  return cases;
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

std::vector<std::string> Case::segments() const {
  std::vector<std::string> parts = {subject->name, subject->sizes, device, std::string(policy->name),
                                    std::string(harness->name)};
  for (const auto& [key, value] : axes) parts.push_back(key + "=" + value);
  return parts;
}

std::string Case::id() const { return fmt::format("{}", fmt::join(segments(), "/")); }

TrialSpec Case::trial(std::shared_ptr<Device> opened, uint64_t seed) const {
  TrialSpec spec;
  spec.subject = subject;
  spec.device = std::move(opened);
  spec.policy = policy;
  spec.axes = axes;
  spec.seed = seed;
  return spec;
}

const std::vector<Harness>& all_harnesses() {
  static const std::vector<Harness> list = [] {
    std::vector<Harness> all = accuracy_harnesses();
    all.push_back(throughput_harness());
    all.push_back(memory_harness());
    return all;
  }();
  return list;
}

const Harness& harness_named(std::string_view name) {
  for (const Harness& harness : all_harnesses())
    if (harness.name == name) return harness;
  throw Error(fmt::format("unknown harness '{}'{} (known: {})", name, hint(name, harness_names()),
                          fmt::join(harness_names(), ", ")));
}

std::vector<Case> plan(const Selection& selection) {
  std::vector<std::string> suite_names;
  for (const Suite& suite : suites()) suite_names.emplace_back(suite.name);
  if (rows_of(selection.suite).empty())
    throw Error(fmt::format("unknown suite '{}' (known: {})", selection.suite, fmt::join(suite_names, ", ")));
  // A device among the words is a choice of device: suites say nothing about devices.
  std::vector<std::string> devices = selection.devices, words;
  for (const std::string& word : selection.words) {
    const bool names_device = word.starts_with("cpu") || word.starts_with("sim:") || word.starts_with("cuda:");
    (names_device && word.find('/') == word.npos ? devices : words).push_back(word);
  }
  devices = devices.empty() ? std::vector<std::string>{best_device()} : chosen_names("device", devices, device_names());
  return matching(expand(selection, devices), words, selection);
}

Case case_of(const std::string& id) {
  const std::vector<std::string> parts = split(id, '/');
  if (parts.size() < 5)
    throw Error(fmt::format("case {}: an id is subject/sizes/device/policy/harness[/key=value...]", id));
  Case one;
  one.subject = &subject_named(parts[0] + "/" + parts[1]);
  one.device = chosen_names("device", {parts[2]}, device_names()).front();
  one.policy = &policy_named(parts[3]);
  one.harness = &harness_named(parts[4]);
  for (size_t i = 5; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    HM_CHECK(equals != std::string::npos, fmt::format("case {}: '{}' is no key=value", id, parts[i]));
    one.axes[parts[i].substr(0, equals)] = parts[i].substr(equals + 1);
  }
  drop_defaults(one);
  check_axes(one, id);
  return one;
}

}  // namespace halfmark
