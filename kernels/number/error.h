// The two errors of halfmark. A non-finite number is not an error: it is one of the results being measured.
#pragma once

#include <stdexcept>
#include <string>

namespace halfmark::kernels {

// A precondition was violated, a library call failed, or an
// input was invalid. The text says what, where and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No row supports this operation. The text holds the reason of every row that was tried.
class Unsupported : public Error {
 public:
  using Error::Error;
};

}  // namespace halfmark::kernels

// Checks an invariant or a precondition; `message` is evaluated only if the check fails.
#define HM_CHECK(condition, message)                             \
  do {                                                           \
    if (!(condition)) throw ::halfmark::kernels::Error(message); \
  } while (false)
