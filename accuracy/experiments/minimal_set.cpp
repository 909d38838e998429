#include "accuracy/experiments/minimal_set.h"

#include <algorithm>
#include <map>
#include <utility>

namespace halfmark::accuracy {

size_t count_of(const ItemSet& items) { return static_cast<size_t>(std::count(items.begin(), items.end(), true)); }

namespace {

constexpr int kKeptForTakingAway = 8;

class Searcher {
 public:
  explicit Searcher(const SetSearch& search) : search_(search) {}

  FoundSet found() {
    best_ = ItemSet(search_.items, true);
    const ItemSet none(search_.items, false);
    const bool all_pass = test(best_).value_or(false);
    if (all_pass && !test(none).value_or(true)) {
      ItemSet grown = with_hints(none);
      if (!test(grown).value_or(false)) grown = with_prefixes(std::move(grown));
      take_away();
    }
    return {.items = best_, .passes = all_pass, .is_minimal = all_pass && is_minimal(), .tests = tests_};
  }

 private:
  // Nothing: the tests are used up. A set that passes and is not larger than the best becomes the best.
  std::optional<bool> test(const ItemSet& set) {
    const auto known = results_.find(set);
    if (known != results_.end()) return known->second;
    if (tests_ >= search_.most_tests) return {};
    ++tests_;
    const bool passed = search_.passes(set);
    results_[set] = passed;
    if (passed && count_of(set) <= count_of(best_)) best_ = set;
    return passed;
  }

  ItemSet with_hints(ItemSet set) {
    for (int i = 0; i < search_.most_hints && search_.hint && !test(set).value_or(true); ++i) {
      const std::optional<size_t> item = search_.hint(set);
      if (!item || set[*item]) break;
      set[*item] = true;
    }
    return set;
  }

  static ItemSet with_prefix(ItemSet set, size_t length) {
    std::fill(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(length), true);
    return set;
  }

  ItemSet with_prefixes(ItemSet found) {
    size_t passing = search_.items;  // a length of the prefix that passes together with `found`
    // Some tests are kept for taking away.
    const auto reserve = [&] { return std::max(kKeptForTakingAway, static_cast<int>(count_of(found)) + 2); };
    while (tests_ < search_.most_tests - reserve() && !test(found).value_or(true)) {
      size_t failing = 0;
      while (passing - failing > 1) {
        const size_t middle = failing + (passing - failing) / 2;
        const std::optional<bool> result = test(with_prefix(found, middle));
        if (!result) return found;
        (*result ? passing : failing) = middle;
      }
      if (passing == 0) return found;  // a superset of a passing set has failed
      found[--passing] = true;
    }
    return found;
  }

  // Takes chunks away from the best set, halved from a half of it down to single items.
  void take_away() {
    size_t chunk = is_small() ? 1 : (count_of(best_) + 1) / 2;
    for (;;) {
      bool changed = false;
      const std::vector<size_t> members = members_of(best_);
      for (size_t begin = 0; begin < members.size(); begin += chunk) {
        ItemSet fewer = best_;
        for (size_t i = begin; i < std::min(members.size(), begin + chunk); ++i) fewer[members[i]] = false;
        const std::optional<bool> result = test(fewer);
        if (!result) return;
        changed = changed || *result;
      }
      if (chunk > 1)
        chunk = (chunk + 1) / 2;
      else if (!changed)
        return;
    }
  }

  // So small that each item can be taken away alone.
  bool is_small() const { return static_cast<int>(count_of(best_)) <= search_.most_tests - tests_; }

  static std::vector<size_t> members_of(const ItemSet& set) {
    std::vector<size_t> members;
    for (size_t i = 0; i < set.size(); ++i)
      if (set[i]) members.push_back(i);
    return members;
  }

  bool is_minimal() const {
    for (const size_t member : members_of(best_)) {
      ItemSet fewer = best_;
      fewer[member] = false;
      const auto known = results_.find(fewer);
      if (known == results_.end() || known->second) return false;
    }
    return true;
  }

  const SetSearch& search_;
  std::map<ItemSet, bool> results_;
  ItemSet best_;
  int tests_ = 0;
};

}  // namespace

FoundSet minimal_set(const SetSearch& search) { return Searcher(search).found(); }

}  // namespace halfmark::accuracy
