#include "reports/outputs/clean.h"

#include <gtest/gtest.h>

#include <regex>

#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

const std::string kGone(kReplacement);

TEST(Clean, ReplacesWhatIsNoUtf8AndKeepsTheRest) {
  EXPECT_EQ(valid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x94\xA5|"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x94\xA5|");
  EXPECT_EQ(valid_utf8("a\xFFz"), "a" + kGone + "z");
  EXPECT_EQ(valid_utf8("cut \xE2\x82"), "cut " + kGone);
  EXPECT_EQ(valid_utf8(bytes("nul \0.")), bytes("nul \0."));
  for (const char* wrong : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"})  // overlong, surrogate, too high
    EXPECT_NE(valid_utf8(wrong).find(kGone), std::string::npos);
}

TEST(Clean, PutsEverythingOnOneLine) {
  EXPECT_EQ(printable("two\nlines\tand\r\na third\xE2\x80\xA8."), "two lines and  a third .");
  EXPECT_EQ(printable("\x1B[31mred\x7F"), kGone + "[31mred" + kGone);
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            kGone + "31m");  // the one-character form of ESC [
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "abc"),
            kGone + "abc");
  EXPECT_EQ(printable("gr\xC3\xB6\xC3\x9F"
                      "e"),
            "gr\xC3\xB6\xC3\x9F"
            "e");
}

TEST(Clean, LeavesOutOfXmlWhatItForbids) {
  EXPECT_EQ(xml_characters("tab\tline\nreturn\r"), "tab\tline\nreturn\r");
  EXPECT_EQ(xml_characters("\x01\x1F"), kGone + kGone);
  EXPECT_EQ(xml_characters("\xEF\xBF\xBE\xEF\xBF\xBF"), kGone + kGone);
}

TEST(Clean, TakesTheMarkupOutOfMarkdown) {
  EXPECT_EQ(markdown_text("a|b"), "a&#124;b");
  EXPECT_EQ(markdown_text("a\\|b"), "a&#92;&#124;b");
  EXPECT_EQ(markdown_text("<b>&amp;`"), "&#60;b&#62;&#38;amp;&#96;");
  EXPECT_EQ(markdown_text("b16_i32_h64"), "b16_i32_h64");
  EXPECT_EQ(markdown_text("_a_"), "&#95;a&#95;");
  EXPECT_EQ(markdown_text("two\nlines"), "two lines");
  for (const std::string& name : hostile_names())
    EXPECT_FALSE(std::regex_search(markdown_text(name.substr(0, 300)), std::regex("[|<>`*\\n]|&(?!#[0-9]+;)"))) << name;
}

TEST(Clean, MentionsNobody) {
  EXPECT_EQ(markdown_text("@someone"), "@&#8288;someone");
  EXPECT_EQ(markdown_text("http://www.a"), "http&#58;//www&#46;a");
}

TEST(Clean, AddsNothingVisibleToCodeSoThatACopyRuns) {
  EXPECT_EQ(markdown_code("halfmark run --case a/@x"), "<code>halfmark run --case a/@<!-- -->x</code>");
  EXPECT_EQ(markdown_code(""), "");
}

TEST(Clean, EscapesWorkflowCommands) {
  EXPECT_EQ(workflow_message("100 %\r\na:b,c"), "100 %25%0D%0Aa:b,c");
  EXPECT_EQ(workflow_property("100 %\r\na:b,c"), "100 %25%0D%0Aa%3Ab%2Cc");
}

TEST(Clean, CutsInTheMiddleAndNeverInACharacter) {
  EXPECT_EQ(middle_cut("abcdef", 6), "abcdef");
  EXPECT_EQ(middle_cut("abcdefgh", 4), "ab .. gh");
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xE2\x82\xAC";
  for (size_t bytes = 0; bytes < 300; ++bytes) {
    const std::string cut = middle_cut(euros, bytes);
    EXPECT_EQ(cut, valid_utf8(cut)) << bytes;
    EXPECT_LE(cut.size(), bytes + 4);
  }
}

}  // namespace
}  // namespace halfmark::reports
