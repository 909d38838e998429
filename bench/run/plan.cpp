// Expands the rows of a suite into cases, and adds the subjects and harnesses that are typed and the suite leaves out.
#include "bench/run/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "bench/run/default_device.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/plan_words.h"
#include "bench/run/suites.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/families.h"
#include "models/network/network.h"
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

// Without batch norm fp16-bn32 does what fp16 does. A suite times and trains such a subject under fp16 only.
bool repeats_fp16(const Subject& subject, const Policy& policy, std::string_view harness) {
  constexpr std::array<std::string_view, 3> kTimedOrTrained = {"throughput", "training", "convergence"};
  if (policy.name != "fp16-bn32" || !subject.network) return false;
  if (std::ranges::find(kTimedOrTrained, harness) == kTimedOrTrained.end()) return false;
  return std::ranges::none_of(
      models::layer_facts(*subject.network, subject.input),
      [](const models::LayerFacts& layer) { return layer.layer->kind.starts_with("batchnorm"); });
}

// Every case of the suite's rows on these devices, one subject after another. Subjects and harnesses that are named
// exactly are included even if the suite does not have them. `requested`: of these harnesses and the words.
std::vector<Case> expand(const Selection& selection, const std::vector<std::string>& devices,
                         const std::vector<std::string>& words, const std::vector<std::string>& only_harnesses,
                         const std::vector<std::string_view>& requested) {
  for (const std::string& one : selection.policies) require_plain_policy(one);
  const std::vector<std::string> only_policies =
      chosen_names("policy", selection.policies, policy_names(), "halfmark list policies");
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

  // A policy named exactly among the words is added to all rows but controls, if no row has it of those that run the
  // requested harnesses on the named subjects.
  const auto is_asked_for = [&](const SuiteRow& row) {
    const auto is_requested = [&](std::string_view harness) {
      return std::ranges::find(requested, harness) != requested.end();
    };
    const auto is_named = [&](std::string_view of_row) {
      return std::ranges::any_of(subjects_of(of_row), [&](const Subject* subject) {
        return std::ranges::any_of(named_subjects, [&](auto glob) { return glob_matches(glob, subject->id()); });
      });
    };
    return !is_control(row) && (requested.empty() || std::ranges::any_of(row.harnesses, is_requested)) &&
           (named_subjects.empty() || std::ranges::any_of(row.subjects, is_named));
  };
  std::vector<std::string> typed_policies = policy_names();
  std::erase_if(typed_policies, [&](const std::string& name) {
    return std::find(words.begin(), words.end(), name) == words.end() ||
           std::ranges::any_of(rows, [&](const SuiteRow& row) {
             return is_asked_for(row) &&
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
            const bool is_typed = !only_policies.empty() || std::ranges::any_of(words, [&](const std::string& word) {
              return glob_matches(word, name);
            });
            for (const std::string_view harness : row.harnesses) {
              if (!is_typed && repeats_fp16(*subject, policy, harness)) continue;
              for (const std::string_view variant : row.variants) {
                Case one{subject, device, &policy, &harness_named(harness), axes_of(variant)};
                one.settle_axes();
                if (seen.insert(one.id()).second) cases.push_back(std::move(one));
              }
            }
          }
      }
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
    const bool names_cpu = word.starts_with("cpu") && !word.starts_with("cpu-");  // cpu-amp-fp16 is a policy
    const bool names_device = names_cpu || word.starts_with("sim:") || word.starts_with("cuda:");
    (names_device && word.find('/') == word.npos ? devices : words).push_back(settled(word));
  }
  devices =
      devices.empty() ? std::vector<std::string>{default_device()} : chosen_names("device", devices, device_names());
  const std::vector<std::string> only_harnesses =
      chosen_names("harness", selection.harnesses, harness_names(), "halfmark list harnesses");
  const std::vector<std::string_view> requested = requested_harnesses(words, only_harnesses);
  for (std::string& word : words) word = settled_setting(word, requested);
  std::vector<Case> cases = expand(selection, devices, words, only_harnesses, requested);
  cases = in_running_order(with_typed_axes(std::move(cases), words, selection, requested));
  cases = matching(std::move(cases), words, selection, requested);
  return selection.change.is_empty() ? cases : under_change(cases, selection.change);
}

}  // namespace halfmark::bench
