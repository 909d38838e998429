// Black-box analysis of how a matmul or a matrix instruction adds. Only the results for chosen operands and addends
// ("answers" to "questions") decide; nothing that a device reports about itself is used.
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

// d = c + sum of a[k] b[k]; every value is representable in the types of the box.
struct Question {
  std::vector<double> a, b;
  double c = 0;
};

inline constexpr std::string_view kAlike = "alike";

struct BlackBox {
  std::string device;  // "sim:hopper"
  std::string types;   // "f16>f32"
  std::string way;     // "matmul 32x32x64", "mma.m16n8k16"
  Format a, b, c, d;   // storage formats
  DType d_type;
  bool takes_c = true;
  size_t k = 0;                                                             // products per question
  std::function<std::vector<uint64_t>(std::span<const Question>)> answers;  // codes of d
  // For a matmul: kAlike if any element of the result may answer. Otherwise the first element that answers differently
  // from element 0,0, as "3,8"; then only element 0,0 is used.
  std::string elements{};
  bool transpose_b = false;  // of a matmul: b is stored as [n, k]
  bool terms_only = false;   // numbers are added and not products: b has the format kOne
};
inline constexpr Format kOne{"one", 1, 0, Specials::e8m0};  // of the single number 1
// All NaNs are equal here: their bits have separate findings.
bool same_number(DType dtype, uint64_t x, uint64_t y);

// Records every question and answer, so that the same questions can be put to another box.
class RecordingBox {
 public:
  struct Answer {
    Question question;
    uint64_t code;
  };
  explicit RecordingBox(BlackBox box) : box_(std::move(box)) {}
  const BlackBox& box() const { return box_; }
  std::vector<uint64_t> codes(std::vector<Question> questions);
  std::vector<double> values(std::vector<Question> questions);
  uint64_t code(Question question) { return codes({std::move(question)}).front(); }
  double value(Question question) { return values({std::move(question)}).front(); }
  const std::vector<Answer>& answers() const { return answers_; }
  void narrow_operands(int fraction_bits);  // later terms have at most this many fraction bits

 private:
  BlackBox box_;
  std::vector<Answer> answers_;
};

// One term of a question: the product at `leaf`, or the addend if leaf = k (then b is not used).
struct Term {
  size_t leaf;
  double a, b = 1;
};
// The term of this value, with the leading digits in a. If possible both factors are normal numbers and b = 1. Nothing
// when the types have no such product.
std::optional<Term> term_of(const BlackBox& box, size_t leaf, double value);
// These terms, zeros everywhere else.
Question question_of(const BlackBox& box, std::span<const Term> terms);

// The order in which the terms are added. A node adds all its children at once.
struct SumTree {
  struct Node {
    std::vector<size_t> children;
    std::optional<size_t> leaf;  // k of the product; the addend counts as k = K
    size_t leaves = 1;           // in the subtree, itself included
  };
  std::vector<Node> nodes;
  size_t root = 0;
  size_t k = 0;
  bool with_c = false;

  std::vector<size_t> leaves_of(size_t node) const;    // ascending
  std::vector<size_t> products_of(size_t node) const;  // leaves among the children of a node, except the addend
  std::vector<size_t> bottom_up() const;               // every node after its children
};
struct TreeFinding {
  std::optional<SumTree> tree;
  std::string evidence;  // or why there is no tree
};
// After FPRev (arXiv 2411.00442), extended to nodes of any number of children. A question has a mask M at i, -M at j
// and a unit everywhere else. M absorbs the units that are added before the masks meet; the answer counts the others.
// This gives the number of leaves below the node where i and j meet.
TreeFinding find_tree(RecordingBox& recorder);
// Questions that distinguish two orders of addition. They fail only if in both orders the first leaf meets the second,
// the third, a middle one and the last below nodes with equal numbers of leaves.
std::vector<Question> order_questions(const BlackBox& box);
std::string text_of(const SumTree& tree);

