#include "models/files/text.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

class TextDataSet : public DataSet {
 public:
  TextDataSet(std::vector<uint32_t> characters, int64_t vocabulary, std::string where, DataFacts facts)
      : where_(std::move(where)),
        characters_(std::move(characters)),
        vocabulary_(vocabulary),
        training_(static_cast<int64_t>(characters_.size()) * 9 / 10),
        facts_(std::move(facts)) {
    facts_.unit = "characters", facts_.hashed = "contents";
    facts_.normalisation = "none: characters are indices by code point";
    facts_.training = training_, facts_.held_out = static_cast<int64_t>(characters_.size()) - training_;
  }

  const DataFacts& facts() const override { return facts_; }

  Needs needs(DataKind, const Shape& input) const override {
    // One more than a sample, whose last label is the next character.
    HM_CHECK(input[1] < facts_.held_out, where_ + ": its last tenth has " + std::to_string(facts_.held_out) +
                                             (facts_.held_out == 1 ? " character" : " characters") +
                                             ", and a sequence of " + std::to_string(input[1]) +
                                             " and the next character are more; take shorter sequences or more text");
    return {.sample = {},
            .classes = vocabulary_,
            .what = "text of " + std::to_string(vocabulary_) + " different characters"};
  }

  int64_t samples(Split split, const Shape& input) const override {
    // Sequences that overlap are not independent samples to evaluate on.
    return split == Split::training ? training_ - input[1] : (facts_.held_out - 1) / input[1];
  }

  void sample(Split split, int64_t index, const Shape& input, double* x, double* labels) const override {
    const int64_t length = input[1], first = split == Split::training ? index : training_ + index * length;
    for (int64_t i = 0; i < length; ++i) {
      x[i] = characters_[static_cast<size_t>(first + i)];
      labels[i] = characters_[static_cast<size_t>(first + i + 1)];
    }
  }

 private:
  std::string where_;                 // of the file
  std::vector<uint32_t> characters_;  // indices into the vocabulary
  int64_t vocabulary_, training_;
  DataFacts facts_;
};

}  // namespace

std::vector<char32_t> decode_utf8(Bytes file, const std::string& where) {
  std::vector<char32_t> decoded;
  decoded.reserve(file.size());
  for (size_t at = 0; at < file.size();) {
    const uint8_t first = file[at];
    const size_t length = first < 0x80   ? 1
                          : first < 0xC0 ? 0
                          : first < 0xE0 ? 2
                          : first < 0xF0 ? 3
                          : first < 0xF8 ? 4
                                         : 0;
    bool fine = length > 0 && at + length <= file.size();
    uint32_t code = length == 1 ? first : first & (0x7Fu >> length);
    for (size_t i = 1; fine && i < length; ++i) {
      fine = (file[at + i] & 0xC0) == 0x80;
      code = code << 6 | (file[at + i] & 0x3Fu);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    fine = fine && code >= kLeast[length] && code <= 0x10FFFF && !(code >= 0xD800 && code < 0xE000);
    HM_CHECK(fine, where + ": byte " + std::to_string(at) + " is not UTF-8; convert the text to it");
    decoded.push_back(code);
    at += length;
  }
  return decoded;
}

std::shared_ptr<const DataSet> text_data_set(Bytes file, const std::string& where, DataFacts facts) {
  const std::vector<char32_t> text = decode_utf8(file, where);
  HM_CHECK(!text.empty(), where + ": has no characters");
  std::vector<char32_t> vocabulary = text;
  std::sort(vocabulary.begin(), vocabulary.end());
  vocabulary.erase(std::unique(vocabulary.begin(), vocabulary.end()), vocabulary.end());
  std::vector<uint32_t> indices;
  indices.reserve(text.size());
  for (const char32_t one : text)
    indices.push_back(
        static_cast<uint32_t>(std::lower_bound(vocabulary.begin(), vocabulary.end(), one) - vocabulary.begin()));
  return std::make_shared<TextDataSet>(std::move(indices), static_cast<int64_t>(vocabulary.size()), where,
                                       std::move(facts));
}

std::shared_ptr<const DataSet> open_text(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, error)) {
    file = path / "input.txt";
    if (!std::filesystem::exists(file, error)) {
      std::vector<std::filesystem::path> found;
      for (const auto& entry : std::filesystem::directory_iterator(path, error))
        if (entry.path().extension() == ".txt") found.push_back(entry.path());
      if (found.size() != 1) return nullptr;
      file = found.front();
    }
  }
  constexpr int64_t kMostText = int64_t{1} << 30;  // eight bytes of memory for each
  const std::vector<uint8_t> bytes = read_bytes(file, kMostText);
  FileHash hash;
  hash.add("", bytes);
  DataFacts facts;
  facts.kind = "text", facts.name = own_name(path), facts.hash = hash.text();
  return text_data_set(bytes, file.string(), std::move(facts));
}

}  // namespace halfmark::models
