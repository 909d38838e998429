// Conditions on named numbers, as the rules of claims have them: "flushed > 10 * scaled and scaled < 0.01".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/measurement.h"

namespace halfmark::reports {

// A number with the range in which it lies: two standard errors, or its confidence interval; a range of one point else.
struct UncertainNumber {
  double value = 0;
  Range range{};
};
using Numbers = std::map<std::string, UncertainNumber, std::less<>>;

enum class Truth : uint8_t { no, yes, open };  // open: it depends on where in their ranges the numbers lie

// Numbers, names, + - * / ( ), abs, min, max, sqrt, log2, comparisons < <= == != >= >, and, or. A comparison with NaN is no.
class Expression {
 public:
  explicit Expression(std::string_view text);  // throws ReportError that says where the text is wrong
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  const std::string& text() const { return text_; }
  const std::vector<std::string>& names() const { return names_; }  // each once, in the order of the text
  // Throws ReportError for a name that `numbers` lacks.
  double value(const Numbers& numbers) const;
  // At the value and at all ends of the ranges.
  Truth holds(const Numbers& numbers) const;

  struct Node;

 private:
  std::string text_;
  std::vector<std::string> names_;
  std::unique_ptr<Node> root_;
};

}  // namespace halfmark::reports
