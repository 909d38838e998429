#include "bench/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "bench_build.h"
#include "kernels/number/error.h"

namespace halfmark::bench {

namespace {

std::string own_path(const char* called) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? called : path.string();
}

// Threads of an OpenMP library that spin for long while they wait take the cores from everybody else: on a busy machine
// a step of 0.25 ms then read 350 ms. Threads that sleep at once have to be woken for every kernel: on an idle virtual
// machine a step of 0.19 ms then read 1.9 ms. So they spin for some ten microseconds, longer than the gap between two
// kernels, and then sleep. The library looks at its settings before main, so the program starts itself anew with them;
// whoever has set them is left alone. When that fails, the program goes on as it is, and the report's environment shows
// it.
void wait_with_short_spins(char** argv) {
  if (::getenv("OMP_WAIT_POLICY") || ::getenv("GOMP_SPINCOUNT")) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "20000", 1);  // of GNU's library; measured: 1000 is too few, 100000 no faster
  ::execv("/proc/self/exe", argv);
}

}  // namespace

CommandLine command_line(Program& program) {
  CommandLine line(
      "halfmark measures what a number format costs and what it gains in deep learning: speed, memory and error "
      "together.",
      "halfmark " HALFMARK_VERSION " (" HALFMARK_GIT ")",
      "Start with `halfmark run`: it takes about a minute, prints a table and writes report.json. "
      "`halfmark COMMAND --help` explains the options and has examples.\n"
      "Exit codes: 0 done, 1 a case failed or a gate is broken, 2 the command or an input was wrong, 3 a gate could "
      "not "
      "decide, 130 or 143 stopped by a signal.");
  add_run_command(line, program);
  add_list_command(line, program);
  add_show_command(line, program);
  add_compare_command(line, program);
  add_export_command(line, program);
  add_merge_command(line, program);
  add_gate_command(line, program);
  add_ab_command(line, program);
  add_history_command(line, program);
  add_probe_command(line, program);
  add_dot_command(line, program);
  add_arithmetic_command(line, program);
  add_convert_command(line, program);
  add_sample_command(line, program);
  return line;
}

int run_command_line(int argc, char** argv, Program program) {
  wait_with_short_spins(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond a limit on its size is then an error like a full disk
  program.path = own_path(argv[0]);
  program.command = "halfmark";
  for (int i = 1; i < argc; ++i) program.command += fmt::format(" {}", argv[i]);

  CommandLine line = command_line(program);
  try {
    line.read(argc, argv)();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error(fmt::format("standard output cannot be written: {}; send it elsewhere",
                              std::generic_category().message(errno)));
  } catch (const std::exception& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    fmt::print(stderr, "halfmark: {}\n", what);
    return kWrongInput;
  }
  return program.exit_code;
}

}  // namespace halfmark::bench
