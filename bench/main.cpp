// halfmark: what a number format costs and what it gains in deep learning.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "bench/commands.h"
#include "bench_build.h"
#include "kernels/number/error.h"

namespace {

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

int complain(const std::string& what) {
  fmt::print(stderr, "halfmark: {}\n", one_line(what));
  return halfmark::kWrongInput;
}

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

int main(int argc, char** argv) {
  wait_with_short_spins(argv);
  halfmark::Program program;
  program.path = own_path(argv[0]);
  program.command = "halfmark";
  for (int i = 1; i < argc; ++i) program.command += fmt::format(" {}", argv[i]);

  CLI::App app(
      "halfmark measures what a number format costs and what it gains in deep learning: speed, memory and error "
      "together.");
  app.set_version_flag("--version", "halfmark " HALFMARK_VERSION " (" HALFMARK_GIT ")");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) { return std::string(error.what()); });
  app.footer(
      "Start with `halfmark run`: it takes about a minute, prints a table and writes report.json.\n"
      "Exit codes: 0 done, 1 a case failed, 2 the command or an input was wrong.");
  halfmark::add_run_command(app, program);
  halfmark::add_list_command(app, program);
  halfmark::add_show_command(app, program);
  halfmark::add_compare_command(app, program);
  halfmark::add_probe_command(app, program);
  halfmark::add_dot_command(app, program);
  halfmark::add_arithmetic_command(app, program);
  halfmark::add_convert_command(app, program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::RequiredError& error) {
    if (app.get_subcommands().empty()) {
      const bool named = argc > 1 && argv[1][0] != '-';
      return complain(
          (named ? fmt::format("unknown command '{}'", argv[1]) : std::string("a command is needed")) +
          "; commands: run, list, show, compare, probe, dot, arithmetic, convert (halfmark --help says more)");
    }
    return complain(
        fmt::format("{} (halfmark {} --help says more)", error.what(), app.get_subcommands().front()->get_name()));
  } catch (const CLI::ParseError& error) {
    return complain(fmt::format("{} (halfmark --help lists commands and options)", one_line(error.what())));
  } catch (const std::exception& error) {
    return complain(error.what());
  }
  return program.exit_code;
}
