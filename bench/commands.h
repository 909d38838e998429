// The commands of the program. Each adds itself to the command line and sets the exit code when it has run.
#pragma once

#include <string>

#include "bench/command_line.h"

namespace halfmark {

// 0 done, 1 a case failed, 2 the command, its configuration or an input was wrong. A run that a signal has cut short
// ends with 128 + signal: 130 for SIGINT, 143 for SIGTERM.
enum ExitCode : int { kDone = 0, kFailed = 1, kWrongInput = 2 };

struct Program {
  std::string path;     // how to start it again
  std::string command;  // as it was typed
  int exit_code = kDone;
};

void add_run_command(CommandLine& line, Program& program);
void add_list_command(CommandLine& line, Program& program);
void add_show_command(CommandLine& line, Program& program);
void add_compare_command(CommandLine& line, Program& program);
void add_merge_command(CommandLine& line, Program& program);
void add_probe_command(CommandLine& line, Program& program);
void add_dot_command(CommandLine& line, Program& program);
void add_arithmetic_command(CommandLine& line, Program& program);
void add_convert_command(CommandLine& line, Program& program);

}  // namespace halfmark
