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

// ".NAME.SUFFIX" beside `target`: the name of a file that a writer of `target` makes for itself. Hidden and long, so
// that it is no name of anybody else's file.
std::filesystem::path companion_of(const std::filesystem::path& target, std::string_view suffix);

// More than any report has: what goes on for ever (/dev/zero) is refused.
inline constexpr size_t kLongestFile = size_t{1} << 30;

// Throws ReportError naming the path and the cause.
std::string read_file(const std::filesystem::path& path);

// The same for a path that nobody has named: only a regular file, without waiting for a pipe.
std::string read_regular_file(const std::filesystem::path& path);

// Temporary file beside the target, fsync, rename; or in place.
// Throws ReportError naming the path and the cause; the old file is then untouched and the temporary file gone.
void write_file(const std::filesystem::path& path, std::string_view text);

// The same for a file of ours whose name nobody has chosen: a symbolic link is not followed but replaced.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Removes the temporary files that writers of `path` left behind when they were killed, and nothing else.
void remove_leftovers(const std::filesystem::path& path);

// The error of the last system call (errno) as a ReportError about `path`.
[[noreturn]] void throw_write_error(const std::filesystem::path& path);

// Writes everything to an open descriptor, or throws ReportError about `path`.
void write_all(int descriptor, std::string_view text, const std::filesystem::path& path);

}  // namespace halfmark::reports
