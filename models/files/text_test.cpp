// Text by character.
#include "models/files/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/files_testing.h"
#include "models/files/open.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

class TextFiles : public FilesTest {
 protected:
  void write_text(const std::string& name, std::string_view text) const { write(name, bytes_of(text)); }
};

TEST_F(TextFiles, CharactersAreNumberedByCodePointAndTheLabelIsTheNextOne) {
  // Nine tenths of 20 characters are "hello w\u00F6rld, hello"; the rest is " h". In order: " ,dehlorw\u00F6".
  write_text("input.txt", "hello w\xC3\xB6rld, hello h");
  const auto data = open_data_set(folder_, DataKind::text);
  EXPECT_EQ(data->facts().training, 18);
  EXPECT_EQ(data->facts().held_out, 2);
  EXPECT_EQ(data->needs(DataKind::text, {1, 1}).classes, 10);
  const Shape input = {1, 5};
  EXPECT_EQ(data->samples(Split::training, input), 13);
  double x[5], next[5];
  data->sample(Split::training, 4, input, x, next);  // "o w\u00F6r"
  EXPECT_EQ(std::vector<double>(x, x + 5), (std::vector<double>{6, 0, 8, 9, 7}));
  EXPECT_EQ(std::vector<double>(next, next + 5), (std::vector<double>{0, 8, 9, 7, 5}));
  data->sample(Split::training, 12, input, x, next);  // the last: its labels end with the training part
  EXPECT_EQ(std::vector<double>(next, next + 5), (std::vector<double>{4, 3, 5, 5, 6}));
  EXPECT_EQ(data->samples(Split::held_out, {1, 1}), 1);
  data->sample(Split::held_out, 0, {1, 1}, x, next);
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(next[0], 4);
}

TEST_F(TextFiles, HeldOutSequencesDoNotOverlapAndAreNotTrainedOn) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i / 100);  // a hundred of each of ten letters
  write_text("a.txt", text);
  const auto data = open_data_set(folder_ / "a.txt", DataKind::text);
  const Shape input = {1, 30};
  EXPECT_EQ(data->samples(Split::held_out, input), 3);
  double x[30], next[30];
  for (int64_t n = 0; n < 3; ++n) {
    data->sample(Split::held_out, n, input, x, next);
    for (int i = 0; i < 30; ++i) EXPECT_EQ(x[i], 9);
  }
  data->sample(Split::training, data->samples(Split::training, input) - 1, input, x, next);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(next[i], 8);
}

TEST_F(TextFiles, TheSubjectNeedsAClassForEachCharacter) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>(' ' + i % 65);
  write_text("b.txt", text);
  const auto data = open_data_set(folder_, DataKind::text);
  const auto refusal = [&](const std::string& id) { return complaint([&] { check_fits(*data, subject_named(id)); }); };
  EXPECT_EQ(refusal("gpt/b2_t8_n1_h2_d8_v27"), "subject gpt/b2_t8_n1_h2_d8_v27: takes [8] and has 27 classes; " +
                                                   data->facts().name +
                                                   " has text of 65 different characters; gpt/b2_t8_n1_h2_d8_v65 fits");
  EXPECT_EQ(refusal("gpt/b2_t8_n1_h2_d8_v65"), "");
  EXPECT_EQ(refusal("gpt/b2_t400_n1_h2_d8_v65"),
            (folder_ / "b.txt").string() +
                ": its last tenth has 400 characters, and a sequence of 400 and the next character are more; take "
                "shorter sequences or more text");
}

TEST_F(TextFiles, WhatIsNotUtf8IsRefusedWithItsPlace) {
  const auto refusal = [](std::string_view text) { return complaint([&] { decode_utf8(bytes_of(text), "f"); }); };
  const auto at = [](int place) {
    return "f: byte " + std::to_string(place) + " is not UTF-8; convert the text to it";
  };
  EXPECT_EQ(refusal("a\xE2\x82\xAC\xF0\x9F\x98\x80z"), "");
  EXPECT_EQ(decode_utf8(bytes_of("a\xC3\xB6\xE2\x82\xAC\xF0\x9F\x98\x80"), "f"),
            (std::vector<char32_t>{'a', 0xF6, 0x20AC, 0x1F600}));
  EXPECT_EQ(refusal("ab\xFF"), at(2));
  EXPECT_EQ(refusal("ab\x80"), at(2));
  EXPECT_EQ(refusal("a\xC3"), at(1));
  EXPECT_EQ(refusal("a\xC3z"), at(1));
  EXPECT_EQ(refusal("\xC0\x80"), at(0)) << "overlong";
  EXPECT_EQ(refusal("\xE0\x80\x80"), at(0)) << "overlong";
  EXPECT_EQ(refusal("\xED\xA0\x80"), at(0)) << "a surrogate";
  EXPECT_EQ(refusal("\xF4\x90\x80\x80"), at(0)) << "above the last code point";
}

TEST_F(TextFiles, AMutatedFileIsReadOrRefusedInOneLine) {
  mutate(bytes_of("a\xC3\xB6\xE2\x82\xAC\xF0\x9F\x98\x80 and so on"),
         [](const std::vector<uint8_t>& bytes) { text_data_set(bytes, "f", DataFacts()); });
}

TEST_F(TextFiles, AFolderNeedsOneText) {
  const auto opened = [&] { return complaint([&] { open_data_set(folder_, DataKind::text); }); };
  write_text("a.txt", "one"), write_text("b.txt", "two");
  EXPECT_EQ(opened(), folder_.string() +
                          ": holds a.txt, b.txt; for data of the kind 'text' these were looked for: a .txt file, or a "
                          "folder with input.txt or one .txt file");
  write_text("input.txt", "");
  EXPECT_EQ(opened(), (folder_ / "input.txt").string() + ": has no characters");
}

}  // namespace
}  // namespace halfmark::models