// Products that are added in one node, not counting the two that start a chain of single additions.
size_t products_per_block(const SumTree& tree);
std::string order_of(const SumTree& tree);    // "increasing", "interleaved: ...", "other"
std::string place_of_c(const SumTree& tree);  // "in the first block", "added last", ...
size_t slices_of(const SumTree& tree);        // split K: number of contiguous parts that are added at the end; 1: none

// How one kind of node adds.
inline constexpr int kAllBits = 90;  // no truncation observed: lower bits are kept as a sticky bit
enum class Cut : uint8_t { toward_zero, down, near_even, near_away };
std::string_view name_of(Cut cut);
struct Adder {
  int kept_bits = kAllBits;    // below the largest exponent
  Cut cut = Cut::toward_zero;  // rounding of lower bits, term by term
  bool normalised = false;     // exponent of a product: that of its value, or the sum of the factors' exponents
  int zero_exponent = -4096;   // a zero term raises the largest exponent to at least this
  Format out{"fp32", 8, 23};   // after each node
  Rounding rounding = Rounding::near_even;
};

// Everything that a replay needs.
struct Model {
  SumTree tree;
  Format a, b, operand;  // operands are rounded to `operand` if it has fewer bits
  Rounding operand_rounding = Rounding::near_even;
  std::string operand_change{};  // "rounded to nearest even to tf32"; empty: as stored
  bool exact_products = true;    // else each is rounded to block.out before it is added
  bool last_leaf_exact = true;   // the later of two products that start a chain is added unrounded
  bool flush_inputs = false, flush_results = false;
  Adder block;                    // nodes with products of their own
  Adder join;                     // nodes that add the results of other nodes, and c
  std::optional<Format> partial;  // inputs of a join are rounded to this first
  DType d;
};
uint64_t replay(const Model& model, const Question& question);
// The same, with the sums of some nodes given: only the nodes that add them, and c, are computed.
struct KnownSum {
  size_t node;
  double sum;
};
uint64_t replay(const Model& model, const Question& question, std::span<const KnownSum> known);
Question converted(const Model& model, Question question);  // the operands that are multiplied

// Questions with random operands of several kinds: similar magnitudes, distant exponents, cancelling sums, and bits
// near the truncation limit.
std::vector<Question> random_questions(const BlackBox& box, size_t count, uint64_t seed);

// "a1b2...", 16 hexadecimal digits of a fingerprint and of answers.
std::string hash_text(std::string_view fingerprint, std::string_view answers);

// One finding of a report. `value` is "not observable" if no question with these types can decide it.
struct Finding {
  std::string parameter, value, evidence;
};
inline constexpr std::string_view kNotObservable = "not observable";

// Rows that give the sums of the box, and what the box does beside them.
struct RowsWithSteps {
  std::vector<std::string> rows;
  std::string steps;  // "c is added afterwards, in fp32 to nearest even"
  size_t questions = 0;
};

struct Report {
  std::string device, types, way;
  std::vector<Finding> findings;
  std::optional<Model> model;           // set if tree and adders were found
  size_t replayed = 0, replays = 0;     // fresh random questions: answered by the model bit for bit, and asked
  std::vector<std::string> matches;     // all simulated rows with equal answers to every question
  std::vector<std::string> near;        // the best of the others that agree at all: "sim:volta mma.m8n8k4: 812 of 1200"
  std::string fingerprint;              // text of the findings
  std::string hash;                     // of the fingerprint and of the answers to questions that never change
  std::vector<RowsWithSteps> around{};  // rows with equal answers if the model's steps around them are added
  bool transpose_b = false;             // of the box

  const Finding* find(std::string_view parameter) const;
};

struct Options {
  size_t replays = 10000;
  bool match = true;
  uint64_t seed = 1;
};
Report examine(RecordingBox& recorder, const Options& options);

