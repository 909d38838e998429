#include "accuracy/experiments/minimal_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "kernels/tensor/random.h"

namespace halfmark::accuracy {
namespace {

// Counts its tests, and knows which items are needed.
struct Needs {
  std::set<size_t> items;
  int tests = 0;
  bool operator()(const ItemSet& set) {
    ++tests;
    for (const size_t item : items)
      if (!set[item]) return false;
    return true;
  }
};

std::set<size_t> items_of(const ItemSet& set) {
  std::set<size_t> found;
  for (size_t i = 0; i < set.size(); ++i)
    if (set[i]) found.insert(i);
  return found;
}

TEST(MinimalSet, FindsEverySetOfFourAmongFiftyInFortyTestsWithoutHints) {
  const RandomKey key(3);
  for (uint64_t draw = 0; draw < 300; ++draw) {
    Needs needs;
    for (uint64_t i = 0; i < draw % 5; ++i) needs.items.insert(static_cast<size_t>(key.uniform(draw * 5 + i) * 50));
    const FoundSet found =
        minimal_set({.items = 50, .most_tests = 40, .passes = [&](const ItemSet& set) { return needs(set); }});
    EXPECT_EQ(items_of(found.items), needs.items);
    EXPECT_TRUE(found.passes && found.is_minimal) << draw;
    EXPECT_EQ(found.tests, needs.tests);
    EXPECT_LE(found.tests, 40);
  }
}

TEST(MinimalSet, TakesAwayWhatWrongHintsAdded) {
  for (const size_t wrong : {0, 13, 49}) {
    Needs needs{.items = {20, 30}};
    size_t next = 0;
    const std::vector<size_t> hints = {20, wrong, 30};
    const FoundSet found = minimal_set({.items = 50,
                                        .most_tests = 40,
                                        .passes = [&](const ItemSet& set) { return needs(set); },
                                        .hint = [&](const ItemSet&) { return std::optional(hints[next++]); },
                                        .most_hints = 3});
    EXPECT_EQ(items_of(found.items), needs.items);
    EXPECT_TRUE(found.is_minimal);
    EXPECT_LE(found.tests, 9);
  }
}

// Errors that add up: any 30 of 50 items are enough. No culprit exists, and forty tests cannot prove a set of thirty.
TEST(MinimalSet, SaysThatASetIsNotProvedIfTheTestsRunOut) {
  const FoundSet found =
      minimal_set({.items = 50, .most_tests = 40, .passes = [](const ItemSet& set) { return count_of(set) >= 30; }});
  EXPECT_TRUE(found.passes);
  EXPECT_FALSE(found.is_minimal);
  EXPECT_GE(count_of(found.items), 30u);
  EXPECT_LE(count_of(found.items), 44u);
  EXPECT_EQ(found.tests, 40);
}

TEST(MinimalSet, FindsSetsThatAddUpIfThereAreTestsEnough) {
  const FoundSet found =
      minimal_set({.items = 50, .most_tests = 500, .passes = [](const ItemSet& set) { return count_of(set) >= 7; }});
  EXPECT_EQ(count_of(found.items), 7u);
  EXPECT_TRUE(found.is_minimal);
}

TEST(MinimalSet, SaysThatNothingPasses) {
  const FoundSet found = minimal_set({.items = 9, .most_tests = 40, .passes = [](const ItemSet&) { return false; }});
  EXPECT_FALSE(found.passes || found.is_minimal);
  EXPECT_EQ(found.tests, 1);
}

TEST(MinimalSet, IsEmptyIfNothingIsNeeded) {
  const FoundSet found = minimal_set({.items = 9, .most_tests = 40, .passes = [](const ItemSet&) { return true; }});
  EXPECT_EQ(count_of(found.items), 0u);
  EXPECT_TRUE(found.passes && found.is_minimal);
  EXPECT_EQ(found.tests, 2);
}

// A superset of a passing set may fail: what is returned has passed all the same.
TEST(MinimalSet, ReturnsASetThatPassedAlsoIfTheTestIsNotMonotone) {
  const RandomKey key(8);
  for (uint64_t draw = 0; draw < 50; ++draw) {
    std::set<ItemSet> passed;
    uint64_t drawn = 0;
    const FoundSet found = minimal_set({.items = 12, .most_tests = 30, .passes = [&](const ItemSet& set) {
                                          const bool ok =
                                              count_of(set) == 12 || key.uniform(draw * 100 + drawn++) < 0.3;
                                          if (ok) passed.insert(set);
                                          return ok;
                                        }});
    EXPECT_TRUE(passed.contains(found.items)) << draw;
    EXPECT_LE(found.tests, 30);
  }
}

}  // namespace
}  // namespace halfmark::accuracy
