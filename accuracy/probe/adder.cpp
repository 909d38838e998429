// Finds out how the nodes of a tree add: chooses the nodes to probe, and probes the partial sums of slices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "accuracy/probe/node_probe.h"

namespace halfmark::accuracy::probe {
namespace {

std::vector<std::optional<size_t>> parents_of(const SumTree& tree) {
  std::vector<std::optional<size_t>> parents(tree.nodes.size());
  for (size_t i = 0; i < tree.nodes.size(); ++i)
    for (const size_t child : tree.nodes[i].children) parents[child] = i;
  return parents;
}

// A leaf below `node` but not below `but`; a product if there is one, else c.
std::optional<size_t> leaf_below(const SumTree& tree, size_t node, std::optional<size_t> but = {}) {
  std::optional<size_t> found;
  for (const size_t child : tree.nodes[node].children) {
    if (child == but) continue;
    const size_t leaf = tree.nodes[child].leaf ? *tree.nodes[child].leaf : tree.leaves_of(child).front();
    if (!found || leaf < *found) found = leaf;  // c has the largest number
  }
  return found;
}

NodeInputs inputs_of(const SumTree& tree, size_t node, const std::vector<std::optional<size_t>>& parents) {
  NodeInputs inputs{node, 0, tree.products_of(node), false, {}};
  inputs.products = inputs.slots.size();
  for (const size_t child : tree.nodes[node].children) {
    if (!tree.nodes[child].leaf) inputs.slots.push_back(tree.leaves_of(child).front());
    inputs.has_c = inputs.has_c || tree.nodes[child].leaf == tree.k;
  }
  if (inputs.has_c) inputs.slots.push_back(tree.k);
  for (std::optional<size_t> below = node, above = parents[node]; above && !inputs.later;
       below = above, above = parents[*above])
    inputs.later = leaf_below(tree, *above, below);
  return inputs;
}

// The node of the wanted kind with the most products: one whose sum later nodes use, or (last) one whose sum no other
// node of its kind uses.
enum class NodePlace { followed, last };
std::optional<NodeInputs> find_node(const BlackBox& box, const SumTree& tree, bool blocks, NodePlace place) {
  const auto parents = parents_of(tree);
  const auto is_block = [&](size_t node) { return !tree.products_of(node).empty(); };
  std::optional<NodeInputs> best;
  // A later product: what is added with it has not yet been rounded to the format in which c is added.
  const auto rank = [&](const NodeInputs& s) {
    return std::tuple(s.products, s.later.has_value(), s.later && s.later != tree.k, s.terms() > 2 ? s.has_c : !s.has_c,
                      s.terms());
  };
  for (size_t node = 0; node < tree.nodes.size(); ++node) {
    if (tree.nodes[node].leaf || is_block(node) != blocks) continue;
    bool last = true;
    for (auto above = parents[node]; above; above = parents[*above]) last = last && is_block(*above) != blocks;
    if (place == NodePlace::last && !last) continue;
    NodeInputs inputs = inputs_of(tree, node, parents);
    // A node of two products that starts a chain does not show how a sum and a product are added.
    if (inputs.products == 2 && inputs.terms() == 2 && products_per_block(tree) == 1 && !box.terms_only) continue;
    if (!best || rank(inputs) > rank(*best)) best = inputs;
  }
  return best;
}

// Puts 1 and 2^-t into one slice and -1 into another: what remains of 2^-t has passed through the partial sum.
void find_partial(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  const SumTree& tree = model.tree;
  const auto parents = parents_of(tree);
  for (size_t child = 0; child < tree.nodes.size(); ++child) {
    if (tree.products_of(child).empty() || !parents[child] || !tree.products_of(*parents[child]).empty()) continue;
    const std::vector<size_t> inside = tree.leaves_of(child);
    const std::optional<size_t> outside = leaf_below(tree, *parents[child], child);
    if (inside.size() < 2 || inside[1] == tree.k || !outside) continue;
    NodeInputs inputs{*parents[child], 0, {}, false, {}};
    NodeProbe node(recorder, inputs, kAllBits);
    std::vector<NodeProbe::Terms> all;
    const int x = node.highest() - 4;
    for (int t = 1; x - t >= node.lowest() && t <= 60; ++t)
      all.push_back({node.power(inside[0], x), node.power(inside[1], x - t), node.power(*outside, x, -1)});
    const auto answers = node.ask(all);
    int bits = 0;
    while (static_cast<size_t>(bits) < answers.size() &&
           answers[static_cast<size_t>(bits)] == std::ldexp(1.0, x - bits - 1))
      ++bits;
    const int own = std::min(model.block.out.fraction_bits, model.block.kept_bits);
    std::string value = fmt::format("{} fraction bits", bits), more;
    if (bits < own && bits > 0) {
      model.partial = bits == 10 ? kTf32 : bits == 7 ? kBf16 : Format{"", 8, bits};
      if (bits == 10) {  // fp16 overflows from 65520
        const auto large =
            node.ask({{node.power(inside[0], 15), node.power(inside[1], 15), node.power(*outside, 15, -1)}});
        if (large[0] && !std::isfinite(*large[0])) model.partial = kFp16;
        more = fmt::format("; 2^15 + 2^15 - 2^15 gives {}", large[0] ? fmt::format("{}", *large[0]) : "no answer");
      }
      value = fmt::format("rounded to {}", model.partial->name.empty() ? value : std::string(model.partial->name));
    } else {
      value = "as the sums of a slice";
    }
    findings.push_back(
        {"partial sums", value, fmt::format("1 + 2^-t in one slice and -1 in another keeps t = {}", bits) + more});
    return;
  }
}

// The result shows the narrowest of a sum and all sums after it. A sum alone shows when a later term subtracts B.
// Truncated sums truncate again when their results are added, so the last node is used for the first measurement.
void find_rounding_of(RecordingBox& recorder, const SumTree& tree, bool blocks, Adder& adder,
                      std::vector<Finding>& findings, const std::string& name, int digits) {
  const auto last = find_node(recorder.box(), tree, blocks, NodePlace::last),
             followed = find_node(recorder.box(), tree, blocks, NodePlace::followed);
  if (!last || !followed) return;
  NodeProbe direct(recorder, *last, adder.kept_bits, digits), inner(recorder, *followed, adder.kept_bits, digits);
  const int in_result = direct.prepare() ? direct.width(false) : -1;
  const int in_sum = followed->later && inner.prepare() ? inner.width(true) : -1;
  if (in_sum > in_result)
    inner.find_rounding(adder, findings, name, true, in_sum);
  else
    direct.find_rounding(adder, findings, name, false, in_result);
}

}  // namespace

void find_adders(RecordingBox& recorder, Model& model, std::vector<Finding>& findings) {
  if (const auto inputs = find_node(recorder.box(), model.tree, true, NodePlace::followed)) {
    if (inputs->terms() >= 3) {
      NodeProbe node(recorder, *inputs, kAllBits);
      node.find_kept(model.block, findings);
      node.find_cut(model.block, findings);
      node.find_normalised(model.block, findings);
    }
    find_rounding_of(recorder, model.tree, true, model.block, findings, "sums", 23);
  }
  model.join = model.block;
  if (!find_node(recorder.box(), model.tree, false, NodePlace::last)) return;
  model.join = Adder{};
  std::vector<Finding> own;
  find_rounding_of(recorder, model.tree, false, model.join, own, "sums of sums",
                   std::min(model.block.out.fraction_bits, model.block.kept_bits));
  for (Finding& finding : own)
    if (finding.parameter != "kept fraction bits") findings.push_back(std::move(finding));
  find_partial(recorder, model, findings);
  // A tie that has passed through a narrow partial sum does not show how the join itself cuts.
  if (model.partial) model.join.kept_bits = kAllBits;
}

}  // namespace halfmark::accuracy::probe
