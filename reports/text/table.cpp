#include "reports/text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace halfmark::reports {

namespace {

constexpr size_t kGap = 2;            // blanks between columns
constexpr size_t kNarrowest = 20;     // below this nothing sensible can be printed
constexpr size_t kNarrowestKey = 12;  // a key column is not made narrower than this

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Columns of a terminal, one per character: names with wide characters are rare.
size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

// The text in lines of at most `width` columns, broken after a space, a slash or a comma if possible, else anywhere.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin, seen = 0, good = begin;
    for (; end < text.size(); ++end) {
      if (starts_character(text[end]) && seen++ == width) break;
      if (text[end] == ' ' || text[end] == '/' || text[end] == ',') good = end + 1;
    }
    if (end < text.size() && text[end] != ' ' && good > begin) end = good;
    std::string line = text.substr(begin, end - begin);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
    begin = end;
    while (begin < text.size() && text[begin] == ' ') ++begin;
  }
  if (lines.empty()) lines.emplace_back();
  return lines;
}

struct Prefix {
  double factor;
  const char* name;
};
constexpr std::array kDecimal = {Prefix{1e15, "P"}, Prefix{1e12, "T"}, Prefix{1e9, "G"},
                                 Prefix{1e6, "M"},  Prefix{1e3, "k"},  Prefix{1, ""}};
constexpr std::array kBinary = {Prefix{0x1p40, "Ti"}, Prefix{0x1p30, "Gi"}, Prefix{0x1p20, "Mi"}, Prefix{0x1p10, "Ki"},
                                Prefix{1, ""}};
constexpr std::array kSmall = {Prefix{1, ""}, Prefix{1e-3, "m"}, Prefix{1e-6, "u"}, Prefix{1e-9, "n"}};

template <class Prefixes>
std::string prefixed(double value, std::string_view unit, const Prefixes& prefixes) {
  const auto fits = [&](const Prefix& prefix) { return std::abs(value) >= prefix.factor * 0.9995; };
  const auto found = std::find_if(prefixes.begin(), prefixes.end(), fits);
  const Prefix& prefix = found == prefixes.end() ? prefixes.back() : *found;
  const double scaled = value / prefix.factor;
  // 1023 KiB has four digits in front of the point.
  if (std::abs(scaled) >= 999.5) return fmt::format("{:.0f} {}{}", scaled, prefix.name, unit);
  return fmt::format("{:.3g} {}{}", scaled, prefix.name, unit);
}

}  // namespace

Table::Table(std::vector<std::string> titles, size_t keys) : titles_(std::move(titles)), keys_(keys) {
  for (std::string& title : titles_) title = printable(title);
}

void Table::add(std::vector<Cell> row) {
  row.resize(titles_.size());
  for (Cell& cell : row) cell.text = printable(cell.text);
  rows_.push_back(std::move(row));
}

std::string Table::text(const TextOptions& options) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < titles_.size(); ++i) {
    widths.push_back(columns_of(titles_[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], columns_of(row[i].text));
  }
  std::vector<size_t> keys(keys_);
  std::iota(keys.begin(), keys.end(), size_t{0});
  const size_t width = std::max(options.width, kNarrowest);
  narrow_keys(widths, width);
  size_t key_width = 0;
  for (size_t key : keys) key_width += widths[key] + kGap;

  std::string text;
  for (size_t next = keys_; next < titles_.size() || text.empty();) {
    std::vector<size_t> columns = keys;
    size_t used = key_width;
    while (next < titles_.size() && (columns.size() == keys_ || used + widths[next] <= width)) {
      used += widths[next] + kGap;
      columns.push_back(next++);
    }
    if (!text.empty()) text += "\n";
    text += block(columns, widths, options.colour);
  }
  return text;
}

// If the key columns leave too little width for the widest number, they are made narrower, widest first; their texts
// are wrapped.
void Table::narrow_keys(std::vector<size_t>& widths, size_t width) const {
  size_t number = 0, used = 0;
  for (size_t i = keys_; i < widths.size(); ++i) number = std::max(number, widths[i]);
  for (size_t i = 0; i < keys_; ++i) used += widths[i] + kGap;
  used += number;
  if (keys_ == widths.size()) used -= kGap;
  while (used > width) {
    const auto widest = std::max_element(widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(keys_));
    if (*widest <= kNarrowestKey) return;
    --*widest, --used;
  }
}

