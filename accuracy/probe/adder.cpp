// How the nodes of a tree add: which nodes are asked, and what goes from slice to slice.
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

// A leaf among the descendants of `node` outside `but`; products before c.
std::optional<size_t> leaf_below(const SumTree& tree, size_t node, std::optional<size_t> but = {}) {
  std::optional<size_t> found;
  for (const size_t child : tree.nodes[node].children) {
    if (child == but) continue;
    const size_t leaf = tree.nodes[child].leaf ? *tree.nodes[child].leaf : tree.leaves_of(child).front();
    if (!found || leaf < *found) found = leaf;  // c has the largest number
  }
  return found;
}

Site site_at(const SumTree& tree, size_t node, const std::vector<std::optional<size_t>>& parents) {
  Site site{node, 0, tree.products_of(node), false, {}};
  site.products = site.slots.size();
  for (const size_t child : tree.nodes[node].children) {
    if (!tree.nodes[child].leaf) site.slots.push_back(tree.leaves_of(child).front());
    site.has_c = site.has_c || tree.nodes[child].leaf == tree.k;
  }
  if (site.has_c) site.slots.push_back(tree.k);
  for (std::optional<size_t> below = node, above = parents[node]; above && !site.later;
       below = above, above = parents[*above])
    site.later = leaf_below(tree, *above, below);
  return site;
}

// The node to be asked: of the wanted kind and with as many products as any. One that others follow, or one whose sum
// no node of its kind takes up again.
enum class Place { followed, last };
std::optional<Site> site_of(const SumTree& tree, bool blocks, Place place) {
  const auto parents = parents_of(tree);
  const auto is_block = [&](size_t node) { return !tree.products_of(node).empty(); };
  std::optional<Site> best;
  const auto rank = [](const Site& s) {
    return std::tuple(s.products, s.later.has_value(), s.terms() > 2 ? s.has_c : !s.has_c, s.terms());
  };
  for (size_t node = 0; node < tree.nodes.size(); ++node) {
    if (tree.nodes[node].leaf || is_block(node) != blocks) continue;
    bool last = true;
    for (auto above = parents[node]; above; above = parents[*above]) last = last && is_block(*above) != blocks;
    if (place == Place::last && !last) continue;
    Site site = site_at(tree, node, parents);
    // Two products that open a chain say nothing of a sum and a product.
    if (site.products == 2 && site.terms() == 2 && products_per_block(tree) == 1) continue;
    if (!best || rank(site) > rank(*best)) best = site;
  }
  return best;
}

// Where 1, 2^-t meet in one slice and -1 in another: what is left of 2^-t went through the partial sum.
void find_partial(Witness& witness, Model& model, std::vector<Finding>& findings) {
  const SumTree& tree = model.tree;
  const auto parents = parents_of(tree);
  for (size_t child = 0; child < tree.nodes.size(); ++child) {
    if (tree.products_of(child).empty() || !parents[child] || !tree.products_of(*parents[child]).empty()) continue;
    const std::vector<size_t> inside = tree.leaves_of(child);
    const std::optional<size_t> outside = leaf_below(tree, *parents[child], child);
    if (inside.size() < 2 || inside[1] == tree.k || !outside) continue;
    Site site{*parents[child], 0, {}, false, {}};
    Laboratory lab(witness, site, kAllBits);
    std::vector<Laboratory::Terms> all;
    const int x = lab.highest() - 4;
    for (int t = 1; x - t >= lab.lowest() && t <= 60; ++t)
      all.push_back({lab.power(inside[0], x), lab.power(inside[1], x - t), lab.power(*outside, x, -1)});
    const auto answers = lab.ask(all);
    int bits = 0;
    while (static_cast<size_t>(bits) < answers.size() &&
           answers[static_cast<size_t>(bits)] == std::ldexp(1.0, x - bits - 1))
      ++bits;
    const int own = std::min(model.block.out.fraction_bits, model.block.kept_bits);
    std::string value = fmt::format("{} fraction bits", bits), more;
    if (bits < own && bits > 0) {
      model.partial = bits == 10 ? kTf32 : bits == 7 ? kBf16 : Format{"", 8, bits};
      if (bits == 10) {  // fp16 ends at 65520
        const auto large = lab.ask({{lab.power(inside[0], 15), lab.power(inside[1], 15), lab.power(*outside, 15, -1)}});
        if (large[0] && !std::isfinite(*large[0])) model.partial = kFp16;
        more = fmt::format("; 2^15 + 2^15 - 2^15 gives {}", large[0] ? fmt::format("{}", *large[0]) : "no answer");
      }
      value = fmt::format("rounded to {}", model.partial->name.empty() ? value : std::string(model.partial->name));
    } else {
      value = "as the sums of a slice";
    }
    findings.push_back(
        {"partial sums", value, fmt::format("1 + 2^-t in one part and -1 in another keeps t = {}", bits) + more});
    return;
  }
}

// The narrower of a sum and all that follow it shows in the result; of a sum alone, when a later term takes B away.
// Sums that are cut take their own results up again and cut them again, so the last one is asked for the former.
void find_rounding_of(Witness& witness, const SumTree& tree, bool blocks, Adder& adder, std::vector<Finding>& findings,
                      const std::string& name, int digits) {
  const auto last = site_of(tree, blocks, Place::last), followed = site_of(tree, blocks, Place::followed);
  if (!last || !followed) return;
  Laboratory direct(witness, *last, adder.kept_bits, digits), inner(witness, *followed, adder.kept_bits, digits);
  const int in_result = direct.prepare() ? direct.width(false) : -1;
  const int in_sum = followed->later && inner.prepare() ? inner.width(true) : -1;
  if (in_sum > in_result)
    inner.find_rounding(adder, findings, name, true, in_sum);
  else
    direct.find_rounding(adder, findings, name, false, in_result);
}

}  // namespace

void find_adders(Witness& witness, Model& model, std::vector<Finding>& findings) {
  if (const auto site = site_of(model.tree, true, Place::followed)) {
    if (site->terms() >= 3) {
      Laboratory lab(witness, *site, kAllBits);
      lab.find_kept(model.block, findings);
      lab.find_cut(model.block, findings);
      lab.find_normalised(model.block, findings);
    }
    find_rounding_of(witness, model.tree, true, model.block, findings, "sums", 23);
  }
  model.join = model.block;
  if (!site_of(model.tree, false, Place::last)) return;
  model.join = Adder{};
  std::vector<Finding> own;
  find_rounding_of(witness, model.tree, false, model.join, own, "sums of sums",
                   std::min(model.block.out.fraction_bits, model.block.kept_bits));
  for (Finding& finding : own)
    if (finding.parameter != "kept fraction bits") findings.push_back(std::move(finding));
  find_partial(witness, model, findings);
  // What a tie looks like through a narrow partial sum says nothing of the join itself.
  if (model.partial) model.join.kept_bits = kAllBits;
}

}  // namespace halfmark::accuracy::probe
