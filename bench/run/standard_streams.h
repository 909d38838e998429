// Standard input, output and error as the caller has left them.
#pragma once

#include <string>

namespace halfmark::bench {

// Puts /dev/null on each of the descriptors 0 to 2 that is closed: the next file to be opened, a report, would take its
// number and get what is printed. Returns one line when output or error was closed, for then nobody would see a result
// or a mistake; empty when both are there. Who reads standard input finds it empty.
std::string fill_standard_streams();

// One line to standard error, or to standard output where error was closed at the start.
void complain(const std::string& line);

}  // namespace halfmark::bench
