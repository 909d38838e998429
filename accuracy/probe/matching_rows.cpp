// Finds the simulated rows that give the answers of a box, alone or with the steps around them that the model has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/probe/probe.h"
#include "kernels/devices.h"

namespace halfmark::accuracy::probe {
namespace {

// A box and a row are compared only when these types agree.
bool comparable(const BlackBox& row, const BlackBox& box) {
  return row.a == box.a && row.b == box.b && row.c == box.c && row.d == box.d;
}

// A row whose result is wider than that of the box: a matmul may round it once more.
bool comparable_rounded(const BlackBox& row, const BlackBox& box) {
  return row.a == box.a && row.b == box.b && row.c == row.d && row.d.fraction_bits > box.d.fraction_bits &&
         row.d.exponent_bits >= box.d.exponent_bits && row.d.fraction_bits >= box.c.fraction_bits &&
         row.d.exponent_bits >= box.c.exponent_bits;
}

// A part of the tree that one row can add: contiguous products, and c if it is among them.
struct Chain {
  size_t node, first, products;
  bool with_c;
};

// The topmost nodes that have products. Empty if one of them does not add contiguous products.
std::vector<Chain> chains_of(const SumTree& tree) {
  std::vector<Chain> chains;
  std::vector<size_t> open{tree.root};
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (tree.products_of(node).empty()) {
      for (const size_t child : tree.nodes[node].children)
        if (!tree.nodes[child].leaf) open.push_back(child);
      continue;
    }
    std::vector<size_t> leaves = tree.leaves_of(node);
    const bool with_c = std::erase(leaves, tree.k) > 0;
    if (leaves.back() - leaves.front() + 1 != leaves.size()) return {};
    chains.push_back({node, leaves.front(), leaves.size(), with_c});
  }
  std::sort(chains.begin(), chains.end(), [](const Chain& x, const Chain& y) { return x.first < y.first; });
  return chains;
}

std::string in_words(Rounding rounding) {
  return rounding == Rounding::near_even     ? "to nearest even"
         : rounding == Rounding::near_away   ? "to nearest, ties away"
         : rounding == Rounding::toward_zero ? "toward zero"
                                             : std::string(name_of(rounding));
}

// What the model does beside the sums of the chains.
std::string steps_of(const Model& model, const std::vector<Chain>& chains, const BlackBox& row, const BlackBox& box) {
  std::vector<std::string> steps;
  if (!model.operand_change.empty()) steps.push_back("operands are first " + model.operand_change);
  if (model.flush_inputs) steps.push_back("subnormal operands count as zero");
  const bool joined = chains.front().node != model.tree.root;
  const std::string format = name_of_sums(box, model.join.out.fraction_bits), way = in_words(model.join.rounding);
  // The sum of a chain may have more bits than the format in which c is added.
  const bool at_once = !model.partial && row.d.fraction_bits > model.join.out.fraction_bits;
  const std::string how =
      at_once ? fmt::format("with one rounding {} to {}", way, format) : fmt::format("in {} {}", format, way);
  if (joined && model.partial)
    steps.push_back(fmt::format("{} rounded to {}", chains.size() > 1 ? "they are" : "the sum is",
                                model.partial->name.empty()
                                    ? fmt::format("{} fraction bits", model.partial->fraction_bits)
                                    : std::string(model.partial->name)));
  if (chains.size() > 1) {
    const size_t products = chains.front().products;
    const bool equal =
        std::all_of(chains.begin(), chains.end(), [&](const Chain& one) { return one.products == products; });
    steps.push_back(fmt::format("{} parts of K{} are added {}", chains.size(),
                                equal ? fmt::format(", of {} products each,", products) : "", how));
  }
  const bool c_in_chain = std::any_of(chains.begin(), chains.end(), [](const Chain& one) { return one.with_c; });
  if (model.tree.with_c && !c_in_chain)
    steps.push_back(place_of_c(model.tree) == "added last" ? "c is added afterwards, " + how
                                                           : "c is added between them, " + how);
  const Format& last = joined ? model.join.out : row.d;
  if (last.fraction_bits > box.d.fraction_bits) steps.push_back(fmt::format("the result is rounded to {}", box.d.name));
  return fmt::format("{}", fmt::join(steps, "; "));
}

// A row as a part of the model: it adds the products of each chain, and the model does the rest.
class RowInModel {
 public:
  RowInModel(Device& device, const DotChoice& choice, Model model, std::vector<Chain> chains)
      : model_(std::move(model)), chains_(std::move(chains)) {
    for (const Chain& chain : chains_)
      if (!rows_.contains(chain.products)) rows_.emplace(chain.products, dot_box(device, choice, chain.products));
  }

