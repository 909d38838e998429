// The bench on which sums are examined: one node of the tree, and terms that are put into it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accuracy/namespaces.h"
#include "accuracy/probe/probe.h"

namespace halfmark::accuracy::probe {

// A node and the leaves through which terms reach it: its own products first, then one product of each sum below it,
// then c.
struct Site {
  size_t node = 0, products = 0;
  std::vector<size_t> slots;
  bool has_c = false;
  std::optional<size_t> later;  // a leaf that is added after this node

  size_t terms() const { return slots.size(); }
};

class Laboratory {
 public:
  // kept: F as far as it is known, else kAllBits. digits: how many of a term's arrive at the node unharmed.
  Laboratory(Witness& witness, const Site& site, int kept, int digits = 23)
      : witness_(witness), box_(witness.box()), site_(site), kept_(kept), exact_(kept >= kAllBits), digits_(digits) {}

  using Terms = std::vector<std::optional<Term>>;
  using Answer = std::optional<double>;  // nothing: the types have no such term
  std::vector<Answer> ask(const std::vector<Terms>& all);

  std::optional<Term> power(size_t leaf, int exponent, double factor = 1) const;
  std::optional<Term> square(size_t leaf, int exponent, double sign = 1) const;
  int lowest() const;   // exponent of the smallest product with a digit to spare, which the result can show
  int highest() const;  // of a large one that overflows nowhere

  // For nodes of three terms and more (probe_kept.cpp).
  void find_kept(Adder& adder, std::vector<Finding>& findings);
  void find_cut(Adder& adder, std::vector<Finding>& findings);
  void find_normalised(Adder& adder, std::vector<Finding>& findings);

  // For all nodes (probe_rounding.cpp). A large B and what can be added to it: false where there is no product to make
  // it of.
  bool prepare();
  // Fraction bits of B + s as far as single bits of s are kept, in the result or (cancel) once a later term has taken B
  // away again: -1 for none.
  int width(bool cancel);
  void find_rounding(Adder& adder, std::vector<Finding>& findings, const std::string& name, bool cancel, int bits);

 private:
  Format format_of_bits(int bits) const;
  void unknown_rounding(Adder& adder, const std::string& name, const std::string& why,
                        std::vector<Finding>& findings) const;
  void find_two(Adder& adder, const std::string& rounding, const std::string& text, std::vector<Finding>& findings,
                const std::string& name);
  Terms terms(bool cancel, double sign, int exponent, double factor) const;

  Witness& witness_;
  const BlackBox& box_;
  const Site& site_;
  int kept_;
  bool exact_;
  int digits_;
  Terms base_;                           // of B
  size_t small_ = 0;                     // the leaf of s
  int x_ = 0, top_ = 0, seen_bits_ = 0;  // exponents of the products of B and of B itself
  double value_ = 0;                     // B
  bool cancels_ = false;
};

}  // namespace halfmark::accuracy::probe
