// The list of all harnesses, and the names of policies, harnesses and devices that a command line may use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "reports/text/table.h"

namespace halfmark::bench {

// All harnesses: those of accuracy/ and those of bench/.
const std::vector<Harness>& all_harnesses();
bool is_built_in(const Harness& harness);  // not added by a program of another project
// Adds rows at the end. References and pointers to earlier rows become invalid.
void add_harnesses(const std::vector<Harness>& more);
const reports::DefaultSettings& default_settings();   // of all harnesses: the first value of each axis
const Harness& harness_named(std::string_view name);  // throws Error naming the known ones

std::vector<std::string> policy_names();
// Throws Error for the name of a changed policy: it is part of an id, and no word or --policy, because its layers may have
// commas and globs.
void require_plain_policy(const std::string& word);
std::vector<std::string> harness_names();
std::vector<std::string> device_names();

}  // namespace halfmark::bench
