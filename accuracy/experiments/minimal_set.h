// The search for a smallest set of items that makes a test pass, with few tests.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "accuracy/namespaces.h"

namespace halfmark::accuracy {

using ItemSet = std::vector<bool>;  // one entry for each item: whether it belongs to the set

struct SetSearch {
  size_t items = 0;
  int most_tests = 0;
  std::function<bool(const ItemSet&)> passes;  // the test; called once for each set
  // After the test of this set has failed: the item that may be missing; nothing: no idea. A hint decides only what is
  // tested next. May be empty.
  std::function<std::optional<size_t>(const ItemSet&)> hint{};
  int most_hints = 0;
};

struct FoundSet {
  ItemSet items;
  bool passes = false;      // false: not even all items together pass
  bool is_minimal = false;  // the set passes, and without any one of its items the test was made and failed
  int tests = 0;
};

// 1. All items, and none. 2. Hinted items are added until the test passes. 3. If it does not: the shortest prefix of the
// items that passes together with those found, by halving; its last item is needed; and again with the items before it.
// 4. Items are taken away, first many at once if step 3 found no end, then each alone, until none can be missed.
// The halving assumes that a superset of a passing set passes; what step 4 proves does not. After `most_tests` the
// smallest set that has passed is returned.
FoundSet minimal_set(const SetSearch& search);

size_t count_of(const ItemSet& items);

}  // namespace halfmark::accuracy
