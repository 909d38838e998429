// Finds the order of addition from questions of masks and units.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/probe/probe.h"

namespace halfmark::accuracy::probe {
namespace {

constexpr size_t kNumbersAtOnce = size_t{1} << 22;  // of each operand: 32 MiB

// Magnitudes of a mask and a unit, as exponents of two.
struct Masks {
  int mask, unit;
};

class TreeBuilder {
 public:
  TreeBuilder(RecordingBox& recorder, Masks masks) : recorder_(recorder), box_(recorder.box()), masks_(masks) {
    tree_.k = box_.k, tree_.with_c = box_.takes_c;
  }

  // The tree, or the reason why the answers do not form a tree.
  TreeFinding build() {
    const size_t n = leaves();
    std::vector<size_t> all(n);
    for (size_t i = 0; i < n; ++i) all[i] = i;
    constexpr size_t kTop = SIZE_MAX;
    std::vector<Task> tasks{{all, n + 1, kTop}};
    std::vector<size_t> tops;
    while (!tasks.empty()) {
      std::vector<std::vector<size_t>> below;
      if (std::string why = measure(tasks, below); !why.empty()) return {{}, why};
      std::vector<Task> next;
      for (size_t t = 0; t < tasks.size(); ++t) {
        const Task& task = tasks[t];
        std::map<size_t, std::vector<size_t>>
            meeting;  // leaves, by the number of leaves below the node where they meet the first leaf
        for (size_t j = 1; j < task.leaves.size(); ++j) meeting[below[t][j - 1]].push_back(task.leaves[j]);
        size_t node = add_leaf(task.leaves[0]), size = 1;
        std::vector<size_t> rest;
        for (auto& [leaves_below, others] : meeting) {
          if (leaves_below == task.limit) {  // they meet in the parent: other children of it
            rest = std::move(others);
            continue;
          }
          size += others.size();
          if (leaves_below != size || leaves_below > task.limit)
            return {{},
                    fmt::format("the answers do not form a tree: k = {} would meet {} others below a node of {} leaves",
                                task.leaves[0], size - 1, leaves_below)};
          tree_.nodes.push_back({{node}, {}, size});
          node = tree_.nodes.size() - 1;
          next.push_back({std::move(others), leaves_below, node});
        }
        if (task.parent == kTop)
          tops.push_back(node);
        else
          tree_.nodes[task.parent].children.push_back(node);
        if (!rest.empty()) next.push_back({std::move(rest), task.limit, task.parent});
      }
      tasks = std::move(next);
    }
    tree_.root = tops.front();
    return {tree_, fmt::format("masks 2^{} against units 2^{}, {} questions", masks_.mask, masks_.unit, asked_)};
  }

 private:
  struct Task {
    std::vector<size_t> leaves;
    size_t limit;   // leaves below the parent
    size_t parent;  // the node above these leaves, which become one child or several
  };

  size_t leaves() const { return box_.k + (box_.takes_c ? 1 : 0); }

  size_t add_leaf(size_t leaf) {
    tree_.nodes.push_back({{}, leaf, 1});
    return tree_.nodes.size() - 1;
  }

  // For every task and every leaf except its first: the number of leaves below the node where the two meet.
  std::string measure(const std::vector<Task>& tasks, std::vector<std::vector<size_t>>& below) {
    const double mask = std::ldexp(1.0, masks_.mask), unit = std::ldexp(1.0, masks_.unit);
    std::vector<Term> units;
    for (size_t leaf = 0; leaf < leaves(); ++leaf) units.push_back(*term_of(box_, leaf, unit));
    std::vector<Question> questions;
    std::vector<double> answers;
    const auto ask = [&] {
      asked_ += questions.size();
      const std::vector<double> some = recorder_.values(std::exchange(questions, {}));
      answers.insert(answers.end(), some.begin(), some.end());
    };
    for (const Task& task : tasks)
      for (size_t j = 1; j < task.leaves.size(); ++j) {
        std::vector<Term> terms = units;
        terms[task.leaves[0]] = *term_of(box_, task.leaves[0], mask);
        terms[task.leaves[j]] = *term_of(box_, task.leaves[j], -mask);
        questions.push_back(question_of(box_, terms));
        if (questions.size() * box_.k >= kNumbersAtOnce) ask();
      }
    if (!questions.empty()) ask();
    size_t at = 0;
    for (const Task& task : tasks) {
      below.emplace_back();
      for (size_t j = 1; j < task.leaves.size(); ++j) {
        const double left = answers[at++] / unit;
        if (!(left >= 0 && left <= static_cast<double>(leaves() - 2)) || left != std::floor(left))
          return fmt::format("{} units are left of {} when k = {} and k = {} cancel", left, leaves() - 2,
                             task.leaves[0], task.leaves[j]);
        below.back().push_back(leaves() - static_cast<size_t>(left));
      }
    }
    return {};
  }

