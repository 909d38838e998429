// The current UTC time in ISO 8601, as written to reports.
#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string>

namespace halfmark::bench {

inline std::tm utc_parts() {
  std::tm parts{};
  const std::time_t seconds = std::time(nullptr);
  ::gmtime_r(&seconds, &parts);
  return parts;
}

inline std::string utc_now_iso8601() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc_parts()); }
inline std::string utc_date() { return fmt::format("{:%Y-%m-%d}", utc_parts()); }

}  // namespace halfmark::bench
