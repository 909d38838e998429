// Fuzzes the command line: any words must be accepted or refused
// with one line; nothing is run. Words are separated by line breaks.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/program.h"
#include "kernels/number/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::bench;
  std::vector<std::string> words{"halfmark", ""};
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      words.emplace_back();
    else if (data[i] != 0)  // words of a real command line contain no NUL
      words.back() += static_cast<char>(data[i]);
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  Program program;
  CommandLine line = command_line(program);
  try {
    line.read(static_cast<int>(arguments.size()), arguments.data());
  } catch (const Error& error) {
    if (std::string(error.what()).empty()) std::abort();
  }
  return 0;
}
