#include "reports/record/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <utility>

#include "reports/record/error.h"

namespace halfmark::reports {

namespace {

constexpr int kMostLinks = 40;                           // the limit of the Linux kernel
constexpr std::string_view kTemporary = "halfmark-tmp";  // .NAME.PROCESS-NUMBER.halfmark-tmp

std::string cause(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_write(const std::filesystem::path& path, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT || error == EFBIG ? "free some space or write elsewhere"
                                                                            : "choose a path that can be written";
  throw ReportError(fmt::format("{}: cannot be written: {}; {}", path.string(), cause(error), advice));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  // Some file systems report a full disk only here.
  int close() { return ::close(std::exchange(value_, -1)); }

 private:
  int value_;
};

class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!kept_) ::unlink(path_.c_str());
  }
  const char* c_str() const { return path_.c_str(); }
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

// Creates a new file. An existing one is kept: it was left by a killed writer with our process id, or is not ours.
int make_temporary(const std::filesystem::path& target, std::filesystem::path& name) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    name = companion_of(target, fmt::format("{}-{}.{}", ::getpid(), i, kTemporary));
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

// Keeps the mode of the old file. `path` is the name in messages.
void replace(const std::filesystem::path& target, const struct stat* old, std::string_view text,
             const std::filesystem::path& path) {
  std::filesystem::path name;
  Descriptor file(make_temporary(target, name));
  if (file.get() < 0) fail_write(path, errno);
  TemporaryFile temporary(name);
  if (old && ::fchmod(file.get(), old->st_mode & 07777) != 0) fail_write(path, errno);
  write_all(file.get(), text, path);
  if (::fsync(file.get()) != 0 || file.close() != 0) fail_write(path, errno);
  if (::rename(temporary.c_str(), target.c_str()) != 0) fail_write(path, errno);
  temporary.keep();

  // The rename is durable only when the directory is on disk too. Some file systems cannot sync a directory.
  const std::filesystem::path directory = target.has_parent_path() ? target.parent_path() : ".";
  Descriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) ::fsync(parent.get());
}

// A killed writer leaves a regular file of this user.
bool is_leftover(const std::filesystem::path& path) {
  struct stat known = {};
  return ::lstat(path.c_str(), &known) == 0 && S_ISREG(known.st_mode) && known.st_uid == ::geteuid();
}

std::string read_open(int descriptor, const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) {
    throw ReportError(fmt::format("{}: cannot be read: {}; check the path", path.string(), why));
  };
  std::string text;
  struct stat known = {};
  const std::string too_long = fmt::format("it is longer than {} MiB", kLongestFile >> 20);
  if (::fstat(descriptor, &known) == 0 && S_ISREG(known.st_mode) && known.st_size > 0) {
    if (static_cast<size_t>(known.st_size) > kLongestFile) fail(too_long);
    text.reserve(static_cast<size_t>(known.st_size));
  }
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(cause(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kLongestFile) fail(too_long);
  }
}

// The link /proc/PID/fd/N that the path leads to; empty if it leads elsewhere. Links there are special: reading one
// gives the name of the open file, but opening one gives the open file itself.
std::filesystem::path open_file_link(std::filesystem::path path) {
  std::error_code error;
  for (int links = 0; links < kMostLinks; ++links) {
    const std::filesystem::path folder =
        std::filesystem::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    if (error) return {};
    struct statfs system = {};
    if (folder.filename() == "fd" && ::statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC)
      return folder / path.filename();
    if (!std::filesystem::is_symlink(path, error)) return {};
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
    if (error) return {};
  }
  return {};
}

// The number of the descriptor of this process that the path names, -1 if it names none.
int descriptor_named(const std::filesystem::path& path) {
  const std::filesystem::path link = open_file_link(path);
  std::error_code error;
  const std::filesystem::path own = std::filesystem::canonical("/proc/self", error);
  if (link.empty() || error || std::mismatch(own.begin(), own.end(), link.begin(), link.end()).first != own.end())
    return -1;
  const std::string name = link.filename().string();
  int number = -1;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
  return problem == std::errc() && end == name.data() + name.size() ? number : -1;
}

