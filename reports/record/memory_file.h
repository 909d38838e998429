// Anonymous file in memory (memfd) for the output of a child process; the kernel frees it when both processes have ended.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "reports/record/error.h"

namespace halfmark::reports {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : file_(::memfd_create(name, MFD_CLOEXEC)) {  // throws ReportError
    if (file_ < 0) throw ReportError("cannot create a file in memory: " + std::string(std::strerror(errno)));
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return file_; }
  std::string text() const {
    std::string all;
    char buffer[1 << 14];
    for (ssize_t count = 0; (count = ::pread(file_, buffer, sizeof buffer, static_cast<off_t>(all.size()))) > 0;)
      all.append(buffer, static_cast<size_t>(count));
    return all;
  }

 private:
  int file_;
};

}  // namespace halfmark::reports
