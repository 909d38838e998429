// halfmark with planted slow-downs, for testing the gate: HALFMARK_PLANT="case=0.05,other=0.1" makes every timed step
// of these cases 5 and 10 % longer when it is sampled. It is not installed.
#include <cstdlib>
#include <sstream>
#include <string>

#include "bench/program.h"

int main(int argc, char** argv) {
  halfmark::Program program;
  const char* planted = std::getenv("HALFMARK_PLANT");
  std::istringstream list(planted ? planted : "");
  for (std::string entry; std::getline(list, entry, ',');) {
    const size_t equals = entry.rfind('=');  // ids hold key=value, too
    if (equals == std::string::npos) return halfmark::kWrongInput;
    program.slow_down[entry.substr(0, equals)] = std::strtod(entry.c_str() + equals + 1, nullptr);
  }
  return halfmark::run_command_line(argc, argv, program);
}
