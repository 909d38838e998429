// The exception of all code in reports/.
#pragma once

#include <stdexcept>

namespace halfmark::reports {

// A file cannot be read or written, or has invalid contents. what() is one line: where, what, what to do.
class ReportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace halfmark::reports
