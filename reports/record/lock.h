// Allows one writer of a report at a time. The lock is advisory (flock); the kernel releases it when the process ends,
// however it ends.
#pragma once

#include <filesystem>

namespace halfmark::reports {

class FileLock {
 public:
  // Takes the lock of `target`, a file .NAME.halfmark-lock beside it, or throws ReportError naming the process that has
  // it. Another file of that name or a symbolic link is rejected and not changed. On a file system without locks it has
  // no effect.
  explicit FileLock(const std::filesystem::path& target);
  ~FileLock();  // the file is removed with the lock
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  static std::filesystem::path path_of(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace halfmark::reports
