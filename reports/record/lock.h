// One writer of a report at a time. The lock is advisory and the kernel's: a process that is gone, however it went,
// holds none.
#pragma once

#include <filesystem>

namespace halfmark::reports {

class FileLock {
 public:
  // Takes the lock of `target`, a file .NAME.halfmark-lock beside it, or throws ReportError naming the process that has
  // it. A file of that name that is none of ours, or a symbolic link, is refused and left as it is. On a file system
  // that knows no locks the lock hinders nobody.
  explicit FileLock(const std::filesystem::path& target);
  ~FileLock();  // the file goes with the lock
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  static std::filesystem::path path_of(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace halfmark::reports
