// What happens to numbers at the ends of the range where numbers are added and not products.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accuracy/probe/probe.h"

namespace halfmark::accuracy::probe {
namespace {

// Two leaves that are added first, and one that is added to their sum.
struct InTurn {
  size_t first = 0, second = 1;
  std::optional<size_t> later;
};
InTurn in_turn(const SumTree& tree) {
  for (size_t node = 0; node < tree.nodes.size(); ++node) {
    const std::vector<size_t> terms = tree.products_of(node);
    if (terms.size() != 2 || tree.nodes[node].children.size() != 2) continue;
    InTurn found{terms[0], terms[1], {}};
    for (size_t leaf = 0; leaf < tree.k; ++leaf)
      if (leaf != found.first && leaf != found.second && !found.later) found.later = leaf;
    return found;
  }
  return {};
}

class Ranges {
 public:
  Ranges(RecordingBox& recorder, Model& model, std::vector<Finding>& findings)
      : recorder_(recorder), box_(recorder.box()), model_(model), findings_(findings), order_(in_turn(model.tree)) {}

  void find_subnormals() {
    const int lowest = box_.a.min_subnormal_exponent(), normal = box_.a.min_exponent();
    const double small = std::ldexp(1.0, lowest), above = std::ldexp(1.0, normal);
    const double sum = value({{order_.first, above}, {order_.second, small}}), alone = value({{order_.first, small}});
    model_.flush_inputs = sum == above;
    add("subnormal operands",
        sum == above + small ? "honoured"
        : sum == above       ? "flushed to zero"
                             : "changed",
        fmt::format("2^{} + 2^{} gives {}", normal, lowest, sum));
    // A difference of normal numbers, so that an operand that is flushed does not hide it.
    const double difference = value({{order_.first, 1.5 * above}, {order_.second, -above}});
    model_.flush_results = difference == 0;
    add("subnormal results",
        difference == above / 2 ? "honoured"
        : difference == 0       ? "flushed to zero"
                                : "changed",
        fmt::format("1.5 2^{0} - 2^{0} gives {1}; 2^{2} alone gives {3}", normal, difference, lowest, alone));
  }

  void find_specials() {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    if (box_.a.has_nan())
      add("NaN", code({{order_.first, nan}}), fmt::format("NaN; -NaN gives {}", code({{order_.first, -nan}})));
    if (box_.a.has_infinity())
      add("invalid", code({{order_.first, infinity}, {order_.second, -infinity}}),
          fmt::format("Inf - Inf; Inf gives {}", code({{order_.first, infinity}})));
    Question zeros = question_of(box_, {});
    for (double& a : zeros.a) a = -0.0;
    const bool is_kept = std::signbit(decode(box_.d_type, recorder_.code(zeros)));
    add("negative zero", is_kept ? "kept" : "becomes +0", "the sum of -0 from every device");
  }

  // Twice the largest power of two; and the same with a number added later that brings it back.
  void find_overflow() {
    const int top = box_.d.max_exponent();
    const double half = std::ldexp(1.0, top);
    add("overflow", code({{order_.first, half}, {order_.second, half}}), fmt::format("2^{0} + 2^{0}", top));
    if (!order_.later) return;
    const double left = value({{order_.first, half}, {order_.second, half}, {*order_.later, -half}});
    add("overflow in between", left == half ? "passes" : "stays",
        fmt::format("2^{0} + 2^{0} - 2^{0}, of ranks {1}, {2} and {3}, gives {4}", top, order_.first, order_.second,
                    *order_.later, left));
  }

 private:
  void add(const std::string& parameter, const std::string& value, const std::string& evidence) {
    findings_.push_back({parameter, value, evidence});
  }
  double value(const std::vector<Term>& terms) { return recorder_.value(question_of(box_, terms)); }
  std::string code(const std::vector<Term>& terms) {
    return fmt::format("{:0{}X}", recorder_.code(question_of(box_, terms)), static_cast<size_t>(box_.d.bits() + 3) / 4);
  }

  RecordingBox& recorder_;
  const BlackBox& box_;
  Model& model_;
  std::vector<Finding>& findings_;
  InTurn order_;
};

}  // namespace

void find_term_ranges(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  Ranges ranges(recorder, model, findings);
  ranges.find_subnormals();
  ranges.find_specials();
  ranges.find_overflow();
}

}  // namespace halfmark::accuracy::probe
