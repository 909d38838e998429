// The commands of the program. Each adds itself to the command line and sets the exit code when it has run.
#pragma once

#include <string>

#include "bench/command_line.h"
#include "bench/program.h"

namespace halfmark {

CommandLine command_line(Program& program);  // all of them

void add_run_command(CommandLine& line, Program& program);
void add_list_command(CommandLine& line, Program& program);
void add_show_command(CommandLine& line, Program& program);
void add_compare_command(CommandLine& line, Program& program);
void add_gate_command(CommandLine& line, Program& program);
void add_merge_command(CommandLine& line, Program& program);
void add_probe_command(CommandLine& line, Program& program);
void add_dot_command(CommandLine& line, Program& program);
void add_arithmetic_command(CommandLine& line, Program& program);
void add_convert_command(CommandLine& line, Program& program);
void add_ab_command(CommandLine& line, Program& program);
void add_history_command(CommandLine& line, Program& program);
void add_sample_command(CommandLine& line, Program& program);

}  // namespace halfmark
