// Comma-separated rows, streamed: a header that names the columns, then a row a line. Millions of rows, or a few with
// very long fields. Whoever answers a bad row with an error says file line and column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// Columns may stand in any order, those not asked for are passed over. Lines end in LF or CRLF; blank ones may stand at
// the end only. Quotes are refused. Every mistake is an Error.
class CsvReader {
 public:
  // Reads the header. `columns` are what the caller wants; field(i) is the i-th of them.
  CsvReader(std::istream& in, const std::vector<std::string>& columns);

  bool next();                                                // the next row; false at the end
  std::string_view field(size_t i) const { return row_[i]; }  // until the next next()
  size_t line() const { return line_; }                       // of the file, from 1

  uint64_t hex(size_t i, int digits) const;  // exactly so many digits, at most 16, either case
  // A field of any number of such codes, one after the other.
  void hex_list(size_t i, int digits, std::vector<uint64_t>& codes) const;

  [[noreturn]] void fail(size_t i, const std::string& what) const;  // Error "line 7, column 'x': 'zz' <what>"

 private:
  bool read_line();  // into text_, without its end
  void split();

  std::istream& in_;
  std::vector<std::string> columns_;
  std::vector<size_t> field_of_;  // column wanted -> field of a line
  std::vector<std::string_view> fields_, row_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is read and not yet used
  std::string_view text_;
  size_t line_ = 0;
};

// Answers, gathered into large pieces. finish() must be called: it throws Error when anything could not be written.
class Answers {
 public:
  explicit Answers(std::ostream& out) : out_(out) {}
  void text(std::string_view text) { pending_ += text; }
  void hex(uint64_t code, int digits);  // fixed width, lower case; 0 digits: as many as it takes
  void end_row();
  void finish();

 private:
  void flush();
  std::ostream& out_;
  std::string pending_;
};

}  // namespace halfmark::bench
