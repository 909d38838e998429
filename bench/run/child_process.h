// Programs as children: they die with this process, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace halfmark::bench {

// Descriptors that become the child's; /dev/null where none is given.
struct ChildStreams {
  int in = -1, out = -1, error = -1;
  int kept = -1;  // stays open under its number
};

// words: a program, with its path or to be found in PATH, and its arguments. Throws Error when it cannot be started.
pid_t start_child(const std::vector<std::string>& words, const ChildStreams& streams);

struct ChildEnd {
  int status = 0;  // as wait(2) has it
  bool timed_out = false;
  long peak = 0;  // KiB of memory, 0 where it is not known
};

// Waits until the child has ended; kills it after `timeout` seconds (0: never) and when a signal asks this process to
// end, then throws Interrupted, unless the child has ended well all the same.
ChildEnd wait_for_child(pid_t child, double timeout = 0);

// What a program printed and how it ended.
struct Ended {
  int code = 0;  // exit code; 128 + the signal's number when one ended it
  std::string out, err;
};
Ended run_program(const std::vector<std::string>& command);  // throws as the two above

}  // namespace halfmark::bench
