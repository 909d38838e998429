// A child process `program sample` that measures one case after another on request.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/ab/sampler.h"

namespace halfmark::bench {

// Thrown when the process ended, hung or gave an invalid answer; what() gives the reason.
class ProcessLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The cores that this process may use.
std::vector<int> own_cores();

class SamplerProcess {
 public:
  // Starts the process, which then waits for requests. `timeout`: seconds for one answer. `cores`: the cores it may
  // use, all if empty. Throws Error when it cannot be started.
  SamplerProcess(const std::vector<std::string>& command, double timeout, const std::vector<int>& cores = {});
  ~SamplerProcess();  // kills the process
  SamplerProcess(const SamplerProcess&) = delete;
  SamplerProcess& operator=(const SamplerProcess&) = delete;

  ProcessSample ask(const std::string& id);  // throws ProcessLost

 private:
  [[noreturn]] void lose(const std::string& id, bool too_slow);
  std::string complaint() const;  // the first line on its standard error

  pid_t child_ = 0;
  int to_ = -1, from_ = -1, errors_ = -1;
  double timeout_;
  std::string pending_;  // input after the last answer
};

}  // namespace halfmark::bench
