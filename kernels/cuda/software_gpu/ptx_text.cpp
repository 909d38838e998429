#include "kernels/cuda/software_gpu/ptx_text.h"

#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

bool read_digits(std::string_view word, int base, uint64_t& value) {
  if (word.empty()) return false;
  value = 0;
  for (const char c : word) {
    if (digit(c) >= base) return false;
    value = value * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit(c));
  }
  return true;
}

}  // namespace

void PtxText::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_, ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (text_.substr(at_, 2) == "/*") {
      at_ += 2;
      while (at_ < text_.size() && text_.substr(at_, 2) != "*/") {
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
      at_ += 2;
    } else {
      return;
    }
  }
}

void PtxText::next() {
  skip_blanks();
  word_line_ = line_;
  if (at_ >= text_.size()) {
    word_ = {};
    return;
  }
  const size_t start = at_;
  if (text_[at_] == '"') {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    }
    ++at_;
  } else if (in_word(text_[at_])) {
    // "::" belongs to a word (".kind::mxf4"), a single ":" ends a label.
    while (at_ < text_.size() && (in_word(text_[at_]) || text_.substr(at_, 2) == "::"))
      at_ += in_word(text_[at_]) ? 1 : 2;
  } else {
    ++at_;
  }
  word_ = text_.substr(start, at_ - start);
}

bool PtxText::accept(std::string_view word) {
  if (word_ != word) return false;
  next();
  return true;
}

void PtxText::expect(std::string_view word) {
  if (!accept(word)) fail("'" + std::string(word) + "' expected, found '" + std::string(word_) + "'");
}

std::string_view PtxText::take() {
  const std::string_view word = word_;
  if (word.empty()) fail("the text ends in the middle of a statement");
  next();
  return word;
}

void PtxText::skip_line() {
  while (!word_.empty() && line_ == word_line_ && at_ < text_.size() && text_[at_] != '\n') ++at_;
  next();
}

PtxPlace PtxText::skip_block() {
  const PtxPlace begin{at_ - word_.size(), word_line_};
  for (int depth = 1; depth > 0; ++at_) {
    skip_blanks();
    if (at_ >= text_.size()) fail(begin.line, "the text ends within {");
    const char c = text_[at_];
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c != '"') continue;
    at_ = text_.find('"', at_ + 1);
    if (at_ == std::string_view::npos) fail(begin.line, "the text ends within quotes");
  }
  next();
  return begin;
}

void PtxText::fail(const std::string& what) const { fail(word_line_, what); }
void PtxText::fail(uint32_t line, const std::string& what) const {
  throw Error(file_ + ":" + std::to_string(line) + ": " + what);
}

std::string PtxText::line_text(uint32_t line) const {
  size_t start = 0;
  for (uint32_t i = 1; i < line; ++i) {
    start = text_.find('\n', start);
    if (start == std::string_view::npos) return {};
    ++start;
  }
  std::string_view found = text_.substr(start, text_.find('\n', start) - start);
  while (!found.empty() && (found.front() == ' ' || found.front() == '\t')) found.remove_prefix(1);
  while (!found.empty() && (found.back() == ' ' || found.back() == '\t' || found.back() == '\r'))
    found.remove_suffix(1);
  return std::string(found);
}

bool read_number(std::string_view word, PtxNumber& number) {
  const bool negative = word.starts_with('-');
  if (negative) word.remove_prefix(1);
  if (word.empty() || digit(word[0]) > 9) return false;
  number.kind = PtxNumber::Kind::integer;
  const std::string_view start = word.substr(0, 2);
  if (start == "0f" || start == "0F" || start == "0d" || start == "0D") {
    const bool single = start[1] == 'f' || start[1] == 'F';
    number.kind = single ? PtxNumber::Kind::f32 : PtxNumber::Kind::f64;
    return !negative && word.size() == (single ? 10u : 18u) && read_digits(word.substr(2), 16, number.bits);
  }
  if (word.ends_with('U')) word.remove_suffix(1);
  bool read = false;
  if (start == "0x" || start == "0X")
    read = read_digits(word.substr(2), 16, number.bits);
  else if (start == "0b" || start == "0B")
    read = read_digits(word.substr(2), 2, number.bits);
  else
    read = read_digits(word, word.size() > 1 && word[0] == '0' ? 8 : 10, number.bits);
  if (negative) number.bits = ~number.bits + 1;
  return read;
}

}  // namespace halfmark::kernels::software_gpu
