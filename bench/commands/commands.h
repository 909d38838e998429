// The commands of the program. Each adds itself to the command line and sets the exit code when it has run.
#pragma once

#include <map>
#include <string>

#include "bench/commands/command_line.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// 0 done, 1 a case failed, or gate or ab found something worse, 2 the command, its configuration or an input was wrong, 3 (ab, gate)
// nothing could be decided. A run that a signal has cut short ends with 128 + signal: 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM.
enum ExitCode : int { kDone = 0, kFailed = 1, kWrongInput = 2, kUndecided = 3 };

struct Program {
  std::string path{};     // how to start it again
  std::string command{};  // as it was typed
  int exit_code = kDone;
  // Case -> share by which `sample` makes its steps longer. Only the program that tests the gate fills this.
  std::map<std::string, double> slow_down{};
};

void add_run_command(CommandLine& line, Program& program);
void add_list_command(CommandLine& line, Program& program);
void add_show_command(CommandLine& line, Program& program);
void add_compare_command(CommandLine& line, Program& program);
void add_gate_command(CommandLine& line, Program& program);
void add_export_command(CommandLine& line, Program& program);
void add_merge_command(CommandLine& line, Program& program);
void add_probe_command(CommandLine& line, Program& program);
void add_check_command(CommandLine& line, Program& program);
void add_dot_command(CommandLine& line, Program& program);
void add_arithmetic_command(CommandLine& line, Program& program);
void add_convert_command(CommandLine& line, Program& program);
void add_quantize_command(CommandLine& line, Program& program);
void add_ab_command(CommandLine& line, Program& program);
void add_history_command(CommandLine& line, Program& program);
void add_plan_command(CommandLine& line, Program& program);
void add_dump_command(CommandLine& line, Program& program);
void add_claims_command(CommandLine& line, Program& program);
void add_sample_command(CommandLine& line, Program& program);

}  // namespace halfmark::bench
