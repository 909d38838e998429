// Text for people: tables that fit a terminal, wrapped lines, and base units turned into ms, MiB and GFLOP/s.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/printable.h"

namespace halfmark::reports {

// [harness][axis]: the value of an axis that a record does not name.
using DefaultSettings = std::map<std::string, std::map<std::string, std::string>>;

struct TextOptions {
  size_t width = 100;                         // columns of the terminal
  bool colour = false;                        // ANSI colours; the caller knows whether it writes to a terminal
  bool all = false;                           // everything in the report, unknown metrics too
  const DefaultSettings* defaults = nullptr;  // of this program's version; null: they are written as "default"
};

// What an axis has that a record of this harness does not name: "off", or "default" if it is not known.
std::string default_of(const DefaultSettings* defaults, const std::string& harness, const std::string& axis);

enum class Tone { plain, strong, dim, good, bad };

struct Cell {
  std::string text;
  Tone tone = Tone::plain;
};

// Nothing is left out or cut: columns that do not fit follow in another block below, with the key columns repeated. A
// key column that is too wide is wrapped.
class Table {
 public:
  // The first `keys` columns are text, left-aligned: they name the row. The others are numbers.
  explicit Table(std::vector<std::string> titles, size_t keys = 1);

  void add(std::vector<Cell> row);  // fewer cells than columns: the rest is empty
  bool empty() const { return rows_.empty(); }
  std::string text(const TextOptions& options) const;

 private:
  void narrow_keys(std::vector<size_t>& widths, size_t width) const;
  std::string block(const std::vector<size_t>& columns, const std::vector<size_t>& widths, bool colour) const;

  std::vector<std::string> titles_;
  std::vector<std::vector<Cell>> rows_;
  size_t keys_;
};

// The text in ANSI colours, or unchanged.
std::string toned(std::string_view text, Tone tone, bool colour);

// Lines of at most `width` columns, the first led by `lead`, the others indented as far. Ends with a line break. A word that
// is too long for a line stays whole, or with `breaks_ids` is broken after slashes.
std::string wrapped(std::string_view lead, std::string_view text, size_t width, bool breaks_ids = false);

// "1.84 ms", "12.5 MiB", "3.1 TFLOP/s"; unit "1" and unknown units keep the number: "2.19e-07", "12 dB".
std::string human(double value, std::string_view unit);

// "12.5%", "0.008%" of a share between 0 and 1.
std::string human_share(double value);

// "1 record", "3 records".
std::string counted(size_t count, std::string_view noun);

// "a, b and 3 more"
std::string some_of(const std::vector<std::string>& names, size_t most = 3);

// "1.85x", "0.53x", "3.2e+08x".
std::string human_ratio(double ratio);

}  // namespace halfmark::reports
