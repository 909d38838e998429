// The two errors of the suite. A non-finite number is neither: it is what we came to measure.
#pragma once

#include <stdexcept>
#include <string>

namespace halfmark::kernels {

// A promise was broken, a library call failed, or an input was wrong. The text says what, where and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Nobody takes this work. The text holds the reason of everybody who was asked.
class Unsupported : public Error {
 public:
  using Error::Error;
};

}  // namespace halfmark::kernels

// Checks a promise of ours or of the caller; `message` is only evaluated when it is broken.
#define HM_CHECK(condition, message)                    \
  do {                                                  \
    if (!(condition)) throw ::halfmark::kernels::Error(message); \
  } while (false)
