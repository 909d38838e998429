#include "reports/claims/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "reports/record/error.h"

namespace halfmark::reports {

// A number, a name, or an operation on the values of others. Conditions are 1 or 0.
struct Expression::Node {
  using Function = double (*)(const std::vector<double>&);
  double number = 0;
  std::string name;
  Function function = nullptr;
  std::vector<std::unique_ptr<Node>> operands;

  double value(const std::function<double(const std::string&)>& of_name) const {
    if (!name.empty()) return of_name(name);
    if (!function) return number;
    std::vector<double> values;
    values.reserve(operands.size());
    for (const auto& operand : operands) values.push_back(operand->value(of_name));
    return function(values);
  }
};

namespace {

using Node = Expression::Node;
using Operands = std::vector<double>;

struct Operation {
  std::string_view text;
  Node::Function function;
};

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A comparison with a NaN is neither true nor false.
template <class Compare>
double compared(const Operands& v) {
  return std::isnan(v[0]) || std::isnan(v[1]) ? kUnknown : static_cast<double>(Compare{}(v[0], v[1]));
}
// `deciding`: the truth of one operand that decides whatever the other is.
double joined(const Operands& v, bool deciding) {
  const auto decides = [&](double x) { return !std::isnan(x) && (x != 0) == deciding; };
  if (decides(v[0]) || decides(v[1])) return deciding;
  return std::isnan(v[0]) || std::isnan(v[1]) ? kUnknown : static_cast<double>(!deciding);
}
bool has_nan(const Operands& v) {
  return std::ranges::any_of(v, [](double x) { return std::isnan(x); });
}

// By rising precedence; operations of one level associate to the left. A longer text comes before its beginning.
const std::vector<std::vector<Operation>> kLevels = {
    {{"or", [](const Operands& v) { return joined(v, true); }}},
    {{"and", [](const Operands& v) { return joined(v, false); }}},
    {{"<=", compared<std::less_equal<>>},
     {">=", compared<std::greater_equal<>>},
     {"==", compared<std::equal_to<>>},
     {"!=", compared<std::not_equal_to<>>},
     {"<", compared<std::less<>>},
     {">", compared<std::greater<>>}},
    {{"+", [](const Operands& v) { return v[0] + v[1]; }}, {"-", [](const Operands& v) { return v[0] - v[1]; }}},
    {{"*", [](const Operands& v) { return v[0] * v[1]; }}, {"/", [](const Operands& v) { return v[0] / v[1]; }}},
};

struct NamedFunction {
  std::string_view name;
  size_t least, most;  // arguments
  Node::Function function;
};
constexpr size_t kAny = 100;
const NamedFunction kFunctions[] = {
    {"abs", 1, 1, [](const Operands& v) { return std::fabs(v[0]); }},
    {"sqrt", 1, 1, [](const Operands& v) { return std::sqrt(v[0]); }},
    {"log2", 1, 1, [](const Operands& v) { return std::log2(v[0]); }},
    {"finite", 1, 1, [](const Operands& v) { return static_cast<double>(std::isfinite(v[0])); }},
    {"min", 2, kAny, [](const Operands& v) { return has_nan(v) ? kUnknown : *std::ranges::min_element(v); }},
    {"max", 2, kAny, [](const Operands& v) { return has_nan(v) ? kUnknown : *std::ranges::max_element(v); }},
};

class Reader {
 public:
  Reader(std::string_view text, std::vector<std::string>& names) : text_(text), names_(names) {}

  std::unique_ptr<Node> all() {
    auto node = level(0);
    skip_blanks();
    if (at_ != text_.size()) fail("an operation");
    return node;
  }

 private:
  static constexpr int kDeepest = 50;

  [[noreturn]] void fail(std::string_view wanted) const {
    throw ReportError(fmt::format("'{}': {} is expected at character {}", text_, wanted, at_ + 1));
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  static bool is_part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    const size_t end = at_ + word.size();
    if (is_part_of_name(word.back()) && end < text_.size() && is_part_of_name(text_[end])) return false;
    at_ = end;
    return true;
  }

