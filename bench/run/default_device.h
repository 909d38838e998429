// The device of a command that names none.
#pragma once

#include <string>

namespace halfmark::bench {

// The best device present. If that is the CPU because a GPU cannot be opened, says so in one line, once.
std::string default_device();

}  // namespace halfmark::bench
