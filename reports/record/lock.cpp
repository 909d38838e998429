#include "reports/record/lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>

#include "reports/record/error.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

// "process 4711 since 2026-01-31T12:00:00Z".
std::string holder_of(int descriptor) {
  char text[100] = {};
  const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
  std::string line(text, count > 0 ? static_cast<size_t>(count) : 0);
  line.resize(std::min(line.size(), line.find('\n')));
  return line.empty() ? "another process" : printable(line);
}

std::string self() {
  std::tm utc{};
  const std::time_t seconds = std::time(nullptr);
  gmtime_r(&seconds, &utc);
  return fmt::format("process {} since {:%Y-%m-%dT%H:%M:%SZ}\n", ::getpid(), utc);
}

// False when a holder has removed the name between our open and our lock: then this is nobody's lock.
bool still_named(int descriptor, const std::filesystem::path& path) {
  struct stat held = {}, named = {};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

}  // namespace

std::filesystem::path FileLock::path_of(const std::filesystem::path& target) {
  return target_of(target).string() + ".lock";
}

FileLock::FileLock(const std::filesystem::path& target) : path_(path_of(target)) {
  while (true) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) throw_write_error(path_);
    int failed = 0;
    do failed = ::flock(descriptor, LOCK_EX | LOCK_NB);
    while (failed != 0 && errno == EINTR);
    if (failed != 0 && errno == EWOULDBLOCK) {
      const std::string holder = holder_of(descriptor);
      ::close(descriptor);
      throw ReportError(
          fmt::format("{}: is being written by {}; wait for it or name another file with -o", target.string(), holder));
    }
    if (failed == 0 && !still_named(descriptor, path_)) {
      ::close(descriptor);
      continue;
    }
    descriptor_ = descriptor;
    break;
  }
  // For people: that nobody can read it on a full disk loosens no lock.
  const std::string text = self();
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, text.data(), text.size(), 0) < 0) return;
}

FileLock::~FileLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace halfmark::reports
