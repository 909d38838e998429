#include "bench/run/plan_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/program_name.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/families.h"
#include "reports/record/glob.h"

namespace halfmark::bench {

namespace {

// A word that sets an axis of a harness to one value, "steps=10", as key and value; nothing for any other word.
std::optional<std::pair<std::string, std::string>> axis_word(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == word.npos || word.find_first_of("*/") != word.npos) return {};
  std::pair<std::string, std::string> setting(word.substr(0, equals), word.substr(equals + 1));
  for (const Harness& harness : all_harnesses())
    for (const Axis& axis : harness.axes)
      if (axis.name == setting.first) return setting;
  return {};
}

const Axis* axis_of(const Harness& harness, std::string_view name) {
  const auto found =
      std::find_if(harness.axes.begin(), harness.axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == harness.axes.end() ? nullptr : &*found;
}

// The positions in the id at which the word matches; a word with slashes matches as many adjacent segments.
std::set<size_t> places(const std::string& word, const std::vector<std::string>& segments) {
  constexpr size_t kAxes = 5;  // subject, sizes, device, policy, harness come first; all axes count as one position
  const std::vector<std::string> parts = split(word, '/');
  std::set<size_t> found;
  for (size_t begin = 0; begin + parts.size() <= segments.size(); ++begin) {
    bool all = true;
    for (size_t i = 0; all && i < parts.size(); ++i) all = glob_matches(parts[i], segments[begin + i]);
    if (all) found.insert(std::min(begin, kAxes));
  }
  return found;
}

// The segments of the id, and the axes that it omits because they have their default value.
std::vector<std::string> words_of(const Case& one) {
  std::vector<std::string> words = one.segments();
  for (const Axis& axis : one.harness->axes)
    if (!one.axes.contains(std::string(axis.name)))
      words.push_back(fmt::format("{}={}", axis.name, axis.values.front()));
  return words;
}

// Names like the word. A word with a slash is an id: those like it, else families like its first part.
std::string hint_for(const std::string& word, const std::set<std::string>& known) {
  const size_t slash = word.find('/');
  std::vector<std::string> names(known.begin(), known.end());
  if (word.find('=') == word.npos)
    std::erase_if(names, [](const std::string& name) { return name.find('=') != name.npos; });
  if (slash == word.npos) return hint(word, names);
  std::erase_if(names, [](const std::string& name) { return name.find('/') == name.npos; });
  if (std::string of_ids = hint(word, names); !of_ids.empty()) return of_ids;
  names.clear();
  for (const Family& family : families()) names.emplace_back(family.name);
  std::vector<std::string> near = nearest_names(word.substr(0, slash), names);
  for (std::string& family : near) family += word.substr(slash);
  if (near.empty()) return "; a model of your own is read with --model FILE";
  if (near.front() == word) return "; the parts of an id are words of their own: mlp fp16 error";
  return fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

// For a word that matches no case. `known`: the segments of all cases of the selection.
[[noreturn]] void throw_not_found(const std::string& word, const Selection& selection, std::set<std::string> known) {
  for (const Subject& subject : subjects()) known.insert({subject.name, subject.id()});
  const std::vector<std::string> policies = policy_names();
  std::set<std::string> names;  // of what else a word may be
  for (const auto& more : {policies, harness_names(), device_names()}) names.insert(more.begin(), more.end());
  known.insert(names.begin(), names.end());
  for (const Harness& harness : all_harnesses())
    for (const Axis& axis : harness.axes)
      for (const std::string_view value : axis.values) known.insert(fmt::format("{}={}", axis.name, value));
  require_plain_policy(word);
  if (!selection.subjects.empty()) {
    std::vector<std::string> near(names.begin(), names.end());
    near.insert(near.end(), selection.subjects.begin(), selection.subjects.end());
    for (const std::string& id : selection.subjects) near.push_back(id.substr(0, id.find('/')));
    throw Error(fmt::format("no case of the listed subjects contains '{}'{}; {} restricts the subjects to its {}", word,
                            hint(word, near), selection.subjects_option,
                            selection.subjects_option == "--model" ? "models" : "list"));
  }
  if (std::none_of(known.begin(), known.end(), [&](const std::string& name) { return glob_matches(word, name); }))
    throw Error(
        fmt::format("unknown word '{}'{} ({} list shows all names)", word, hint_for(word, known), program_name()));
  const bool is_policy = std::find(policies.begin(), policies.end(), word) != policies.end();
  throw Error(fmt::format("no case of suite {} contains '{}'; try {}", selection.suite, word,
                          is_policy                   ? "--policy " + word
                          : selection.suite == "full" ? "another selection, or --case ID"
                                                      : "--suite full, or --case ID"));
}

// Whether a word that sets an axis says nothing about a harness: it does not have the axis, and was requested by name.
bool is_without(const Harness& harness, const std::string& key, const std::vector<std::string_view>& requested) {
  return !axis_of(harness, key) && std::find(requested.begin(), requested.end(), harness.name) != requested.end();
}

// The words that set axes.
std::vector<std::string> axis_words_of(std::vector<std::string> words) {
  std::erase_if(words, [](const std::string& word) { return !axis_word(word); });
  return words;
}

// Whether the case runs with these values of its axes.
bool runs_with(const Case& one, const Axes& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& setting) {
    const auto& [key, value] = setting;
    const Axis* axis = axis_of(*one.harness, key);
    const auto own = one.axes.find(key);
    return axis && value == (own == one.axes.end() ? axis->values.front() : own->second);
  });
}

// The axes of a combination that concern a harness.
Axes of_harness(const Axes& axes, const Harness& harness, const std::vector<std::string_view>& requested) {
  Axes own;
  for (const auto& [key, value] : axes)
    if (!is_without(harness, key, requested)) own[key] = value;
  return own;
}

}  // namespace

