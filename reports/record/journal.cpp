#include "reports/record/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/record_reading.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kJournalSignature = "{\"journal\":";  // what line_of() makes of a header

struct Contents {
  Report report;
  size_t whole = 0;         // bytes up to the end of the last record that is complete
  bool open_ended = false;  // that record lacks its line break
};

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Report header_of(std::string_view line, const std::string& where) {
  Json json = parse_json(line, where);
  if (!json.is_object() || !json.contains("journal")) {
    throw ReportError(where + ": is not the header of a journal; name the journal of the run to continue");
  }
  json["records"] = Json::array();
  return report_from_json(json, where);
}

Contents contents_of(std::string_view text, const std::string& file) {
  Contents contents;
  std::unordered_map<std::string, size_t> place;
  size_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const bool last = end == text.npos;
    const std::string_view piece = text.substr(begin, last ? text.npos : end - begin);
    const std::string where = fmt::format("{}, line {}", file, ++line);
    if (line == 1) {
      contents.report = header_of(piece, where);
    } else {
      Json json;
      try {
        json = parse_json(piece, where);
      } catch (const ReportError&) {
        if (last) break;  // incomplete: the run was killed while writing it
        throw ReportError(where +
                          ": is not valid JSON, so this journal is damaged; start the run without --resume, which "
                          "keeps it under another name");
      }
      Record record = record_from_json(json, where);
      const auto [known, is_new] = place.try_emplace(record.id, contents.report.records.size());
      if (is_new) {
        contents.report.records.push_back(std::move(record));
      } else {
        contents.report.records[known->second] = std::move(record);
      }
    }
    contents.whole = last ? text.size() : end + 1;
    contents.open_ended = last;
    if (last) break;
    begin = end + 1;
  }
  if (line == 0) throw ReportError(file + ": is empty, not a journal; start the run without --resume");
  return contents;
}

Contents contents_of(const std::filesystem::path& path) { return contents_of(read_file(path), path.string()); }

}  // namespace

Journal::Journal(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_write_error(path_);
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

Journal& Journal::operator=(Journal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Journal::~Journal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool Journal::is_at(const std::filesystem::path& path) {
  struct stat known = {};
  if (::lstat(path.c_str(), &known) != 0) {
    if (errno == ENOENT) return false;
    throw_write_error(path);
  }
  char text[kJournalSignature.size()] = {};
  if (S_ISREG(known.st_mode)) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) throw_write_error(path);
    const ssize_t count = ::read(file, text, sizeof text);
    ::close(file);
    if (count == ssize_t{sizeof text} && std::string_view(text, sizeof text) == kJournalSignature) return true;
  }
  throw ReportError(path.string() + ": is not a journal of halfmark; move it away or name another report with -o");
}

Journal Journal::create(const std::filesystem::path& path, const Report& header) {
  is_at(path);
  Report empty = header;
  empty.records.clear();
  Json json = {{"journal", 1}};
  json.update(to_json(empty));
  json.erase("records");
  replace_file(path, line_of(json));
  return Journal(path);
}

Journal Journal::resume(const std::filesystem::path& path) {
  const Contents contents = contents_of(path);
  Journal journal(path);
  if (::ftruncate(journal.descriptor_, static_cast<off_t>(contents.whole)) != 0) throw_write_error(path);
  if (contents.open_ended) write_all(journal.descriptor_, "\n", path);
  return journal;
}

Report Journal::read(const std::filesystem::path& path) { return contents_of(path).report; }

Report Journal::parse(std::string_view text, const std::string& where) { return contents_of(text, where).report; }

void Journal::append(const Record& record) {
  // One write call, so that processes sharing a journal do not mix their lines.
  write_all(descriptor_, line_of(to_json(record)), path_);
  if (::fdatasync(descriptor_) != 0) throw_write_error(path_);
}

}  // namespace halfmark::reports
