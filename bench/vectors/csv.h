// A streaming CSV reader: a header that names the columns, then one row per line. It handles millions of rows and very
// long fields. Errors about a row name the line of the file and the column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// Columns may be in any order; columns that were not requested are ignored. Lines end in LF or CRLF; blank lines are
// allowed only at the end. Quotes are refused. Every violation throws Error.
class CsvReader {
 public:
  // Reads the header. `columns` are the requested columns; field(i) is the i-th of them.
  CsvReader(std::istream& in, const std::vector<std::string>& columns);

  bool next();                                                // reads the next row; false at the end
  std::string_view field(size_t i) const { return row_[i]; }  // until the next next()
  size_t line() const { return line_; }                       // line of the file, from 1

  uint64_t hex(size_t i, int digits) const;  // exactly `digits` digits, at most 16, upper or lower case
  // A field of any number of such codes without separators.
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
  size_t begin_ = 0, end_ = 0;  // the range of the buffer that is not yet used
  std::string_view text_;
  size_t line_ = 0;
};

// Buffered output of answers. finish() must be called: it throws Error if anything could not be written.
class Answers {
 public:
  explicit Answers(std::ostream& out) : out_(out) {}
  void text(std::string_view text) { pending_ += text; }
  void hex(uint64_t code, int digits);  // fixed width, lower case; digits = 0: no leading zeros
  void end_row();
  void finish();

 private:
  void flush();
  std::ostream& out_;
  std::string pending_;
};

}  // namespace halfmark::bench
