// Tables and units: widths, wrapping, and no control characters for the terminal.
#include "reports/text/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace halfmark::reports {
namespace {

size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(Table, AlignsNamesLeftAndNumbersRight) {
  Table table({"policy", "step"});
  table.add({{"fp32"}, {"10 ms"}});
  table.add({{"amp-fp16"}, {"5 ms"}});
  EXPECT_EQ(table.text({}), "policy     step\nfp32      10 ms\namp-fp16   5 ms\n");
}

TEST(Table, GoesOnBelowWhenItIsWiderThanTheTerminal) {
  Table table({"policy", "first column", "second column", "third column"});
  table.add({{"fp32"}, {"1"}, {"2"}, {"3"}});
  for (size_t width : {24u, 40u, 60u}) {
    const std::string text = table.text({.width = width});
    EXPECT_LE(longest_line(text), width) << text;
    for (const char* title : {"first column", "second column", "third column"}) {
      EXPECT_NE(text.find(title), text.npos) << text;
    }
  }
  EXPECT_EQ(table.text({.width = 24}),
            "policy  first column\nfp32               1\n\n"
            "policy  second column\nfp32                2\n\n"
            "policy  third column\nfp32               3\n");
}

TEST(Table, CutsNoTextHoweverLong) {
  const std::string name(70, 'n'), about = "as fp16, batch norm parameters and statistics in f32, no loss scaling";
  Table table({"policy", "about", "step"}, 2);
  table.add({{name}, {about}, {"10 ms"}});
  EXPECT_NE(table.text({.width = 1000}).find(name + "  " + about + "  10 ms"), std::string::npos);
  for (size_t width : {40u, 60u, 80u, 100u}) {
    const std::string text = table.text({.width = width});
    EXPECT_LE(longest_line(text), width) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), 'n') - std::count(about.begin(), about.end(), 'n'), 70) << text;
    for (const char* word : {"batch", "parameters", "statistics", "scaling", "10 ms"})
      EXPECT_NE(text.find(word), text.npos) << word << " at " << width << "\n" << text;
  }
}

TEST(Table, GoesOnInTheNextLineAtABlankOrASlash) {
  Table table({"name", "value"});
  table.add({{"conv2d/b16_c64_o64 on cpu"}, {"123456789012"}});
  EXPECT_EQ(table.text({.width = 28}),
            "name                   value\n"
            "conv2d/         123456789012\n"
            "b16_c64_o64 on\n"
            "cpu\n");
}

TEST(Table, ColoursOnlyWhenTold) {
  Table table({"policy", "nmse"});
  table.add({{"fp16"}, {"NaN", Tone::bad}});
  EXPECT_EQ(table.text({}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.text({.colour = true}).find("\x1b[31mNaN\x1b[0m"), std::string::npos);
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({"policy", "x"});
  table.add({{"größe"}, {"1"}});
  table.add({{"size.."}, {"1"}});
  EXPECT_EQ(table.text({}), "policy  x\ngröße   1\nsize..  1\n");
}

TEST(Table, DoesNotLetAReportDriveTheTerminal) {
  Table table({"policy\n", "x"});
  table.add({{"\x1b[2Jfp16"}, {"1"}});
  const std::string gone(kReplacement);
  EXPECT_EQ(table.text({}), "policy    x\n" + gone + "[2Jfp16  1\n");
  EXPECT_EQ(wrapped("", "a\x1b]0;b\a", 80), "a" + gone + "]0;b" + gone + "\n");
}

TEST(Text, WrapsAtTheWidth) {
  EXPECT_EQ(wrapped("- ", "one two three four five six seven", 24), "- one two three four\n  five six seven\n");
  EXPECT_EQ(wrapped("- ", "", 24), "- \n");
}

TEST(Units, AreHuman) {
  EXPECT_EQ(human(1.8421e-3, "s"), "1.84 ms");
  EXPECT_EQ(human(0.99999, "s"), "1 s");
  EXPECT_EQ(human(3.2e-10, "s"), "0.32 ns");
  EXPECT_EQ(human(75, "s"), "75 s");
  EXPECT_EQ(human(1024, "B"), "1 KiB");
  EXPECT_EQ(human(1023, "B"), "1023 B");
  EXPECT_EQ(human(13107200, "B"), "12.5 MiB");
  EXPECT_EQ(human(3.1e12, "FLOP/s"), "3.1 TFLOP/s");
  EXPECT_EQ(human(2.19e-7, "1"), "2.19e-07");
  EXPECT_EQ(human(0, "B"), "0 B");
  EXPECT_EQ(human(12, "dB"), "12 dB");
  EXPECT_EQ(human(std::numeric_limits<double>::quiet_NaN(), "s"), "NaN");
  EXPECT_EQ(human(-std::numeric_limits<double>::infinity(), "B"), "-inf");
  EXPECT_EQ(human_share(0.125), "12.5%");
  EXPECT_EQ(human_share(0), "0%");
  EXPECT_EQ(human_share(0.9999), "99.99%");
  EXPECT_EQ(human_share(8e-5), "0.008%");
  EXPECT_EQ(human_share(2.4e-6), "0.0002%");
  EXPECT_EQ(human_share(2e-7), "2e-05%");
  EXPECT_EQ(counted(0, "record"), "0 records");
  EXPECT_EQ(counted(1, "record"), "1 record");
  EXPECT_EQ(counted(2, "record"), "2 records");
  EXPECT_EQ(human_ratio(1.847), "1.85x");
  EXPECT_EQ(human_ratio(123.4), "123x");
  EXPECT_EQ(human_ratio(3.2e8), "3.2e+08x");
}

}  // namespace
}  // namespace halfmark::reports
