// The sizes of a subject as its id writes them: "b32_c256_o256_s14_k3x1". Each is a letter and a whole number, or two
// for height and width. A letter with its usual value is left out, so that one subject has one id.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "models/namespaces.h"

namespace halfmark::models {

struct Extent {
  int64_t h = 0, w = 0;  // equal for sizes that are no pair
  friend bool operator==(const Extent&, const Extent&) = default;
};

class Sizes;

struct SizeLetter {
  char letter;
  std::string_view about;                         // "batch", "input channels"
  bool is_pair = false;                           // may be height x width: "3x1"
  std::string_view usual = "";                    // the usual value in words: "1", "k"; empty: the letter must be given
  Extent (*usual_value)(const Sizes&) = nullptr;  // from the letters before this one
  int64_t least = 1, most = int64_t{1} << 24;
};

class Sizes {
 public:
  // `text` in any order of the letters. Throws Error that begins with the id and says what is wrong.
  Sizes(std::string_view family, std::span<const SizeLetter> letters, std::string_view text);

  int64_t operator[](char letter) const;  // not of a pair
  Extent extent(char letter) const;
  const std::string& family() const { return family_; }
  std::string text() const;  // in the order of the family, without usual values
  std::string id() const { return family_ + "/" + text(); }

  // Throws Error "conv2d/b2_c3_o4_s8_k3_g2: WHAT" unless `holds`.
  void check(bool holds, const std::string& what) const;
  // Throws Error unless a tensor of these extents has at most 2^36 elements, more than any machine's memory.
  void check_elements(std::string_view what, std::initializer_list<int64_t> extents) const;

 private:
  void read(std::string_view part);

  std::string family_;
  std::span<const SizeLetter> letters_;
  std::string given_;  // as typed, for messages
  std::map<char, Extent> values_;
};

// "b batch, c input channels, s height and width (s14 or s14x28), t stride (usually 1)"
std::string letters_text(std::span<const SizeLetter> letters);

}  // namespace halfmark::models
