// Draws the progress line, and reads the properties of the terminal.
#include "bench/run/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace halfmark::bench {

namespace {

constexpr size_t kNarrowestTerminal = 40;
constexpr size_t kUnknownTerminal = 80;        // a terminal that does not tell its size
constexpr size_t kUnlimitedWidth = 1'000'000;  // wider than any line

}  // namespace

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::show(size_t done, size_t all, const std::string& next) {
  if (!terminal_) return;
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string left = "    ";
  if (done > 0) {
    const long seconds = std::lround(spent / static_cast<double>(done) * static_cast<double>(all - done));
    left = fmt::format("{}:{:02} left", seconds / 60, seconds % 60);
  }
  constexpr size_t kBar = 20;
  const size_t full = all == 0 ? kBar : kBar * done / all;
  std::string line =
      fmt::format("[{}{}] {}/{} {}  {}", std::string(full, '#'), std::string(kBar - full, '.'), done, all, left, next);
  const size_t width = terminal_width(STDERR_FILENO);
  if (line.size() >= width) line.resize(width - 1);
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  drawn_ = true;
}

size_t terminal_width(int descriptor) {
  winsize size{};
  if (::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<size_t>(kNarrowestTerminal, size.ws_col);
  // Shells do not export COLUMNS by themselves: if it is set, the user has requested this width.
  size_t columns = 0;
  if (const char* set = std::getenv("COLUMNS")) {
    const char* end = set + std::strlen(set);
    if (const auto [stop, error] = std::from_chars(set, end, columns);
        error == std::errc() && stop == end && columns > 0)
      return std::max(kNarrowestTerminal, columns);
  }
  return ::isatty(descriptor) == 1 ? kUnknownTerminal : kUnlimitedWidth;
}

bool wants_colour(int descriptor) {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal && std::string_view(terminal) == "dumb";
  return ::isatty(descriptor) == 1 && !std::getenv("NO_COLOR") && !is_dumb;
}

}  // namespace halfmark::bench
