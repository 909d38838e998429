// The clock on the wall of Greenwich, as reports write it.
#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string>

namespace halfmark::bench {

inline std::tm utc() {
  std::tm parts{};
  const std::time_t seconds = std::time(nullptr);
  ::gmtime_r(&seconds, &parts);
  return parts;
}

inline std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc()); }
inline std::string today() { return fmt::format("{:%Y-%m-%d}", utc()); }

}  // namespace halfmark::bench
