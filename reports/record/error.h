// The error of everything in reports/.
#pragma once

#include <stdexcept>

namespace halfmark::reports {

// A file that cannot be read or written, or is not what it should be. what() is one line: where, what, what to do.
class ReportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace halfmark::reports