  std::unique_ptr<Node> level(size_t number) {
    if (number == kLevels.size()) return single();
    auto left = level(number + 1);
    for (bool found = true; found;) {
      found = false;
      for (const Operation& operation : kLevels[number]) {
        if (!take(operation.text)) continue;
        auto node = std::make_unique<Node>();
        node->function = operation.function;
        node->operands.push_back(std::move(left));
        node->operands.push_back(level(number + 1));
        left = std::move(node);
        found = true;
        break;
      }
    }
    return left;
  }

  std::unique_ptr<Node> single() {
    if (++depth_ > kDeepest) fail("less nesting");
    auto node = std::make_unique<Node>();
    if (take("(")) {
      node = level(0);
      if (!take(")")) fail(")");
    } else if (take("-")) {
      node->function = [](const Operands& v) { return -v[0]; };
      node->operands.push_back(single());
    } else if (skip_blanks(); at_ < text_.size() && is_part_of_name(text_[at_])) {
      std::isdigit(static_cast<unsigned char>(text_[at_])) ? read_number(*node) : read_name(*node);
    } else {
      fail("a number, a name or (");
    }
    --depth_;
    return node;
  }

  void read_number(Node& node) {
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, node.number);
    if (error != std::errc()) fail("a number");
    at_ = static_cast<size_t>(stop - text_.data());
    if (at_ < text_.size() && is_part_of_name(text_[at_])) fail("an operation");
  }

  void read_name(Node& node) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_part_of_name(text_[at_])) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (!take("(")) {
      if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
      node.name = name;
      return;
    }
    const auto* const function = std::ranges::find(kFunctions, std::string_view(name), &NamedFunction::name);
    if (function == std::end(kFunctions)) at_ = begin, fail("abs, sqrt, log2, finite, min or max");
    node.function = function->function;
    do node.operands.push_back(level(0));
    while (take(","));
    if (!take(")")) fail(")");
    if (node.operands.size() < function->least || node.operands.size() > function->most)
      throw ReportError(fmt::format("'{}': {} takes {}", text_, name,
                                    function->most == 1 ? "one argument" : "two arguments or more"));
  }

  std::string_view text_;
  std::vector<std::string>& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Expression::Expression(std::string_view text) : text_(text) { root_ = Reader(text_, names_).all(); }
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

double Expression::value(const Numbers& numbers) const {
  return root_->value([&](const std::string& name) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) throw ReportError(fmt::format("'{}': there is no number '{}'", text_, name));
    return found->second.value;
  });
}

Truth Expression::holds(const Numbers& numbers) const {
  const double truth = value(numbers);
  if (std::isnan(truth)) return Truth::open;
  const bool at_value = truth != 0;
  std::vector<std::string> uncertain;
  for (const std::string& name : names_)
    if (const Range& range = numbers.find(name)->second.range; range.lower < range.upper) uncertain.push_back(name);
  constexpr size_t kMost = 12;  // 2^12 corners
  if (uncertain.size() > kMost)
    throw ReportError(fmt::format("'{}': has more than {} uncertain numbers", text_, kMost));
  for (size_t corner = 0; corner < size_t{1} << uncertain.size(); ++corner) {
    const auto of_name = [&](const std::string& name) {
      const UncertainNumber& number = numbers.find(name)->second;
      const auto place = std::ranges::find(uncertain, name);
      if (place == uncertain.end()) return number.value;
      return corner >> (place - uncertain.begin()) & 1 ? number.range.upper : number.range.lower;
    };
    const double at_corner = root_->value(of_name);
    if (std::isnan(at_corner) || (at_corner != 0) != at_value) return Truth::open;
  }
  return at_value ? Truth::yes : Truth::no;
}

}  // namespace halfmark::reports
