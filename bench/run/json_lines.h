// The lines of a JSON text on which its values begin, for messages about them.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/json_parser.h"

namespace halfmark::bench {

// A value is found by its place in the tree, because the text and the tree have the same order.
class JsonLines {
 public:
  using Json = nlohmann::ordered_json;

  // `text`: valid, and `root` was read from it. `root` must stay where it is.
  JsonLines(std::string_view text, const Json& root);
  // Counted from 1; 0: it is no value of the tree.
  size_t of(const Json& value) const;

 private:
  void visit(const Json& value, const std::vector<size_t>& lines, size_t& next);
  std::unordered_map<const Json*, size_t> lines_;
};

}  // namespace halfmark::bench