std::string settled_setting(const std::string& word, const std::vector<std::string_view>& requested) {
  const auto setting = axis_word(word);
  if (!setting) return word;
  const auto& [key, text] = *setting;
  std::string having, values;
  for (const Harness& harness : all_harnesses()) {
    const Axis* axis = axis_of(harness, key);
    if (!axis) continue;
    having += (having.empty() ? "" : ", ") + std::string(harness.name);
    if (!requested.empty() && std::find(requested.begin(), requested.end(), harness.name) == requested.end()) continue;
    if (const auto value = settled_value(*axis, text)) return key + "=" + *value;
    values += fmt::format("{}{} of {} can be {}", values.empty() ? "" : "; ", key, harness.name, values_text(*axis));
  }
  throw Error(values.empty()
                  ? fmt::format("'{}': no selected harness has the axis {}, it is one of {}", word, key, having)
                  : fmt::format("'{}': {}", word, values));
}

std::vector<Case> matching(std::vector<Case> cases, const std::vector<std::string>& words, const Selection& selection,
                           const std::vector<std::string_view>& requested) {
  // By the position, and by the key of an axis.
  std::map<std::pair<size_t, std::string>, std::vector<std::string>> by_place;
  for (const std::string& word : words) {
    std::set<size_t> found;
    std::set<std::string> known;
    for (const Case& one : cases) {
      const std::vector<std::string> segments = words_of(one);
      found.merge(places(word, segments));
      known.insert(segments.begin(), segments.end());
    }
    if (found.empty()) {
      throw_not_found(word, selection, std::move(known));
    }
    const auto setting = axis_word(word);
    by_place[{*found.begin(), setting ? setting->first : ""}].push_back(word);
  }
  // Harnesses named exactly that have cases but for the values of axes.
  std::set<std::string> before;
  for (const Case& one : cases) {
    const std::vector<std::string> segments = words_of(one);
    const bool is_named = std::find(words.begin(), words.end(), one.harness->name) != words.end();
    if (is_named && std::all_of(by_place.begin(), by_place.end(), [&](const auto& place) {
          return !place.first.second.empty() ||
                 std::any_of(place.second.begin(), place.second.end(),
                             [&](const auto& word) { return !places(word, segments).empty(); });
        }))
      before.insert(std::string(one.harness->name));
  }
  std::erase_if(cases, [&](const Case& one) {
    const std::vector<std::string> segments = words_of(one);
    return !std::all_of(by_place.begin(), by_place.end(), [&](const auto& place) {
      const std::string& key = place.first.second;
      if (!key.empty() && is_without(*one.harness, key, requested)) return true;
      return std::any_of(place.second.begin(), place.second.end(),
                         [&](const std::string& word) { return !places(word, segments).empty(); });
    });
  });
  if (cases.empty())
    throw Error(fmt::format("no case of suite {} matches all of: {}", selection.suite, fmt::join(words, " ")));
  // A value of an axis must not drop a harness that is named beside it.
  for (const std::string& name : before) {
    if (std::ranges::any_of(cases, [&](const Case& one) { return one.harness->name == name; })) continue;
    throw Error(fmt::format("no case of {} has {}, which other harnesses here have; run {} in another call", name,
                            fmt::join(axis_words_of(words), " "), name));
  }
  return cases;
}

std::vector<Case> with_typed_axes(std::vector<Case> cases, const std::vector<std::string>& words,
                                  const Selection& selection, const std::vector<std::string_view>& requested) {
  std::vector<std::string> others;
  std::map<std::string, std::vector<std::string>> typed;
  for (const std::string& word : words)
    if (const auto setting = axis_word(word))
      typed[setting->first].push_back(setting->second);
    else
      others.push_back(word);
  if (typed.empty()) return cases;
  std::vector<Axes> combinations = {{}};
  for (const auto& [key, values] : typed) {
    std::vector<Axes> longer;
    for (const Axes& axes : combinations)
      for (const std::string& value : values) (longer.emplace_back(axes))[key] = value;
    combinations = std::move(longer);
  }
  std::set<std::string> seen;
  for (const Case& one : cases) seen.insert(one.id());
  const std::vector<Case> selected = others.empty() ? cases : matching(cases, others, selection, requested);
  const auto takes_all = [](const Harness& harness, const Axes& axes) {
    return std::all_of(axes.begin(), axes.end(), [&](const auto& setting) {
      const Axis* axis = axis_of(harness, setting.first);
      return axis && settled_value(*axis, setting.second) == setting.second;
    });
  };
  for (const Axes& combination : combinations)
    for (const Case& one : selected) {
      const Axes axes = of_harness(combination, *one.harness, requested);
      if (axes.empty() || one.axes.contains("control") || !takes_all(*one.harness, axes)) continue;
      // Of a harness that was not requested, any other with these values will do.
      const bool any_harness = requested.empty();
      if (std::any_of(selected.begin(), selected.end(), [&](const Case& other) {
            return (any_harness || other.harness == one.harness) && runs_with(other, axes);
          }))
        continue;
      Case more{one.subject, one.device, one.policy, one.harness, axes};
      more.settle_axes();
      if (seen.insert(more.id()).second) cases.push_back(std::move(more));
    }
  return cases;
}

}  // namespace halfmark::bench