std::string Table::block(const std::vector<size_t>& columns, const std::vector<size_t>& widths, bool colour) const {
  // One row of the table: one line, or several if the text of a key column is wider than the column.
  const auto row_text = [&](const auto& cell_at) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t column : columns) {
      const Cell& cell = cell_at(column);
      cells.push_back(column < keys_ ? lines_of(cell.text, widths[column]) : std::vector<std::string>{cell.text});
      height = std::max(height, cells.back().size());
    }
    std::string text;
    for (size_t at = 0; at < height; ++at) {
      std::string line;
      for (size_t i = 0; i < columns.size(); ++i) {
        const size_t column = columns[i];
        const std::string part = at < cells[i].size() ? cells[i][at] : "";
        const std::string blanks(widths[column] - std::min(widths[column], columns_of(part)), ' ');
        if (column >= keys_) line += blanks;
        line += toned(part, cell_at(column).tone, colour);
        if (i + 1 == columns.size()) break;
        if (column < keys_) line += blanks;
        line.append(kGap, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  };
  std::string text = row_text([&](size_t column) { return Cell{titles_[column], Tone::dim}; });
  for (const auto& row : rows_) text += row_text([&](size_t column) -> const Cell& { return row[column]; });
  return text;
}

std::string toned(std::string_view text, Tone tone, bool colour) {
  if (!colour || tone == Tone::plain || text.empty()) return std::string(text);
  const char* code = tone == Tone::strong ? "1" : tone == Tone::dim ? "2" : tone == Tone::good ? "32" : "31";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string wrapped(std::string_view lead, std::string_view text, size_t width, bool breaks_ids) {
  const std::string clean = printable(text);
  const size_t indent = columns_of(lead);
  const size_t room = std::max(width, indent + kNarrowest) - indent;
  std::string result(lead);
  size_t used = 0;
  const auto next_line = [&] {
    result += '\n';
    result.append(indent, ' ');
    used = 0;
  };
  for (size_t begin = 0; begin < clean.size();) {
    size_t end = clean.find(' ', begin);
    if (end == clean.npos) end = clean.size();
    const std::string_view word = std::string_view(clean).substr(begin, end - begin);
    const size_t length = columns_of(word);
    if (used > 0 && used + 1 + length > room) next_line();
    if (used > 0) {
      result += ' ';
      ++used;
    }
    if (breaks_ids && length > room) {
      for (const std::string& part : lines_of(std::string(word), room)) {
        if (used > 0) next_line();
        result += part;
        used = columns_of(part);
      }
    } else {
      result += word;
      used += length;
    }
    begin = end + 1;
  }
  return result + "\n";
}

std::string human(double value, std::string_view unit) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // A count has all its digits, so that two counts that differ look different.
  constexpr double kMostCount = 1e7;
  if (unit == "1" && value == std::trunc(value) && std::abs(value) < kMostCount) return fmt::format("{:.0f}", value);
  if (unit == "1") return fmt::format("{:.3g}", value);
  if (value == 0) return fmt::format("0 {}", unit);
  if (unit == "s") return std::abs(value) < 1 ? prefixed(value, unit, kSmall) : fmt::format("{:.3g} s", value);
  if (unit == "B" || unit == "B/s") return prefixed(value, unit, kBinary);
  if (unit == "1/s") return std::abs(value) < 1000 ? fmt::format("{:.3g}/s", value) : prefixed(value, "/s", kDecimal);
  if (unit == "FLOP" || unit == "FLOP/s" || unit == "Hz") return prefixed(value, unit, kDecimal);
  if (unit == "J" || unit == "W") {
    return std::abs(value) < 1 ? prefixed(value, unit, kSmall) : prefixed(value, unit, kDecimal);
  }
  return fmt::format("{:.3g} {}", value, unit);
}

std::string human_share(double value) {
  if (!std::isfinite(value)) return human(value, "1");
  const double percent = value * 100;
  if (percent == 0) return "0%";
  if (std::abs(percent) < 0.01) return fmt::format("{:.1g}%", percent);  // "0.008%"; tiny shares: "2e-05%"
  // A share just below 100 % must not be printed as 100 %.
  if (percent > 99.9 && percent < 100) return fmt::format("{:.2f}%", std::min(percent, 99.99));
  return fmt::format("{:.3g}%", percent);
}

std::string counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string some_of(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

std::string human_ratio(double ratio) {
  if (!std::isfinite(ratio)) return human(ratio, "1");
  if (ratio >= 9999.5 || (ratio < 0.005 && ratio > 0)) return fmt::format("{:.1e}x", ratio);
  return ratio < 9.995 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.0f}x", ratio);
}

std::string default_of(const DefaultSettings* defaults, const std::string& harness, const std::string& axis) {
  if (!defaults) return "default";
  const auto of_harness = defaults->find(harness);
  if (of_harness == defaults->end()) return "default";
  const auto value = of_harness->second.find(axis);
  return value == of_harness->second.end() ? "default" : value->second;
}

}  // namespace halfmark::reports
