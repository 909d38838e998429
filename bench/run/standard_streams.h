// Handles standard streams that the caller has closed.
#pragma once

#include <string>

namespace halfmark::bench {

// Opens /dev/null on each closed descriptor from 0 to 2. Otherwise the next opened file, a report, would get that
// number and the printed text. Returns one line if output or error was closed, because then results or errors would be
// lost; else empty. A closed standard input is then empty.
std::string fill_standard_streams();

// Prints one line, on a terminal as wide as that, to standard error, or to standard output if standard error was closed at the start.
void complain(const std::string& line);

}  // namespace halfmark::bench
