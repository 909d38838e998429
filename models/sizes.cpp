#include "models/sizes.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

// A whole number that is all of `text`.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_plain = !text.empty() && text.front() != '-' && text.front() != '+';
  const bool has_no_leading_zero = text.size() == 1 || (!text.empty() && text.front() != '0');
  if (!is_plain || !has_no_leading_zero || problem != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string text_of(const Extent& extent) {
  return extent.h == extent.w ? std::to_string(extent.h) : std::to_string(extent.h) + "x" + std::to_string(extent.w);
}

}  // namespace

Sizes::Sizes(std::string_view family, std::span<const SizeLetter> letters, std::string_view text)
    : family_(family), letters_(letters), given_(text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('_', begin), text.size());
    read(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string missing;
  for (const SizeLetter& letter : letters_) {
    if (values_.contains(letter.letter)) continue;
    if (letter.usual_value && missing.empty())
      values_[letter.letter] = letter.usual_value(*this);
    else if (!letter.usual_value)
      missing += (missing.empty() ? "" : ", ") + std::string(1, letter.letter) + " (" + std::string(letter.about) + ")";
  }
  check(missing.empty(), "without " + missing + "; " + family_ + " has " + letters_text(letters_));
}

void Sizes::read(std::string_view part) {
  const auto known = std::find_if(letters_.begin(), letters_.end(), [&](const SizeLetter& letter) {
    return !part.empty() && letter.letter == part.front();
  });
  check(known != letters_.end(), (part.empty() ? "an empty part" : "unknown '" + std::string(part) + "'") + "; " +
                                     family_ + " has " + letters_text(letters_));
  const std::string_view numbers = part.substr(1);
  const size_t cross = known->is_pair ? numbers.find('x') : numbers.npos;
  const std::optional<int64_t> h = number_in(numbers.substr(0, cross));
  const std::optional<int64_t> w = cross == numbers.npos ? h : number_in(numbers.substr(cross + 1));
  const std::string letter(1, known->letter);
  const bool is_too_large = !(h && w) && numbers.find_first_not_of("0123456789") == numbers.npos && numbers.size() > 18;
  check(!is_too_large, letter + " (" + std::string(known->about) + ") is more than " + std::to_string(known->most));
  check(h && w, "'" + std::string(part) + "' is not " + letter + " (" + std::string(known->about) +
                    ") and a whole number, as " + letter + "8" + (known->is_pair ? " or " + letter + "8x4" : ""));
  for (const int64_t value : {*h, *w})
    check(known->least <= value && value <= known->most,
          letter + " (" + std::string(known->about) + ") is " + std::to_string(value) + ", not in " +
              std::to_string(known->least) + " ... " + std::to_string(known->most));
  check(values_.emplace(known->letter, Extent{*h, *w}).second, letter + " is given twice");
}

Extent Sizes::extent(char letter) const { return values_.at(letter); }

int64_t Sizes::operator[](char letter) const {
  const Extent both = extent(letter);
  HM_CHECK(both.h == both.w, id() + ": " + std::string(1, letter) + " is a pair");
  return both.h;
}

std::string Sizes::text() const {
  std::string text;
  for (const SizeLetter& letter : letters_) {
    const Extent value = extent(letter.letter);
    if (letter.usual_value && letter.usual_value(*this) == value) continue;
    text += (text.empty() ? "" : "_") + std::string(1, letter.letter) + text_of(value);
  }
  return text;
}

void Sizes::check(bool holds, const std::string& what) const {
  if (!holds) throw Error(family_ + "/" + given_ + ": " + what);
}

void Sizes::check_elements(std::string_view what, std::initializer_list<int64_t> extents) const {
  constexpr double kMost = 0x1p36;
  double elements = 1;
  for (const int64_t extent : extents) elements *= static_cast<double>(extent);
  check(elements <= kMost, std::string(what) + " would have more than 2^36 elements");
}

std::string letters_text(std::span<const SizeLetter> letters) {
  std::string text;
  for (const SizeLetter& letter : letters) {
    text += (text.empty() ? "" : ", ") + std::string(1, letter.letter) + " " + std::string(letter.about);
    if (letter.usual_value) text += " (usually " + std::string(letter.usual) + ")";
  }
  return text;
}

}  // namespace halfmark::models