  std::vector<uint64_t> answers(std::span<const Question> questions) const {
    std::vector<std::vector<KnownSum>> sums(questions.size());
    for (const Chain& chain : chains_) {
      const auto begin = static_cast<long>(chain.first), end = begin + static_cast<long>(chain.products);
      std::vector<Question> parts;
      for (const Question& question : questions)
        parts.push_back(converted(model_, {{question.a.begin() + begin, question.a.begin() + end},
                                           {question.b.begin() + begin, question.b.begin() + end},
                                           chain.with_c ? question.c : 0}));
      const BlackBox& row = rows_.at(chain.products);
      const std::vector<uint64_t> codes = row.answers(parts);
      for (size_t i = 0; i < codes.size(); ++i) sums[i].push_back({chain.node, decode(row.d_type, codes[i])});
    }
    std::vector<uint64_t> codes;
    for (size_t i = 0; i < questions.size(); ++i) codes.push_back(replay(model_, questions[i], sums[i]));
    return codes;
  }

 private:
  Model model_;
  std::vector<Chain> chains_;
  std::map<size_t, BlackBox> rows_;  // by the number of products
};

// Counts equal answers. The random questions at the end distinguish most rows; the comparison stops at the first
// difference. `computed`: the last operations were computed here, so that the bits of a NaN are not those of the row.
template <class Codes>
void compare(Candidate& candidate, const BlackBox& box, std::span<const RecordingBox::Answer> answers, bool computed,
             const Codes& codes_of) {
  constexpr size_t kAtOnce = 512;
  for (size_t left = answers.size(); left > 0 && candidate.agrees();) {
    const size_t count = std::min(left, kAtOnce);
    left -= count;
    std::vector<Question> questions;
    for (size_t i = left; i < left + count; ++i) questions.push_back(answers[i].question);
    const std::vector<uint64_t> codes = codes_of(questions);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t code = answers[left + i].code;
      candidate.alike += (computed ? same_number(box.d_type, codes[i], code) : codes[i] == code) ? 1 : 0;
    }
    candidate.asked += count;
  }
}

// The model with c and the parts of K added in the wider format of the row before the result is rounded, as libraries
// do, where the result hides it; and the model as it is.
std::vector<Model> with_steps(const Model& model, const BlackBox& row, const BlackBox& box, bool joined) {
  std::vector<Model> models{model};
  if (joined && !model.partial && row.d.fraction_bits > box.d.fraction_bits) {
    models.insert(models.begin(), model);
    models.front().join.out = row.d, models.front().join.rounding = Rounding::near_even;
  }
  return models;
}

}  // namespace

std::vector<Candidate> compare_with_rows(const BlackBox& box, std::span<const RecordingBox::Answer> answers,
                                         const std::optional<Model>& model) {
  std::vector<Chain> chains;
  if (model) chains = chains_of(model->tree);
  const bool joined = !chains.empty() && chains.front().node != model->tree.root;
  const bool steps = !chains.empty() && (joined || !model->operand_change.empty() || model->flush_inputs);
  std::vector<Candidate> candidates;
  for (const DeviceRow& row : known_devices()) {
    if (!row.name.starts_with("sim:") || !row.absent.empty()) continue;
    const auto device = open_device(row.name);
    for (const DotChoice& choice : dot_choices(*device)) {
      const size_t depth = least_depth(choice);
      if (box.k % depth != 0) continue;
      const BlackBox own = dot_box(*device, choice, box.k);
      const bool rounds = !comparable(own, box);
      if (rounds && !comparable_rounded(own, box)) continue;
      const std::string name = fmt::format("{} {}", row.name, choice.name());
      Candidate best{name + (rounds ? fmt::format(", then rounded to {}", box.d.name) : ""), {}};
      compare(best, box, answers, rounds, [&](std::span<const Question> questions) {
        std::vector<uint64_t> codes = own.answers(questions);
        if (rounds)
          for (uint64_t& code : codes) code = encode(box.d_type, decode(own.d_type, code));
        return codes;
      });
      const bool whole =
          std::all_of(chains.begin(), chains.end(), [&](const Chain& one) { return one.products % depth == 0; });
      if (steps && whole && !best.agrees())
        for (const Model& around : with_steps(*model, own, box, joined)) {
          Candidate with{name, steps_of(around, chains, own, box)};
          const RowInModel in_model(*device, choice, around, chains);
          compare(with, box, answers, true,
                  [&](std::span<const Question> questions) { return in_model.answers(questions); });
          if (with.agrees() || with.alike > best.alike) best = std::move(with);
          if (best.agrees()) break;
        }
      candidates.push_back(std::move(best));
    }
  }
  return candidates;
}

}  // namespace halfmark::accuracy::probe