void write_directly(const std::filesystem::path& path, std::string_view text) {
  if (const int own = descriptor_named(path); own >= 0) {
    require_open_for_writing(path);
    std::fflush(stdout);
    return write_all(own, text, path);
  }
  // Appends to a file that another process has open, so that its contents are kept.
  const int how = open_file_link(path).empty() ? O_TRUNC : O_APPEND;
  Descriptor file(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | how));
  if (file.get() < 0) fail_write(path, errno);
  write_all(file.get(), text, path);
}

}  // namespace

std::filesystem::path target_of(const std::filesystem::path& path) {
  std::filesystem::path target = path;
  std::error_code error;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(target, error); ++links) {
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return path;
    target = target.parent_path() / next;  // just `next` if it is absolute
  }
  return target;
}

bool is_written_in_place(const std::filesystem::path& path) {
  struct stat known = {};
  if (::stat(path.c_str(), &known) != 0 || S_ISDIR(known.st_mode)) return false;
  return !S_ISREG(known.st_mode) || !open_file_link(path).empty();
}

void require_open_for_writing(const std::filesystem::path& path) {
  const int own = descriptor_named(path);
  if (own < 0) return;
  const int flags = ::fcntl(own, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    throw ReportError(fmt::format("{}: is not open for writing; name another output", path.string()));
}

std::filesystem::path companion_of(const std::filesystem::path& target, std::string_view suffix) {
  return target.parent_path() / fmt::format(".{}.{}", target.filename().string(), suffix);
}

std::string read_file(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0)
    throw ReportError(fmt::format("{}: cannot be read: {}; check the path", path.string(), cause(errno)));
  return read_open(file.get(), path);
}

std::string read_regular_file(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) throw ReportError(fmt::format("{}: cannot be read: {}", path.string(), cause(errno)));
  struct stat known = {};
  if (::fstat(file.get(), &known) != 0 || !S_ISREG(known.st_mode))
    throw ReportError(fmt::format("{}: is not a regular file", path.string()));
  return read_open(file.get(), path);
}

void throw_write_error(const std::filesystem::path& path) { fail_write(path, errno); }

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_write(path, errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  if (path.empty()) throw ReportError("the report's path is empty; name a file to write");
  const std::filesystem::path target = target_of(path);
  struct stat old = {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail_write(path, EISDIR);
  if (is_written_in_place(path)) return write_directly(path, text);
  if (exists && ::access(target.c_str(), W_OK) != 0) fail_write(path, errno);
  replace(target, exists ? &old : nullptr, text, path);
}

void replace_file(const std::filesystem::path& path, std::string_view text) { replace(path, nullptr, text, path); }

void remove_leftovers(const std::filesystem::path& path) {
  const std::filesystem::path target = target_of(path);
  const std::string prefix = companion_of(target, "").filename().string();  // ".report.json."
  const std::string suffix = fmt::format(".{}", kTemporary);
  std::error_code ignored;
  const std::filesystem::directory_iterator folder(target.has_parent_path() ? target.parent_path() : ".", ignored);
  for (const std::filesystem::directory_entry& entry : folder) {
    const std::string name = entry.path().filename().string();
    if (name.size() < prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const char* const end = name.data() + name.size() - suffix.size();
    pid_t writer = 0;
    int number = 0;
    const auto first = std::from_chars(name.data() + prefix.size(), end, writer);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-' || writer <= 0) continue;
    const auto second = std::from_chars(first.ptr + 1, end, number);
    if (second.ec != std::errc() || second.ptr != end || number < 0) continue;
    const bool is_gone = writer == ::getpid() || (::kill(writer, 0) != 0 && errno == ESRCH);
    if (is_gone && is_leftover(entry.path())) std::filesystem::remove(entry.path(), ignored);
  }
}

namespace {

// Whether the second path is the first, or within it.
bool contains(const std::filesystem::path& outer, const std::filesystem::path& path) {
  return !outer.empty() && std::mismatch(outer.begin(), outer.end(), path.begin(), path.end()).first == outer.end();
}

}  // namespace

void require_no_input(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(output, ignored)) return;
  const std::filesystem::path written = std::filesystem::canonical(output, ignored);
  for (const std::filesystem::path& input : inputs)
    if (std::filesystem::equivalent(output, input, ignored) ||
        contains(std::filesystem::canonical(input, ignored), written))
      throw ReportError(fmt::format(
          "{}: is among the inputs of this command and would be overwritten; name another output", output.string()));
}

}  // namespace halfmark::reports
