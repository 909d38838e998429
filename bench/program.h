// The program behind main: the command line, its commands and the exit code.
#pragma once

#include <map>
#include <string>

namespace halfmark {

// 0 done, 1 a case failed or a gate is broken, 2 the command, its configuration or an input was wrong, 3 (ab, gate)
// nothing could be decided. A run that a signal has cut short ends with 128 + signal: 130 for SIGINT, 143 for SIGTERM.
enum ExitCode : int { kDone = 0, kFailed = 1, kWrongInput = 2, kUndecided = 3 };

struct Program {
  std::string path{};     // how to start it again
  std::string command{};  // as it was typed
  int exit_code = kDone;
  // Case -> share by which `sample` makes its steps longer. Only the program that tests the gate fills this.
  std::map<std::string, double> slow_down{};
};

int run_command_line(int argc, char** argv, Program program);  // returns the exit code

}  // namespace halfmark
