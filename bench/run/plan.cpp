// Expands the rows of a suite into cases, adds what is typed and the suite leaves out, and selects the cases that match the
// words.
#include "bench/run/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bench/run/default_device.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/program_name.h"
#include "bench/run/suites.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/families.h"
#include "reports/record/glob.h"

namespace halfmark::bench {

namespace {

// Whether the word is a family of subjects with sizes, as "conv2d/b8_c3_o16_s9_k3", not a pattern. Parts may follow.
bool is_sized(const std::string& word) {
  const std::vector<std::string> parts = split(word, '/');
  return parts.size() > 1 && has_sizes(parts[0]) && parts[1].find('*') == std::string::npos;
}

std::vector<const Subject*> subjects_of(std::string_view pattern) {
  std::vector<const Subject*> found;
  const bool every_size = pattern == "*" || pattern.find('/') != pattern.npos;
  for (const Subject& subject : subjects()) {
    if (every_size ? glob_matches(pattern, subject.id()) : subject.name == pattern) found.push_back(&subject);
    if (!every_size && !found.empty()) break;
  }
  if (found.empty() && is_sized(std::string(pattern))) found.push_back(&subject_named(std::string(pattern)));
  HM_CHECK(!found.empty(), "a suite names the subject '" + std::string(pattern) + "', which does not exist in the zoo");
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

// The glob for the subjects of a word that is exactly the name or the id of a subject; empty for any other word.
std::string exact_subject(const std::string& word) {
  for (const Subject& subject : subjects()) {
    if (subject.name == word) return word + "/*";
    if (subject.id() == word) return word;
  }
  return is_sized(word) ? word.substr(0, word.find('/', word.find('/') + 1)) : "";
}

// Sizes as a case's id has them: the order of the letters and those with their usual value may differ. Throws Error for
// sizes that cannot be.
std::string settled(const std::string& word) {
  if (!is_sized(word)) return word;
  const size_t rest = word.find('/', word.find('/') + 1);
  return subject_named(word.substr(0, rest)).id() + (rest == word.npos ? "" : word.substr(rest));
}

// A negative control runs with settings of its own and under its own policies only.
bool is_control(const SuiteRow& row) { return row.variants.front().starts_with("control="); }

// Whether a row that is not a control runs the harness on a subject that matches the pattern. "*" matches any.
bool covers(const std::vector<SuiteRow>& rows, std::string_view pattern, std::string_view harness) {
  for (const SuiteRow& row : rows) {
    if (is_control(row)) continue;
    if (harness != "*" && std::find(row.harnesses.begin(), row.harnesses.end(), harness) == row.harnesses.end())
      continue;
    for (const std::string_view of_row : row.subjects)
      for (const Subject* subject : subjects_of(of_row))
        if (glob_matches(pattern, subject->id())) return true;
  }
  return false;
}

// The first row of trainings that are no controls; null: the suite has none.
const SuiteRow* first_training(const std::vector<SuiteRow>& rows) {
  for (const SuiteRow& row : rows)
    if (!is_control(row) && row.harnesses == std::vector<std::string_view>{"training"}) return &row;
  return nullptr;
}

// The harnesses that are requested by name, as an option or as a word.
std::vector<std::string_view> requested_harnesses(const std::vector<std::string>& words,
                                                  const std::vector<std::string>& only) {
  std::vector<std::string_view> names(only.begin(), only.end());
  for (const Harness& harness : all_harnesses())
    if (std::find(words.begin(), words.end(), harness.name) != words.end()) names.push_back(harness.name);
  return names;
}

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

// A number of an axis as ids write it. Throws Error for a value that no harness takes of those that are requested, or of
// all.
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

// Every case of the suite's rows on these devices, one subject after another. Subjects and harnesses that are named
// exactly are included even if the suite does not have them.
std::vector<Case> expand(const Selection& selection, const std::vector<std::string>& devices,
                         const std::vector<std::string>& words) {
  for (const std::string& one : selection.policies) require_plain_policy(one);
  const std::vector<std::string> only_policies =
      chosen_names("policy", selection.policies, policy_names(), "halfmark list policies");
  const std::vector<std::string> only_harnesses =
      chosen_names("harness", selection.harnesses, harness_names(), "halfmark list harnesses");
  std::vector<SuiteRow> rows;
  for (SuiteRow row : rows_of(selection.suite)) {
    if (!only_harnesses.empty())
      std::erase_if(row.harnesses, [&](std::string_view name) {
        return std::find(only_harnesses.begin(), only_harnesses.end(), name) == only_harnesses.end();
      });
    rows.push_back(std::move(row));
  }
  std::vector<std::string> patterns;  // of exactly named subjects; the rows hold views of these strings
  for (const std::string& word : words)
    if (std::string pattern = exact_subject(word); !pattern.empty()) patterns.push_back(std::move(pattern));
  std::set<const Subject*> only_subjects;
  for (const std::string& id : selection.subjects) {
    patterns.push_back(id);
    only_subjects.insert(&subject_named(id));
  }
  const std::vector<std::string_view> named_subjects(patterns.begin(), patterns.end());
  const std::vector<std::string_view> requested = requested_harnesses(words, only_harnesses);

  // Adds rows for subjects and harnesses that are named exactly but are not in the suite. Each named subject is
  // combined with each requested harness. If only one of the two is named, the suite's first row supplies the other.
  // It always supplies the policies. An experiment that is named alone runs as the suite of experiments has it.
  const SuiteRow first = rows_of(selection.suite).front();
  const std::vector<std::string_view> any = {"*"};
  std::vector<SuiteRow> more;
  for (const std::string_view pattern : named_subjects.empty() ? any : named_subjects)
    for (const std::string_view harness : requested.empty() ? any : requested) {
      if (covers(rows, pattern, harness)) continue;
      if (named_subjects.empty() && add_experiment(harness, more)) continue;
      more.push_back({named_subjects.empty() ? first.subjects : std::vector{pattern}, first.policies,
                      requested.empty() ? first.harnesses : std::vector{harness}});
      // A classifier is trained as well, as the suite trains its own.
      if (named_subjects.empty() || !requested.empty() || !subjects_of(pattern).front()->has_labels()) continue;
      if (const SuiteRow* trained = first_training(rows))
        more.push_back({{pattern}, trained->policies, trained->harnesses, trained->variants});
    }
  rows.insert(rows.end(), more.begin(), more.end());

  // A policy that no row has, named exactly among the words, is added to all rows but controls.
  std::vector<std::string> typed_policies = policy_names();
  std::erase_if(typed_policies, [&](const std::string& name) {
    return std::find(words.begin(), words.end(), name) == words.end() ||
           std::ranges::any_of(rows, [&](const SuiteRow& row) {
             return !is_control(row) &&
                    std::ranges::any_of(row.policies, [&](std::string_view glob) { return glob_matches(glob, name); });
           });
  });

  std::vector<Case> cases;
  std::set<std::string> seen;
  for (const SuiteRow& row : rows) {
    for (const std::string_view pattern : row.subjects)
      for (const Subject* subject : subjects_of(pattern)) {
        if (!only_subjects.empty() && !only_subjects.contains(subject)) continue;
        for (const std::string& device : devices)
          for (const Policy& policy : policies()) {
            const std::string name(policy.name);
            const auto wanted = [&](const auto& list) {
              return std::any_of(list.begin(), list.end(), [&](const auto& glob) { return glob_matches(glob, name); });
            };
            // --policy extends the suite, except for controls.
            const bool in_row = wanted(row.policies) || (!is_control(row) && wanted(typed_policies));
            if (only_policies.empty() || is_control(row) ? !in_row : false) continue;
            if (!only_policies.empty() && !wanted(only_policies)) continue;
            for (const std::string_view harness : row.harnesses)
              for (const std::string_view variant : row.variants) {
                Case one{subject, device, &policy, &harness_named(harness), axes_of(variant)};
                one.settle_axes();
                if (seen.insert(one.id()).second) cases.push_back(std::move(one));
              }
          }
      }
  }
  return in_running_order(std::move(cases));
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
  if (slash == word.npos) return hint(word, names);
  std::erase_if(names, [](const std::string& name) { return name.find('/') == name.npos; });
  if (std::string of_ids = hint(word, names); !of_ids.empty()) return of_ids;
  names.clear();
  for (const Family& family : families()) names.emplace_back(family.name);
  std::vector<std::string> near = nearest_names(word.substr(0, slash), names);
  for (std::string& family : near) family += word.substr(slash);
  if (near.empty()) return "; a model of your own is read with --model FILE";
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

// Words that match the same part of the id are alternatives; all parts that words refer to must match:
// "mlp fp16 bf16 error". Each axis is a part of its own, of the harnesses that have it.
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

// Typed values of axes that no case of the other words has: these cases run with them too, as a subject runs that the suite
// leaves out. All other axes have their default.
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
  return in_running_order(std::move(cases));
}

}  // namespace

std::vector<Case> in_running_order(std::vector<Case> cases) {
  const auto order = [](const Case& one) {
    return std::tuple(place_of(*one.subject), models::place_of(*one.policy), one.policy->name);
  };
  std::stable_sort(cases.begin(), cases.end(), [&](const Case& a, const Case& b) { return order(a) < order(b); });
  return cases;
}

std::vector<Case> plan(const Selection& selection) {
  std::vector<std::string> suite_names;
  for (const Suite& suite : suites()) suite_names.emplace_back(suite.name);
  if (rows_of(selection.suite).empty()) throw_unknown_name("suite", selection.suite, suite_names);
  // A device among the words is a choice of device: suites say nothing about devices.
  std::vector<std::string> devices = selection.devices, words;
  for (const std::string& word : selection.words) {
    const bool names_device = word.starts_with("cpu") || word.starts_with("sim:") || word.starts_with("cuda:");
    (names_device && word.find('/') == word.npos ? devices : words).push_back(settled(word));
  }
  devices =
      devices.empty() ? std::vector<std::string>{default_device()} : chosen_names("device", devices, device_names());
  const std::vector<std::string> only_harnesses =
      chosen_names("harness", selection.harnesses, harness_names(), "halfmark list harnesses");
  const std::vector<std::string_view> requested = requested_harnesses(words, only_harnesses);
  for (std::string& word : words) word = settled_setting(word, requested);
  std::vector<Case> cases = matching(with_typed_axes(expand(selection, devices, words), words, selection, requested),
                                     words, selection, requested);
  return selection.change.is_empty() ? cases : under_change(cases, selection.change);
}

}  // namespace halfmark::bench
