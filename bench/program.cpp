#include "bench/program.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "bench/run/program_name.h"
#include "bench/run/standard_streams.h"
#include "bench_build.h"
#include "kernels/cpu/blas_core.h"
#include "kernels/cpu/blas_room.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "reports/record/shell.h"

namespace halfmark::bench {

namespace {

// Without /proc this uses AT_EXECFN, the path that was passed to exec. Unlike argv[0], it needs no search in PATH.
std::string own_path() {
  std::error_code error;
  if (auto path = std::filesystem::read_symlink("/proc/self/exe", error); !error) return path.string();
  const auto* called = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  return called ? std::filesystem::absolute(called, error).string() : std::string();
}

// OpenMP threads that spin for long while they wait take the cores from other processes: on a busy
// machine, a step of 0.25 ms then took 350 ms. Threads that sleep at once must be woken for every
// kernel: on an idle virtual machine, a step of 0.19 ms then took 1.9 ms. Therefore they spin for
// about ten microseconds, longer than the gap between two kernels, and then sleep.
bool set_short_spins() {
  if (::getenv("OMP_WAIT_POLICY") || ::getenv("GOMP_SPINCOUNT")) return false;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "20000", 1);  // for GNU's library; measured: 1000 is too few, 100000 is not faster
  return true;
}

bool set_blas_core() {
  const std::string core(better_blas_core());
  if (core.empty() || ::getenv("OPENBLAS_CORETYPE")) return false;
  ::setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
  return true;
}

// Libraries read these settings before main, so the program sets them and executes itself again. Settings of the user are
// kept. If exec fails, the program continues, and the environment of the report shows it.
void set_up_libraries(char** argv) {
  const bool spins = set_short_spins(), core = set_blas_core();
  if (!spins && !core) return;
  ::execv("/proc/self/exe", argv);
  ::execv(own_path().c_str(), argv);
}

}  // namespace

namespace {

// "halfmark 0.1.0 (588daf5)", after the name and version of an extension.
std::string version_line() {
  const std::string own = fmt::format("halfmark {} ({})", HALFMARK_VERSION, built_revision());
  const Extension& added = extension();
  return added.name.empty() ? own : fmt::format("{} {}, {}", added.name, added.version, own);
}

}  // namespace

CommandLine command_line(Program& program) {
  CommandLine line(
      "halfmark measures what a number format costs and what it gains in deep learning: speed, memory and error "
      "together.",
      version_line(),
      "Start with `halfmark run`: it takes about a minute, prints a table and writes report.json. "
      "`halfmark COMMAND --help` explains the options and has examples.\n"
      "Exit codes: 0 done; 1 a case failed, gate or ab found something worse, check a wrong result, or plan no set of "
      "layers; "
      "2 the command or an input was wrong; 3 gate, ab, claims or check could not decide; 129, 130 or 143 stopped by a "
      "signal; 141 the reader of the output is "
      "gone.");
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
  add_check_command(line, program);
  add_dot_command(line, program);
  add_arithmetic_command(line, program);
  add_convert_command(line, program);
  add_quantize_command(line, program);
  add_plan_command(line, program);
  add_dump_command(line, program);
  add_claims_command(line, program);
  add_sample_command(line, program);
  return line;
}

namespace {

[[noreturn]] void end_with(const std::string& line) {
  complain(line);
  ::_exit(kWrongInput);
}

// Checks for the memory that every command needs: buffers of the libraries and stacks of their threads. It is checked
// before any command starts, because under a smaller limit a thread of OpenBLAS requests memory in an endless loop.
void require_memory(int threads) {
  constexpr size_t kForAll = size_t{256} << 20, kForThread = size_t{16} << 20;  // bytes
  try {
    require_blas_room(threads + 1, kForAll + kForThread * static_cast<size_t>(threads));
  } catch (const Error& error) {
    end_with(error.what());
  }
}

// The threads that OpenBLAS starts: one per processor that the process may use, or fewer where the environment says so.
int threads_of_openblas(char** environment) {
  cpu_set_t usable;
  const int processors = ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
  for (const std::string_view name : {"OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS="}) {
    for (char** variable = environment; *variable; ++variable) {
      if (!std::string_view(*variable).starts_with(name)) continue;
      const int wanted = std::atoi(*variable + name.size());
      if (wanted > 0) return std::min(wanted, processors);
    }
  }
  return processors;
}

std::string output_lost(int error) {
  return fmt::format("standard output cannot be written: {}; send it elsewhere",
                     std::generic_category().message(error));
}

int exit_code_of(int argc, char** argv, Program& program) {
  constexpr int kNobodyReads = 128 + SIGPIPE;  // as the signal ends the program where it is not ignored
  try {
    CommandLine line = command_line(program);
    line.read(argc, argv)();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      if (errno == EPIPE) return kNobodyReads;
      throw Error(output_lost(errno));
    }
    return program.exit_code;
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory; select fewer or smaller cases, or raise the limit (ulimit -v)");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) return kNobodyReads;
    complain(std::ferror(stdout) != 0 ? output_lost(error.code().value()) : error.what());
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return kWrongInput;
}

// Destructors of OpenBLAS wait for threads that under a limit may never end.
int leave(int code) {
  if (!memory_is_limited()) return code;
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

void before_libraries(int /*argc*/, char** /*argv*/, char** environment) {
  if (memory_is_limited()) require_memory(threads_of_openblas(environment));
}

int run_command_line(int argc, char** argv, Program program) {
  if (const std::string closed = fill_standard_streams(); !closed.empty()) end_with(closed);
  require_memory(host_threads());
  set_up_libraries(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit is then an error like a full disk
  program.path = own_path();
  program.command = program_name();
  for (int i = 1; i < argc; ++i) program.command += " " + reports::shell_word(argv[i]);

  return leave(exit_code_of(argc, argv, program));
}

int run_command_line(int argc, char** argv, Extension extension) {
  try {
    extend(std::move(extension));
  } catch (const Error& error) {
    end_with(error.what());
  }
  return run_command_line(argc, argv, Program{});
}

}  // namespace halfmark::bench
