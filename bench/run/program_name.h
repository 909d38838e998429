// The name of the running program: "halfmark", or that of a program that extends it.
#pragma once

#include <string>

namespace halfmark::bench {

// Used in messages, in --help and in the commands that reports record.
const std::string& program_name();

void set_program_name(const std::string& name);  // once, at the start

}  // namespace halfmark::bench
