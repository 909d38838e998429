// The program behind main: reads the command line, runs the command and returns the exit code.
#pragma once

#include "bench/commands/commands.h"
#include "bench/halfmark.h"

namespace halfmark::bench {

CommandLine command_line(Program& program);  // all commands

int run_command_line(int argc, char** argv, Program program);  // returns the exit code

// Ends the program with one line if a limit on memory (ulimit -v or -d) is too small for OpenBLAS. Since 0.3.29 its
// constructor never returns under such a limit, so this runs before the constructors of shared libraries: from an
// executable's .preinit_array. Only memory, text and system calls may be used there.
void before_libraries(int argc, char** argv, char** environment);

}  // namespace halfmark::bench
