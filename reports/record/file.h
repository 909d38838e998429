// Whole files in and out: a reader never sees half a file, a failed write leaves nothing behind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace halfmark::reports {

// The file that writing to `path` replaces: a symbolic link stays one.
std::filesystem::path target_of(const std::filesystem::path& path);

// What cannot be replaced: devices, pipes (/dev/stdout), open files without a name (/proc/self/fd/3).
bool is_written_in_place(const std::filesystem::path& path);

// Throws ReportError naming the path and the cause.
std::string read_file(const std::filesystem::path& path);

// Temporary file beside the target, fsync, rename; or in place.
// Throws ReportError naming the path and the cause; the old file is then untouched and the temporary file gone.
void write_file(const std::filesystem::path& path, std::string_view text);

// Removes the temporary files that writers of `path` left behind when they were killed.
void remove_leftovers(const std::filesystem::path& path);

// The error of the last system call (errno) as a ReportError about `path`.
[[noreturn]] void throw_write_error(const std::filesystem::path& path);

// Writes everything to an open descriptor, or throws ReportError about `path`.
void write_all(int descriptor, std::string_view text, const std::filesystem::path& path);

}  // namespace halfmark::reports
