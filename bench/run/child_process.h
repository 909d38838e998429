// Child processes that are killed when this process ends for any reason.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace halfmark::bench {

// File descriptors for the child; /dev/null where none is given.
struct ChildStreams {
  int in = -1, out = -1, error = -1;
  int kept = -1;  // stays open in the child, with the same number
};

// words: a program (a path, or a name that is found in PATH) and its arguments. added: variables of its environment,
// NAME=VALUE, that this process does not have. Throws Error when it cannot be started.
pid_t start_child(const std::vector<std::string>& words, const ChildStreams& streams,
                  const std::vector<std::string>& added = {});

struct ChildEnd {
  int status = 0;  // as returned by wait(2)
  bool timed_out = false;
  long peak = 0;  // peak memory in KiB; 0 = unknown
};

// Waits for the child to end. Kills it after `timeout` seconds (0 = never), or when a signal interrupts the run; then
// throws Interrupted, unless the child has ended normally.
ChildEnd wait_for_child(pid_t child, double timeout = 0);

// The output of a program and how it ended.
struct Ended {
  int code = 0;  // exit code; 128 + signal number if a signal ended it
  std::string out, err;
};
Ended run_program(const std::vector<std::string>& command);  // throws like the two functions above

}  // namespace halfmark::bench
