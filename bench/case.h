// A case is one measurement to make: subject, device, policy, harness and the harness's axes. The plan is the list of
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "reports/glob.h"

namespace halfmark {

struct Case {
  const Subject* subject = nullptr;
  std::string device;
  const Policy* policy = nullptr;
  const Harness* harness = nullptr;
  Axes axes;  // those that are not at their first value

  std::string id() const;                     // "mlp/b16_i32_h64_o8/cpu/amp-fp16/error[/key=value...]"
  std::vector<std::string> segments() const;  // what lies between the slashes
  TrialSpec trial(std::shared_ptr<Device> opened, uint64_t seed) const;
};

// Every harness of the suite, those of accuracy/ and those of bench/.
const std::vector<Harness>& all_harnesses();
const Harness& harness_named(std::string_view name);  // throws Error naming the known ones

struct Suite {
  std::string_view name, about;
};
const std::vector<Suite>& suites();  // the default is "quick"

// What a command line asks for. Lists that are empty leave the choice to the suite; the device is then the best one
// present.
struct Selection {
  std::string suite = "quick";
  std::vector<std::string> devices, policies, harnesses;
  std::vector<std::string> words;  // see words_match
};

// The cases, in the order they are run: one subject after another, so that its policies share their fp64 twins. Throws
// Error for a name nobody knows and for a selection that leaves nothing, with the nearest names.
std::vector<Case> plan(const Selection& selection);

// The case with this id, whether or not a suite has it. Throws Error saying which part of the id is unknown.
Case case_of(const std::string& id);

// The names that are written most alike, best first, at most three.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace halfmark
