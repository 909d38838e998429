// Every harness of the program, and the names a command line may use for policies, harnesses and devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// Every harness of the suite, those of accuracy/ and those of bench/.
const std::vector<Harness>& all_harnesses();
const Harness& harness_named(std::string_view name);  // throws Error naming the known ones

std::vector<std::string> policy_names();  // those that are not hidden
std::vector<std::string> harness_names();
std::vector<std::string> device_names();

}  // namespace halfmark::bench
