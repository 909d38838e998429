#include "bench/run/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "bench/namespaces.h"
#include "bench/run/program_name.h"
#include "bench/run/progress_line.h"
#include "reports/record/printable.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

bool error_was_closed = false;

bool is_closed(int descriptor) { return ::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF; }

}  // namespace

std::string fill_standard_streams() {
  std::string closed;
  constexpr const char* kNames[] = {"standard input", "standard output", "standard error"};
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor) {
    if (!is_closed(descriptor)) continue;
    if (::open("/dev/null", O_RDWR) != descriptor) ::_exit(2);  // open() returns the lowest free number
    if (descriptor == STDERR_FILENO) error_was_closed = true;
    if (descriptor != STDIN_FILENO) closed += (closed.empty() ? "" : " and ") + std::string(kNames[descriptor]);
  }
  return closed.empty() ? "" : fmt::format("closed: {}; redirect unwanted output to /dev/null", closed);
}

void complain(const std::string& line) {
  // Not fmt::print, which throws if the stream is closed.
  FILE* const stream = error_was_closed ? stdout : stderr;
  const int descriptor = ::fileno(stream);
  const std::string lead = fmt::format("{}: ", program_name()), words = reports::printable(line);
  // On a terminal long lines are broken between words; programs read one line.
  const std::string text =
      ::isatty(descriptor) ? reports::wrapped(lead, words, terminal_width(descriptor)) : lead + words + "\n";
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace halfmark::bench
