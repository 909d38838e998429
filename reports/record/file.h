// Reads and writes whole files: a reader never sees a partial file, and a failed write leaves nothing behind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::reports {

// The file that is replaced by writing to `path`: the target of a symbolic link, not the link.
std::filesystem::path target_of(const std::filesystem::path& path);

// True if the target must not be replaced: a device, a pipe, or an open file (/dev/stdout, /dev/fd/3, /proc/PID/fd/3 and
// links to them). After a rename, processes that have the file open would still use the old one. Such a target has no
// lock and no journal.
bool is_written_in_place(const std::filesystem::path& path);

// Throws ReportError if the path names a descriptor of this process that is closed or open for reading only.
void require_open_for_writing(const std::filesystem::path& path);

// ".NAME.SUFFIX" beside `target`: the name of a file that a writer of `target` creates for its own use. Hidden and
// long, so that it does not collide with other files.
std::filesystem::path companion_of(const std::filesystem::path& target, std::string_view suffix);

// Larger than any report, so that endless files (/dev/zero) are rejected.
inline constexpr size_t kLongestFile = size_t{1} << 30;

// Throws ReportError naming the path and the cause.
std::string read_file(const std::filesystem::path& path);

// The same for a path that the user did not name: only a regular file; never blocks on a pipe.
std::string read_regular_file(const std::filesystem::path& path);

// Writes a temporary file beside the target, then fsync and rename. A target that must not be replaced is written in
// place: in a descriptor of this process at its current position, after flushing standard output. Throws ReportError
// naming the path and the cause; then a file that would be replaced is unchanged, and the temporary file is removed.
void write_file(const std::filesystem::path& path, std::string_view text);

// The same for a file whose name the user did not choose: a symbolic link is replaced, not followed.
void replace_file(const std::filesystem::path& path, std::string_view text);

// Throws ReportError if the output is one of the inputs, also under another name, or an existing file in a folder that is an
// input: writing it would destroy the input.
void require_no_input(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs);

// Removes the temporary files that writers of `path` left behind when they were killed, and nothing else.
void remove_leftovers(const std::filesystem::path& path);

// The error of the last system call (errno) as a ReportError about `path`.
[[noreturn]] void throw_write_error(const std::filesystem::path& path);

// Writes everything to an open descriptor, or throws ReportError about `path`.
void write_all(int descriptor, std::string_view text, const std::filesystem::path& path);

}  // namespace halfmark::reports