// "a1b2...: summation tree={c + 0}, 1-31; products per block=1; ...": hash and findings for a matmul, in well under a
// second. Nothing when the device does not accept these types.
std::optional<std::string> fingerprint_of(Device& device, std::string_view types);

// The directed experiments, in order; each adds findings and fills the model.
void find_adders(RecordingBox& recorder, Model& model, std::vector<Finding>& findings);    // adder.cpp
void find_operands(RecordingBox& recorder, Model& model, std::vector<Finding>& findings);  // value_range.cpp
void find_ranges(RecordingBox& recorder, Model& model, std::vector<Finding>& findings);    // value_range.cpp
// The last for boxes that add numbers and not products.
void find_term_ranges(RecordingBox& recorder, Model& model, std::vector<Finding>& findings);  // term_range.cpp

// The boxes that can be examined: matmul_box.cpp, dot_box.cpp.

struct MatmulTypes {
  std::string name;  // "f16>f32"
  DType a, b, d;
  Math math;
  bool transpose_b = false;  // b is stored as [n, k], as the weights of a linear layer are
};
// "A>D", "A*B>D" with dtypes, "tf32>f32", and "+fast" for fast accumulation, "+splitN", "+splitN:FORMAT". The
// accumulator is D, but at least fp32 for bf16 and f32. Throws Error for a name it cannot read.
MatmulTypes matmul_types_named(std::string_view name);
std::vector<std::string> usual_types();  // those that are tried on every device
struct MatmulShape {
  int64_t m = 32, n = 32, k = 64;
};
// Throws Unsupported, with the reason, when the device does not accept these types.
BlackBox matmul_box(Device& device, const MatmulTypes& types, MatmulShape shape);
// b transposed if only then a row of real speed multiplies these types, as cublasLt does fp8; else as given.
MatmulTypes in_form_of_real_speed(Device& device, MatmulTypes types, MatmulShape shape);

struct DotChoice {
  MatrixInstruction instruction;
  DType a, b, c, d;
  DType scale = DType::e8m0;
  int block = 0;             // elements per scale; 0: no scales
  std::string name() const;  // "mma.m16n8k16 f16>f32", "mma.m16n8k64 e2m1/e8m0:32>f32"
};
std::vector<DotChoice> dot_choices(Device& device);  // all that the device accepts
// Of scaled operands only the first element of each block is used, the others are zero: together with its scale it is a
// number with a wide exponent range. k counts these elements, so there are k * block products.
BlackBox dot_box(Device& device, const DotChoice& choice, size_t k);
size_t least_depth(const DotChoice& choice);  // the k of one instruction
// The operands of these questions on a device: a, b and their scales [n, ...], c [n].
struct DotOperands {
  Tensor a, b, scale_a, scale_b, c;
};
DotOperands dot_operands(Device& device, const DotChoice& choice, std::span<const Question> questions);

// Every simulated row that accepts the types of the box, or that accepts its operands and has a wider result. A wider
// result is rounded once more to nearest even, as libraries do for bf16 and f16 results of fp32 sums. A row whose
// answers differ is compared once more, with the steps around it that the model has: operands that are converted
// first, parts of K that are added at the end, c added afterwards. `alike` counts the equal answers among those
// compared (`asked`). A row that differs is not compared to the end.
struct Candidate {
  std::string row, steps;  // steps: empty for the row alone
  size_t alike = 0, asked = 0;
  bool agrees() const { return alike == asked; }
};
std::vector<Candidate> compare_with_rows(const BlackBox& box, std::span<const RecordingBox::Answer> answers,
                                         const std::optional<Model>& model);  // matching_rows.cpp

// "fp32", "bf16", "13 fraction bits": the usual name of a format of sums.
std::string name_of_sums(const BlackBox& box, int fraction_bits);

// Repeats the same questions, also in matmuls of other sizes.
void find_repeatability(Device& device, const MatmulTypes& types, MatmulShape shape, std::vector<Finding>& findings);

}  // namespace halfmark::accuracy::probe
