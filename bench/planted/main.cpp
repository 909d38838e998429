// halfmark with planted slow-downs, for tests of the gate. It reads the file `planted` next to the program: a line
// "case=0.05" makes the timed steps of that case 5 % longer when it is sampled. It is not installed.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "bench/program.h"

int main(int argc, char** argv) {
  halfmark::bench::Program program;
  std::error_code error;
  std::ifstream file(std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "planted");
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.rfind('=');  // ids may contain key=value
    if (equals == std::string::npos) {
      std::fprintf(stderr, "halfmark: planted: '%s' is not CASE=SHARE\n", line.c_str());
      return halfmark::bench::kWrongInput;
    }
    program.slow_down[line.substr(0, equals)] = std::strtod(line.c_str() + equals + 1, nullptr);
  }
  return halfmark::bench::run_command_line(argc, argv, program);
}
