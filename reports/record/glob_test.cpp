// Names matched by patterns.
#include "reports/record/glob.h"

#include <gtest/gtest.h>

namespace halfmark::reports {
namespace {

TEST(Glob, StarStandsForAnything) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("a*c", "abbc"));
  EXPECT_TRUE(glob_matches("*fp16", "amp-fp16"));
  EXPECT_FALSE(glob_matches("fp16", "amp-fp16"));
  EXPECT_FALSE(glob_matches("a*c", "abcd"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbYbZc"));
}

}  // namespace
}  // namespace halfmark::reports
