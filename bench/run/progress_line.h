// The progress line of a run on a terminal.
#pragma once

#include <chrono>
#include <string>

namespace halfmark::bench {

// Draws only when standard error is a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(size_t done, size_t all, const std::string& next);

 private:
  bool drawn_ = false;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
};

// Width of the terminal; else the value of the variable COLUMNS; else, for files and pipes, wider than any line.
size_t terminal_width(int descriptor);
bool wants_colour(int descriptor);  // a terminal that is not dumb, and NO_COLOR is not set

}  // namespace halfmark::bench
