// The words of a PTX module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halfmark::kernels::software_gpu {

// Where a word begins.
struct PtxPlace {
  size_t at = 0;
  uint32_t line = 1;
};

// One word at a time: names, numbers and opcodes with their modifiers ("ld.global.v4.f32"), quoted text, or one sign.
// Comments are skipped.
class PtxText {
 public:
  PtxText(std::string_view text, std::string_view file, PtxPlace from = {})
      : text_(text), file_(file), at_(from.at), line_(from.line) {
    next();
  }

  std::string_view word() const { return word_; }  // the current one; empty at the end
  uint32_t line() const { return word_line_; }
  const std::string& file() const { return file_; }
  bool at(std::string_view word) const { return word_ == word; }
  void next();
  bool accept(std::string_view word);  // whether it was there; then it is passed
  void expect(std::string_view word);
  std::string_view take();  // the current word, passed
  void skip_line();         // the rest of the line of the current word
  PtxPlace skip_block();    // from the current word, "{", to its "}"; where the first was

  [[noreturn]] void fail(const std::string& what) const;  // throws Error "FILE:LINE: what"
  [[noreturn]] void fail(uint32_t line, const std::string& what) const;

  // The text of a line without blanks at its ends, for messages.
  std::string line_text(uint32_t line) const;

 private:
  void skip_blanks();

  std::string_view text_;
  std::string file_;
  size_t at_ = 0;
  uint32_t line_ = 1, word_line_ = 1;
  std::string_view word_;
};

// A number as PTX writes it (section 4.5): 12, -8, 0x1F, 017, 0b101, 5U, 0f3F800000 (f32), 0d3FF0000000000000 (f64).
struct PtxNumber {
  enum class Kind : uint8_t { integer, f32, f64 };
  Kind kind = Kind::integer;
  uint64_t bits = 0;
};
bool read_number(std::string_view word, PtxNumber& number);

}  // namespace halfmark::kernels::software_gpu
