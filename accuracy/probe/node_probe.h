// Experiments on one node of the summation tree: chosen terms are fed into the node and the result is observed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accuracy/namespaces.h"
#include "accuracy/probe/probe.h"

namespace halfmark::accuracy::probe {

// A node and the leaves through which terms reach it: first its
// own products, then one product of each sum below it, then c.
struct NodeInputs {
  size_t node = 0, products = 0;
  std::vector<size_t> slots;
  bool has_c = false;
  std::optional<size_t> later;  // a leaf that is added after this node

  size_t terms() const { return slots.size(); }
};

class NodeProbe {
 public:
  // kept: F if it is known, else kAllBits. digits: number of bits of a term that reach the node unchanged.
  NodeProbe(RecordingBox& recorder, const NodeInputs& inputs, int kept, int digits = 23)
      : recorder_(recorder),
        box_(recorder.box()),
        inputs_(inputs),
        kept_(kept),
        exact_(kept >= kAllBits),
        digits_(digits) {}

  using Terms = std::vector<std::optional<Term>>;
  using Answer = std::optional<double>;  // nullopt: the types have no such term
  std::vector<Answer> ask(const std::vector<Terms>& all);

  std::optional<Term> power(size_t leaf, int exponent, double factor = 1) const;
  std::optional<Term> square(size_t leaf, int exponent, double sign = 1) const;
  int lowest() const;   // exponent of the smallest product that has a spare bit and is representable in the result
  int highest() const;  // exponent of a large product that overflows in no intermediate sum

  // For nodes of three or more terms (kept_bits.cpp).
  void find_kept(Adder& adder, std::vector<Finding>& findings);
  void find_cut(Adder& adder, std::vector<Finding>& findings);
  void find_normalised(Adder& adder, std::vector<Finding>& findings);

  // For all nodes (rounding.cpp). Chooses a large B and the leaf
  // of a small s; false if the node has no product for them.
  bool prepare();
  // Fraction bits of B + s, found by adding single bits s. They are observed in the result or, with `cancel`, after a
  // later term has subtracted B. -1: none.
  int width(bool cancel);
  void find_rounding(Adder& adder, std::vector<Finding>& findings, const std::string& name, bool cancel, int bits);

 private:
  Format format_of_bits(int bits) const;
  void unknown_rounding(Adder& adder, const std::string& name, const std::string& why,
                        std::vector<Finding>& findings) const;
  void find_two(Adder& adder, const std::string& rounding, const std::string& text, std::vector<Finding>& findings,
                const std::string& name);
  Terms terms(bool cancel, double sign, int exponent, double factor) const;

  RecordingBox& recorder_;
  const BlackBox& box_;
  const NodeInputs& inputs_;
  int kept_;
  bool exact_;
  int digits_;
  Terms base_;                           // the terms of B
  size_t small_ = 0;                     // the leaf of s
  int x_ = 0, top_ = 0, seen_bits_ = 0;  // exponents of the products of B and of B itself
  double value_ = 0;                     // B
  bool cancels_ = false;
};

}  // namespace halfmark::accuracy::probe
