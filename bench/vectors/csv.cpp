#include "bench/vectors/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bench/namespaces.h"
#include "kernels/number/error.h"

namespace halfmark::bench {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // bytes read or written at a time

constexpr uint8_t kNoDigit = 0xFF;
constexpr auto kDigits = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (uint8_t i = 0; i < 10; ++i) values[static_cast<size_t>('0' + i)] = i;
  for (uint8_t i = 0; i < 6; ++i) {
    values[static_cast<size_t>('a' + i)] = static_cast<uint8_t>(10 + i);
    values[static_cast<size_t>('A' + i)] = static_cast<uint8_t>(10 + i);
  }
  return values;
}();

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Long fields are truncated and non-printable characters become '?', so that an error message stays one readable line.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string result(text.substr(0, kMost));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text.size() > kMost ? result + "..." : result;
}

}  // namespace

CsvReader::CsvReader(std::istream& in, const std::vector<std::string>& columns)
    : in_(in), columns_(columns), row_(columns.size()), buffer_(kPiece) {
  if (!read_line())
    throw Error(fmt::format("the input is empty: it needs a header line with {}", fmt::join(columns, ",")));
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);  // a byte order mark
  split();
  for (const std::string& column : columns_) {
    const auto found = std::find(fields_.begin(), fields_.end(), column);
    if (found == fields_.end())
      throw Error(fmt::format("line 1: the header '{1}' has no column '{0}'", column, shown(text_)));
    if (std::find(found + 1, fields_.end(), column) != fields_.end())
      throw Error(fmt::format("line 1: the header has two columns '{}'", column));
    field_of_.push_back(static_cast<size_t>(found - fields_.begin()));
  }
}

bool CsvReader::read_line() {
  size_t searched = begin_;
  for (;;) {
    if (const void* found = searched < end_ ? std::memchr(buffer_.data() + searched, '\n', end_ - searched) : nullptr) {
      const auto at = static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
      text_ = {buffer_.data() + begin_, at - begin_};
      begin_ = at + 1;
      break;
    }
    searched = end_;
    if (begin_ > 0) {  // moves the incomplete line to the front
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      searched -= begin_, end_ -= begin_, begin_ = 0;
    }
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    if (in_.good()) {
      in_.read(buffer_.data() + end_, static_cast<std::streamsize>(buffer_.size() - end_));
      if (in_.bad()) throw Error("the input cannot be read");
      const auto count = static_cast<size_t>(in_.gcount());
      end_ += count;
      if (count) continue;
    }
    if (begin_ == end_) return false;
    text_ = {buffer_.data(), end_};  // the last line has no line end
    begin_ = end_;
    break;
  }
  ++line_;
  if (text_.ends_with('\r')) text_.remove_suffix(1);
  return true;
}

void CsvReader::split() {
  if (std::memchr(text_.data(), '"', text_.size()))
    throw Error(fmt::format("line {}: quotes are not supported; write the fields without quotes", line_));
  const size_t expected = fields_.size();
  fields_.clear();
  for (std::string_view rest = text_;;) {
    const size_t comma = rest.find(',');
    fields_.push_back(trimmed(rest.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (expected && fields_.size() != expected)
    throw Error(fmt::format("line {}: {} fields, but the header has {}", line_, fields_.size(), expected));
}

bool CsvReader::next() {
  if (!read_line()) return false;
  if (trimmed(text_).empty()) {
    const size_t blank = line_;
    while (read_line())
      if (!trimmed(text_).empty()) throw Error(fmt::format("line {}: blank lines are allowed only at the end", blank));
    return false;
  }
  split();
  for (size_t i = 0; i < row_.size(); ++i) row_[i] = fields_[field_of_[i]];
  return true;
}

void CsvReader::fail(size_t i, const std::string& what) const {
  throw Error(fmt::format("line {}, column '{}': '{}' {}", line_, columns_[i], shown(row_[i]), what));
}

uint64_t CsvReader::hex(size_t i, int digits) const {
  const std::string_view text = row_[i];
  uint64_t code = 0;
  bool wrong = text.size() != static_cast<size_t>(digits);
  for (const char c : text) {
    const uint8_t digit = kDigits[static_cast<unsigned char>(c)];
    wrong = wrong || digit == kNoDigit;
    code = code << 4 | (digit & 0xF);
  }
  if (wrong) fail(i, fmt::format("is not {} hex digit{}", digits, digits == 1 ? "" : "s"));
  return code;
}

void CsvReader::hex_list(size_t i, int digits, std::vector<uint64_t>& codes) const {
  const std::string_view text = row_[i];
  const auto width = static_cast<size_t>(digits);
  if (text.size() % width) fail(i, fmt::format("has {} hex digits, not a multiple of {}", text.size(), digits));
  codes.resize(text.size() / width);
  for (size_t k = 0; k < codes.size(); ++k) {
    codes[k] = 0;
    for (size_t d = k * width; d < (k + 1) * width; ++d) {
      const uint8_t digit = kDigits[static_cast<unsigned char>(text[d])];
      if (digit == kNoDigit)
        fail(i, fmt::format("has a character that is not a hex digit at position {}: '{}'", d + 1,
                            shown(text.substr(d, 1))));
      codes[k] = codes[k] << 4 | digit;
    }
  }
}

void Answers::hex(uint64_t code, int digits) {
  int shift = digits ? 4 * (digits - 1) : 60;
  if (!digits)
    while (shift > 0 && !(code >> shift & 0xF)) shift -= 4;
  for (; shift >= 0; shift -= 4) pending_ += "0123456789abcdef"[code >> shift & 0xF];
}

void Answers::end_row() {
  pending_ += '\n';
  if (pending_.size() >= kPiece) flush();
}

void Answers::flush() {
  errno = 0;
  out_.write(pending_.data(), static_cast<std::streamsize>(pending_.size()));
  out_.flush();
  if (!out_)
    throw Error(fmt::format("the answers could not be written: {}",
                            errno ? std::strerror(errno) : "write error on standard output"));
  pending_.clear();
}

void Answers::finish() { flush(); }

}  // namespace halfmark::bench
