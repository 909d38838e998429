// The program behind main: reads the command line, runs the command and returns the exit code.
#pragma once

#include "bench/commands/commands.h"
#include "bench/halfmark.h"

namespace halfmark::bench {

CommandLine command_line(Program& program);  // all commands

int run_command_line(int argc, char** argv, Program program);  // returns the exit code

}  // namespace halfmark::bench