  RecordingBox& recorder_;
  const BlackBox& box_;
  Masks masks_;
  SumTree tree_;
  size_t asked_ = 0;
};

// 2^60 and 2^-40 are far enough apart for every adder of up to 64 bits, and far from the exponent limits of fp32.
int largest_mask(const BlackBox& box) {
  return std::min({60, box.d.max_exponent() - 1, box.a.max_exponent() + box.b.max_exponent() - 1});
}
int smallest_unit(const BlackBox& box) { return std::max(-40, box.d.min_subnormal_exponent()); }

// Masks that cannot overflow, and the smallest units whose sum is still exact. Smaller masks follow, for partial sums
// in formats of smaller range.
std::vector<Masks> possible_masks(RecordingBox& recorder) {
  const BlackBox& box = recorder.box();
  const size_t leaves = box.k + (box.takes_c ? 1 : 0);
  std::vector<Masks> all;
  const int top = largest_mask(box);
  for (const int mask : {top, std::min(top, 14)}) {
    if (!all.empty() && all.back().mask == mask) break;
    std::vector<int> units;
    std::vector<Question> questions;
    for (int unit = smallest_unit(box); unit <= mask - 10; ++unit) {
      std::vector<Term> terms;
      for (size_t leaf = 0; leaf < leaves; ++leaf)
        if (const auto term = term_of(box, leaf, std::ldexp(1.0, unit))) terms.push_back(*term);
      bool masked = true;
      for (const size_t leaf : {size_t{0}, leaves - 1})
        masked = masked && term_of(box, leaf, std::ldexp(1.0, mask)).has_value();
      if (terms.size() < leaves || !masked) continue;
      units.push_back(unit);
      questions.push_back(question_of(box, terms));
    }
    if (units.empty()) continue;
    // A single unit among zeros must also be kept, at every position.
    constexpr size_t kAlone = 3;
    const size_t alone[kAlone] = {0, box.k / 2, box.k - 1};
    for (const int unit : units)
      for (const size_t leaf : alone)
        questions.push_back(question_of(box, std::array{*term_of(box, leaf, std::ldexp(1.0, unit))}));
    const std::vector<double> answers = recorder.values(std::move(questions));
    for (size_t i = 0; i < units.size(); ++i) {
      const double unit = std::ldexp(1.0, units[i]);
      bool exact = answers[i] == static_cast<double>(leaves) * unit;
      for (size_t j = 0; j < kAlone; ++j) exact = exact && answers[units.size() + i * kAlone + j] == unit;
      if (!exact) continue;
      all.push_back({mask, units[i]});
      break;
    }
  }
  return all;
}

// "0-7", "0 2 .. 30", "0-1 4-5 8-9"; numbers are counted from `from`.
std::string text_of_leaves(std::vector<size_t> leaves, size_t from = 0) {
  for (size_t& leaf : leaves) leaf -= from;
  const size_t n = leaves.size();
  const auto number = [](size_t i) { return fmt::format("{}", i); };
  if (n >= 3) {
    const size_t step = leaves[1] - leaves[0];
    bool even = true;
    for (size_t i = 1; i < n; ++i) even = even && leaves[i] - leaves[i - 1] == step;
    if (even && step == 1) return fmt::format("{}-{}", leaves.front(), leaves.back());
    if (even && n > 3) return fmt::format("{} {} .. {}", leaves[0], leaves[1], leaves.back());
  }
  std::string text;
  for (size_t i = 0; i < n;) {
    size_t j = i;
    while (j + 1 < n && leaves[j + 1] == leaves[j] + 1) ++j;
    text += (i ? " " : "") + number(leaves[i]) + (j > i ? "-" + number(leaves[j]) : "");
    i = j + 1;
  }
  return text;
}

// The nodes of a chain from its first sum up to `top`: each has one child that is a sum.
std::vector<size_t> chain_below(const SumTree& tree, size_t top) {
  std::vector<size_t> chain{top};
  for (;;) {
    std::optional<size_t> sum;
    for (const size_t child : tree.nodes[chain.back()].children)
      if (!tree.nodes[child].leaf) {
        if (sum) return chain;
        sum = child;
      }
    if (!sum) break;
    chain.push_back(*sum);
  }
  return chain;
}

std::string text_of_node(const SumTree& tree, size_t top, size_t from);

// Abbreviates sums of one shape that are added one after another, each a fixed
// step of k after the last one: "((0 2 .. 30) + (1 3 .. 31)) and so on every 32
// up to 63, added in turn". Nothing if there are fewer than three or they differ.
std::string text_of_repeats(const SumTree& tree, size_t top, size_t from) {
  std::vector<size_t> parts;
  for (size_t node = top;;) {
    const std::vector<size_t>& children = tree.nodes[node].children;
    const bool join = children.size() == 2 && !tree.nodes[children[0]].leaf && !tree.nodes[children[1]].leaf;
    const bool first_is_lower = join && tree.leaves_of(children[0]).front() < tree.leaves_of(children[1]).front();
    // A part that continues the step so far; otherwise this node is itself the first part.
    const size_t next = !join ? node : first_is_lower ? children[1] : children[0];
    const auto key = [&](size_t part) { return text_of_node(tree, part, tree.leaves_of(part).front()); };
    if (!join || (!parts.empty() && key(next) != key(parts.back()))) {
      parts.push_back(node);
      break;
    }
    parts.push_back(next);
    node = first_is_lower ? children[0] : children[1];
  }
  if (parts.size() < 3) return {};
  std::reverse(parts.begin(), parts.end());
  const auto first_of = [&](size_t i) { return tree.leaves_of(parts[i]).front(); };
  const size_t step = first_of(1) - first_of(0);
  const auto key = [&](size_t i) { return text_of_node(tree, parts[i], first_of(i)); };
  for (size_t i = 1; i < parts.size(); ++i)
    if (first_of(i) - first_of(i - 1) != step || key(i) != key(0)) return {};
  return fmt::format("({}) and so on every {} up to {}, added in turn", text_of_node(tree, parts[0], from), step,
                     tree.leaves_of(parts.back()).back() - from);
}

std::string text_of_node(const SumTree& tree, size_t top, size_t from) {
  if (tree.nodes[top].leaf)
    return *tree.nodes[top].leaf == tree.k ? "c" : fmt::format("{}", *tree.nodes[top].leaf - from);
  std::vector<size_t> chain = chain_below(tree, top);
  std::reverse(chain.begin(), chain.end());
  std::string text;
  // The chain starts with a sum of leaves or with other sums.
  std::vector<size_t> run;  // single products added one after another
  const auto flush = [&] {
    if (!run.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", ", text_of_leaves(run, from));
    run.clear();
  };
  for (size_t i = 0; i < chain.size(); ++i) {
    if (i == 0)
      if (text = text_of_repeats(tree, chain[0], from); !text.empty()) continue;
    const SumTree::Node& node = tree.nodes[chain[i]];
    std::vector<size_t> products = tree.products_of(chain[i]);
    std::string sums;
    bool c = false;
    size_t other = 0;
    for (const size_t child : node.children) {
      if (tree.nodes[child].leaf) {
        c = c || *tree.nodes[child].leaf == tree.k;
      } else if (i == 0) {
        sums += fmt::format("{}({})", other++ ? " + " : "", text_of_node(tree, child, from));
      }
    }
    const bool opens = i == 0 && products.size() == 2 && !c && !other;  // two products, one after the other
    if (!c && sums.empty() && (products.size() == 1 || opens)) {
      if (!run.empty() && products[0] < run.back()) flush();
      run.insert(run.end(), products.begin(), products.end());
      continue;
    }
    flush();
    std::string block = sums;
    if (c) block += block.empty() ? "c" : " + c";
    if (!products.empty()) block += fmt::format("{}{}", block.empty() ? "" : " + ", text_of_leaves(products, from));
    const bool braces = products.size() > 1 || (c && !products.empty());
    text += fmt::format("{}{}", text.empty() ? "" : ", ", braces ? "{" + block + "}" : block);
  }
  flush();
  return text;
}

}  // namespace

std::vector<size_t> SumTree::leaves_of(size_t node) const {
  std::vector<size_t> found, open{node};
  while (!open.empty()) {
    const Node& n = nodes[open.back()];
    open.pop_back();
    if (n.leaf) found.push_back(*n.leaf);
    open.insert(open.end(), n.children.begin(), n.children.end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<size_t> SumTree::products_of(size_t node) const {
  std::vector<size_t> found;
  for (const size_t child : nodes[node].children)
    if (nodes[child].leaf && *nodes[child].leaf != k) found.push_back(*nodes[child].leaf);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<size_t> SumTree::bottom_up() const {
  std::vector<size_t> order{root};
  for (size_t i = 0; i < order.size(); ++i)
    for (const size_t child : nodes[order[i]].children) order.push_back(child);
  std::reverse(order.begin(), order.end());
  return order;
}

TreeFinding find_tree(RecordingBox& recorder) {
  TreeFinding finding{{}, "these types have no mask that is large enough compared with a unit"};
  for (const Masks masks : possible_masks(recorder)) {
    finding = TreeBuilder(recorder, masks).build();
    if (finding.tree) break;
  }
  return finding;
}

std::vector<Question> order_questions(const BlackBox& box) {
  const double mask = std::ldexp(1.0, largest_mask(box));
  std::vector<Term> units;
  for (size_t leaf = 0; leaf < box.k; ++leaf)
    for (int unit = smallest_unit(box); units.size() == leaf && unit < 0; ++unit)
      if (const auto term = term_of(box, leaf, std::ldexp(1.0, unit))) units.push_back(*term);
  std::vector<Question> questions;
  for (const size_t other : {size_t{1}, size_t{2}, box.k / 2, box.k - 1}) {
    const auto plus = term_of(box, 0, mask), minus = term_of(box, other, -mask);
    if (units.size() < box.k || other == 0 || !plus || !minus) continue;
    std::vector<Term> terms = units;
    terms[0] = *plus, terms[other] = *minus;
    questions.push_back(question_of(box, terms));
  }
  return questions;
}

std::string text_of(const SumTree& tree) { return text_of_node(tree, tree.root, 0); }

size_t products_per_block(const SumTree& tree) {
  size_t most = 0, openings = 0;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const size_t products = tree.products_of(i).size();
    // Two products may be the first two of a chain of single additions.
    if (products == 2 && tree.nodes[i].children.size() == 2)
      ++openings;
    else
      most = std::max(most, products);
  }
  // A chain that starts with two products and continues with single ones adds one at a time; one of pairs only has
  // blocks of two.
  return most >= 1 ? most : openings ? 2 : 1;
}

std::string order_of(const SumTree& tree) {
  std::vector<size_t> seen;  // products in the order in which the first chain adds them
  std::vector<size_t> chain = chain_below(tree, tree.root);
  std::reverse(chain.begin(), chain.end());
  if (!chain.empty())
    for (const size_t child : tree.nodes[chain.front()].children)
      if (!tree.nodes[child].leaf)
        return slices_of(tree) > 1 ? "increasing within each slice" : "a tree of partial sums";
  bool increasing = true;
  std::optional<size_t> last;
  std::vector<std::vector<size_t>> blocks;
  for (const size_t node : chain) {
    const std::vector<size_t> products = tree.products_of(node);
    if (products.empty()) continue;
    if (last && products.front() < *last) increasing = false;
    last = products.back();
    blocks.push_back(products);
  }
  if (increasing) return "k increasing";
  bool whole = true;
  for (const auto& block : blocks) whole = whole && block.back() - block.front() + 1 == block.size();
  return whole ? "blocks in another order" : "interleaved: " + text_of_leaves(blocks.front()) + " first";
}

std::string place_of_c(const SumTree& tree) {
  if (!tree.with_c) return "no c";
  size_t holder = tree.root;
  for (size_t i = 0; i < tree.nodes.size(); ++i)
    for (const size_t child : tree.nodes[i].children)
      if (tree.nodes[child].leaf == tree.k) holder = i;
  const bool alone = tree.products_of(holder).empty();
  bool first = true;
  for (const size_t child : tree.nodes[holder].children) first = first && tree.nodes[child].leaf.has_value();
  if (alone && holder == tree.root) return "added last";
  if (alone) return "added between partial sums";
  if (first && tree.products_of(holder).front() == 0) return "in the first sum";
  return holder == tree.root ? "in the last sum" : "in a sum in between";
}

size_t slices_of(const SumTree& tree) {
  // The top nodes add sums of contiguous parts.
  std::vector<std::vector<size_t>> parts;
  std::vector<size_t> open{tree.root};
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    size_t sums = 0;
    for (const size_t child : tree.nodes[node].children) sums += tree.nodes[child].leaf ? 0 : 1;
    const bool adds_parts = tree.products_of(node).empty() && sums >= 1;
    if (adds_parts) {
      for (const size_t child : tree.nodes[node].children)
        if (!tree.nodes[child].leaf) open.push_back(child);
      continue;
    }
    std::vector<size_t> leaves = tree.leaves_of(node);
    std::erase(leaves, tree.k);
    parts.push_back(leaves);
  }
  for (const auto& part : parts)
    if (part.empty() || part.back() - part.front() + 1 != part.size()) return 1;
  return parts.size();
}

}  // namespace halfmark::accuracy::probe
