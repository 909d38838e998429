// What a matmul or a matrix instruction does with its sums, found out from outside: it is asked questions (operands and
// an addend), and its answers alone decide. Nothing here looks at what a device says of itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/ops/ops.h"

namespace halfmark::accuracy::probe {

// d = c + sum of a[k] b[k], in values that the types of the box hold.
struct Question {
  std::vector<double> a, b;
  double c = 0;
};

inline constexpr std::string_view kAlike = "alike";

struct BlackBox {
  std::string device;  // "sim:hopper"
  std::string types;   // "f16>f32"
  std::string way;     // "matmul 32x32x64", "mma.m16n8k16"
  Format a, b, c, d;   // of what is stored
  DType d_type;
  bool takes_c = true;
  size_t k = 0;                                                             // products of a question
  std::function<std::vector<uint64_t>(std::span<const Question>)> answers;  // codes of d
  // Of a matmul: kAlike, so that any element of the result may answer, or the first that answers otherwise than element
  // 0,0, as "3,8"; then 0,0 alone is asked.
  std::string elements{};
};

// A box with a memory: what was asked can be asked of somebody else.
class Witness {
 public:
  struct Answer {
    Question question;
    uint64_t code;
  };
  explicit Witness(BlackBox box) : box_(std::move(box)) {}
  const BlackBox& box() const { return box_; }
  std::vector<uint64_t> codes(std::vector<Question> questions);
  std::vector<double> values(std::vector<Question> questions);
  uint64_t code(Question question) { return codes({std::move(question)}).front(); }
  double value(Question question) { return values({std::move(question)}).front(); }
  const std::vector<Answer>& answers() const { return answers_; }
  void narrow_operands(int fraction_bits);  // from now on terms have no more digits than that

 private:
  BlackBox box_;
  std::vector<Answer> answers_;
};

// One term of a question: the product at `leaf`, or the addend where leaf = k (then b is not used).
struct Term {
  size_t leaf;
  double a, b = 1;
};
// The term of this value, the leading digits in a, both factors normal numbers where that is possible and b = 1 where
// that is. Nothing when the types have no such product.
std::optional<Term> term_of(const BlackBox& box, size_t leaf, double value);
// Zeros but for these terms.
Question question_of(const BlackBox& box, std::span<const Term> terms);

// The order in which the terms are added. A node adds all its children at once.
struct SumTree {
  struct Node {
    std::vector<size_t> children;
    std::optional<size_t> leaf;  // k of the product; the addend counts as k = K
    size_t leaves = 1;           // below, itself included
  };
  std::vector<Node> nodes;
  size_t root = 0;
  size_t k = 0;
  bool with_c = false;

  std::vector<size_t> leaves_of(size_t node) const;    // ascending
  std::vector<size_t> products_of(size_t node) const;  // leaves among the children of a node, without the addend
  std::vector<size_t> bottom_up() const;               // every node after its children
};
struct TreeFinding {
  std::optional<SumTree> tree;
  std::string evidence;  // or why there is none
};
// After FPRev (arXiv 2411.00442), for nodes of any number of children: a mask M at i, -M at j and a unit everywhere
// else. M swallows the units that are added before the masks meet; the others are counted in the answer, which says how
// many leaves lie below the node where i and j meet.
TreeFinding find_tree(Witness& witness);
// Questions that two orders of addition answer differently, unless in both as many leaves lie below the nodes where the
// first leaf meets the second, the third, a middle one and the last.
std::vector<Question> order_questions(const BlackBox& box);
std::string text_of(const SumTree& tree);

// Products that meet in one sum, not counting the two that open a chain of single additions.
size_t products_per_block(const SumTree& tree);
std::string order_of(const SumTree& tree);    // "increasing", "interleaved: ...", "other"
std::string place_of_c(const SumTree& tree);  // "in the first block", "added last", ...
size_t slices_of(const SumTree& tree);        // of a split K: contiguous parts that are added in the end; 1: none

// How one kind of node adds.
inline constexpr int kAllBits = 90;  // no cut seen: what lies lower is kept as a sticky bit
enum class Cut : uint8_t { toward_zero, down, near_even, near_away };
std::string_view name_of(Cut cut);
struct Adder {
  int kept_bits = kAllBits;    // below the largest exponent
  Cut cut = Cut::toward_zero;  // of what lies lower, term by term
  bool normalised = false;     // exponents of products: of the value, or the sum of the factors'
  int zero_exponent = -4096;   // a zero raises the largest exponent at least to this
  Format out{"fp32", 8, 23};   // after each node
  Rounding rounding = Rounding::near_even;
};

// All that a replay needs.
struct Model {
  SumTree tree;
  Format a, b, operand;  // operands are rounded to `operand` where that has fewer bits
  Rounding operand_rounding = Rounding::near_even;
  bool exact_products = true;   // else each is rounded to block.out before it is added
  bool last_leaf_exact = true;  // of two products that open a chain the later is added unrounded
  bool flush_inputs = false, flush_results = false;
  Adder block;                    // nodes with products of their own
  Adder join;                     // nodes that add what other nodes gave, and c
  std::optional<Format> partial;  // what goes into a join is rounded to this first
  DType d;
};
uint64_t replay(const Model& model, const Question& question);

// Questions with random operands of several kinds: alike in size, of far exponents, cancelling, and near the cut.
std::vector<Question> random_questions(const BlackBox& box, size_t count, uint64_t seed);

// One line of the answer. `value` is "not observable" where no question that the types can put decides it.
struct Finding {
  std::string parameter, value, evidence;
};
inline constexpr std::string_view kNotObservable = "not observable";

struct Report {
  std::string device, types, way;
  std::vector<Finding> findings;
  std::optional<Model> model;        // when tree and adders were found
  size_t replayed = 0, replays = 0;  // fresh random questions whose answer the model gave, bit for bit
  std::vector<std::string> matches;  // all simulated rows that answered every question alike
  std::vector<std::string> near;     // the best of the others: "sim:volta mma.m8n8k4: 812 of 1200"
  std::string fingerprint;           // text of what was observed
  std::string hash;                  // of the fingerprint and of the answers to questions that never change

