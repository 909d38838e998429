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

constexpr std::string_view kLockSignature = "halfmark lock: ";

std::string text_in(int descriptor) {
  char text[200] = {};
  const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
  std::string line(text, count > 0 ? static_cast<size_t>(count) : 0);
  line.resize(std::min(line.size(), line.find('\n')));
  return line;
}

// Empty: its process has created it but not yet written to it, or was killed in between.
bool is_ours(int descriptor) {
  struct stat known = {};
  if (::fstat(descriptor, &known) != 0 || !S_ISREG(known.st_mode)) return false;
  return known.st_size == 0 || text_in(descriptor).starts_with(kLockSignature);
}

// "process 4711 since 2026-01-31T12:00:00Z".
std::string holder_of(int descriptor) {
  const std::string line = text_in(descriptor);
  return line.size() <= kLockSignature.size() ? "another process" : printable(line.substr(kLockSignature.size()));
}

std::string self() {
  std::tm utc{};
  const std::time_t seconds = std::time(nullptr);
  gmtime_r(&seconds, &utc);
  return fmt::format("{}process {} since {:%Y-%m-%dT%H:%M:%SZ}\n", kLockSignature, ::getpid(), utc);
}

// False if a holder has removed the file between our open and our lock: then this lock is void.
bool still_named(int descriptor, const std::filesystem::path& path) {
  struct stat held = {}, named = {};
  return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

}  // namespace

std::filesystem::path FileLock::path_of(const std::filesystem::path& target) {
  return companion_of(target_of(target), "halfmark-lock");
}

FileLock::FileLock(const std::filesystem::path& target) : path_(path_of(target)) {
  while (true) {
    // Does not follow a link or wait for the other end of a pipe.
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    const bool is_file_of_ours = descriptor >= 0 && is_ours(descriptor);
    if (descriptor >= 0 ? !is_file_of_ours : errno == ELOOP || errno == EISDIR || errno == ENXIO) {
      if (descriptor >= 0) ::close(descriptor);
      throw ReportError(
          fmt::format("{}: is not a lock file of halfmark; move it away or name another file with -o", path_.string()));
    }
    if (descriptor < 0) throw_write_error(target);
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
  // The text is only for users: if a full disk prevents it, the lock is still valid.
  const std::string text = self();
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, text.data(), text.size(), 0) < 0) return;
}

FileLock::~FileLock() {
  if (still_named(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace halfmark::reports