  const Finding* find(std::string_view parameter) const;
};

struct Options {
  size_t replays = 10000;
  bool match = true;
  uint64_t seed = 1;
};
Report examine(Witness& witness, const Options& options);

// "a1b2...: summation tree={c + 0}, 1-31; products per block=1; ...": what a report says of a matmul, in well under a
// second. Nothing when the device does not take these types.
std::optional<std::string> fingerprint_of(Device& device, std::string_view types);

// The directed experiments, in order; each adds findings and fills the model.
void find_adders(Witness& witness, Model& model, std::vector<Finding>& findings);    // probe_adder.cpp
void find_operands(Witness& witness, Model& model, std::vector<Finding>& findings);  // probe_range.cpp
void find_ranges(Witness& witness, Model& model, std::vector<Finding>& findings);    // probe_range.cpp

// ---- what can be asked: probe_box.cpp

struct MatmulTypes {
  std::string name;  // "f16>f32"
  DType a, b, d;
  Math math;
};
// "A>D", "A*B>D" with dtypes, "tf32>f32", and "+fast" for fast accumulation, "+splitN", "+splitN:FORMAT". The
// accumulator is D, but at least fp32 for bf16 and f32. Throws Error for a name it cannot read.
MatmulTypes matmul_types_named(std::string_view name);
std::vector<std::string> usual_types();  // those that every device is asked for
struct MatmulShape {
  int64_t m = 32, n = 32, k = 64;
};
// Throws Unsupported, with the reason, when the device does not take these.
BlackBox matmul_box(Device& device, const MatmulTypes& types, MatmulShape shape);

struct DotChoice {
  MatrixInstruction instruction;
  DType a, b, c, d;
  DType scale = DType::e8m0;
  int block = 0;             // elements to a scale; 0: no scales
  std::string name() const;  // "mma.m16n8k16 f16>f32", "mma.m16n8k64 e2m1/e8m0:32>f32"
};
std::vector<DotChoice> dot_choices(Device& device);  // all that the device takes
// Of scaled operands the first element of each block is asked, the others are zero: with its scale it is a number of
// many exponents. k counts those elements, so that there are k * block products.
BlackBox dot_box(Device& device, const DotChoice& choice, size_t k);
size_t least_depth(const DotChoice& choice);  // the k of one instruction

// Every simulated row that takes the types of the box, or that takes its operands and gives a wider result, which is
// then rounded once more to nearest even, as libraries do it for bf16 (and f16) results of fp32 sums. With the count of
// answers it gives alike, out of all, or out of those up to which it was seen to differ.
struct Candidate {
  std::string row;
  size_t alike = 0, asked = 0;
};
std::vector<Candidate> compare_with_rows(const BlackBox& box, std::span<const Witness::Answer> answers);

// Runs the same questions again, and in matmuls of other sizes.
void find_repeatability(Device& device, const MatmulTypes& types, MatmulShape shape, std::vector<Finding>& findings);

}  // namespace halfmark::accuracy::probe
