// Operations of sequence models: softmax, attention, embeddings, dropout, permutations, the LSTM cell.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/ops/operations/contraction.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// Over the last axis: out = exp(x - max) / sum of exp(x - max), or its logarithm. At least fp32 inside, rounded once. A
// row of -infinity gives NaN, as in PyTorch; if masked, 0, as in its attention. If causal, x is [..., t, s], and values
// j > i of row i have the probability 0.
struct Softmax {
  static constexpr std::string_view name = "softmax";
  const Tensor& x;
  Tensor& out;
  bool log = false, causal = false;  // not both
  bool masked = false;               // not with log
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.attribute(log), v.attribute(causal), v.attribute(masked);
  }
};

struct SoftmaxBackward {  // dx = y (dy - sum(dy y)); of the logarithm: dx = dy - exp(y) sum(dy)
  static constexpr std::string_view name = "softmax_backward";
  const Tensor& y;  // forward's result
  const Tensor& dy;
  Tensor& dx;
  bool log = false;
  void check() const;
  void visit(auto&& v) const { v.input("y", y), v.input("dy", dy), v.output("dx", dx), v.attribute(log); }
};

// out[b] = op(a[b]) op(b[b]): a Matmul for each entry of the first axis.
struct BatchedMatmul {
  static constexpr std::string_view name = "batched_matmul";
  const Tensor& a;  // [batch, m, k], or [batch, k, m] when transposed
  const Tensor& b;  // [batch, k, n], or [batch, n, k] when transposed
  Tensor& out;      // [batch, m, n]
  bool transpose_a = false, transpose_b = false;
  Math math{};
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b), v.output("out", out);
    v.attribute(transpose_a), v.attribute(transpose_b), v.attribute(math);
  }
};

// out = scores + mask, rounded once. A mask of u8 adds -infinity where it is 0.
struct MaskScores {
  static constexpr std::string_view name = "mask_scores";
  const Tensor& scores;  // [n heads, t, s]
  const Tensor& mask;    // [n or 1, t or 1, s], u8 or any floating dtype; an entry of the first axis is for all heads
  Tensor& out;           // as scores
  void check() const;
  void visit(auto&& v) const { v.input("scores", scores), v.input("mask", mask), v.output("out", out); }
};

// out = softmax(scale q k^T + mask) v for each head, where position i attends to j <= i only if causal. At least fp32
// in all sums, and in all that is between q, k, v and out, with one exception: a row that multiplies on tensor cores rounds
// the probabilities once to the dtype of q, and backward the derivatives of the scores too, as flash attention does. A
// query that attends to nothing gives 0 and has no gradient, as in PyTorch. An infinite or NaN element of a key or value may
// reach queries that do not attend to it, because rows of whole products multiply it by 0.
struct Attention {
  static constexpr std::string_view name = "attention";
  const Tensor& q;     // [n, heads, t, d]
  const Tensor& k;     // [n, heads, s, d]
  const Tensor& v;     // [n, heads, s, d]
  const Tensor& mask;  // as of MaskScores; empty: none
  Tensor& out;         // as q
  Tensor& log_sum;     // [n, heads, t], f32 (f64 for f64): logarithm of the sum of the exponentials; for backward
  bool causal = false;
  double scale = 1;
  void check() const;
  void visit(auto&& each) const {
    each.input("q", q), each.input("k", k), each.input("v", v), each.input("mask", mask), each.output("out", out);
    each.output("log_sum", log_sum), each.attribute(causal), each.attribute(scale);
  }
};

// With P = exp(scale q k^T + mask - log_sum) and dS = P (dout v^T - rowsum(dout out)): dv = P^T dout, dq = scale dS k,
// dk = scale dS^T q.
struct AttentionBackward {
  static constexpr std::string_view name = "attention_backward";
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Tensor& mask;
  const Tensor& out;
  const Tensor& log_sum;
  const Tensor& dout;
  Tensor& dq;
  Tensor& dk;
  Tensor& dv;
  bool causal = false;
  double scale = 1;
  void check() const;
  void visit(auto&& each) const {
    each.input("q", q), each.input("k", k), each.input("v", v), each.input("mask", mask), each.input("out", out);
    each.input("log_sum", log_sum), each.input("dout", dout);
    each.output("dq", dq), each.output("dk", dk), each.output("dv", dv), each.attribute(causal), each.attribute(scale);
  }
};

// Attention of a position's q, k and v as one projection writes them, heads behind positions: the numbers of Attention on
// copies of them with the heads first, its result with the positions first again. A row that takes strides needs no copies.
struct PackedAttention {
  static constexpr std::string_view name = "packed_attention";
  const Tensor& qkv;   // [n, t, 3, heads, d]: q, k and v of each position
  const Tensor& mask;  // as of MaskScores, with s = t; empty: none
  Tensor& out;         // [n, t, heads, d]
  Tensor& log_sum;     // [n, heads, t], as of Attention
  bool causal = false;
  double scale = 1;
  void check() const;
  void visit(auto&& each) const {
    each.input("qkv", qkv), each.input("mask", mask), each.output("out", out), each.output("log_sum", log_sum);
    each.attribute(causal), each.attribute(scale);
  }
};

struct PackedAttentionBackward {  // of PackedAttention, as AttentionBackward
  static constexpr std::string_view name = "packed_attention_backward";
  const Tensor& qkv;
  const Tensor& mask;
  const Tensor& out;
  const Tensor& log_sum;
  const Tensor& dout;  // as out
  Tensor& dqkv;        // as qkv
  bool causal = false;
  double scale = 1;
  void check() const;
  void visit(auto&& each) const {
    each.input("qkv", qkv), each.input("mask", mask), each.input("out", out), each.input("log_sum", log_sum);
    each.input("dout", dout), each.output("dqkv", dqkv), each.attribute(causal), each.attribute(scale);
  }
};

struct AxisOrder {  // axis i of the result is axis order[i] of the operand
  std::array<int, 6> order{};
  int rank = 0;
  int64_t code() const {  // equal for equal orders
    int64_t code = rank;
    for (int i = 0; i < rank; ++i) code = code << 4 | order[static_cast<size_t>(i)];
    return code;
  }
};
AxisOrder inverse(const AxisOrder& order);
Shape permuted(const Shape& shape, const AxisOrder& order);

struct Permute {  // the axes in another order, bit for bit
  static constexpr std::string_view name = "permute";
  const Tensor& x;
  Tensor& out;
  AxisOrder order{};
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), v.attribute(order.code()); }
};

// Indices of 64 bits as 32 bits, exactly. The rows of this suite take indices of 32 bits; frameworks store them in 64.
// Throws Error for one that does not fit.
struct NarrowIndices {
  static constexpr std::string_view name = "narrow_indices";
  const Tensor& wide;  // i32 [..., 2]: the halves of each index, the lower one first, as an int64 is in memory
  Tensor& narrow;      // i32 [...]
  void check() const;
  void visit(auto&& v) const { v.input("wide", wide), v.output("narrow", narrow); }
};
// The index of these halves. Throws Error "narrow_indices: the index 4294967296 does not fit 32 bits".
int32_t narrow_index(int32_t lower, int32_t upper);

struct Embedding {  // out[..., :] = table[indices[...], :], bit for bit
  static constexpr std::string_view name = "embedding";
  const Tensor& indices;  // i32, any shape
  const Tensor& table;    // [entries, features]
  Tensor& out;            // [..., features]
  void check() const;
  void visit(auto&& v) const { v.input("indices", indices), v.input("table", table), v.output("out", out); }
};

// dtable[e] = sum of dy where the index is e, summed in at least fp32 in the order of the indices and rounded once. (PyTorch
// on a CPU adds in the storage dtype: 4096 ones give 2048 in fp16.) Entry `padding` gets 0.
struct EmbeddingBackward {
  static constexpr std::string_view name = "embedding_backward";
  const Tensor& indices;
  const Tensor& dy;
  Tensor& dtable;
  int64_t padding = -1;
  void check() const;
  void visit(auto&& v) const {
    v.input("indices", indices), v.input("dy", dy), v.output("dtable", dtable), v.attribute(padding);
  }
};

// out = x / (1 - p) where kept, else 0; the factor is rounded to fp32 (fp64 for f64). Element i of the mask, in logical
// order, is kept if word i mod 4 of the block i / 4 is at least p 2^32.
struct Dropout {
  static constexpr std::string_view name = "dropout";
  const Tensor& x;
  Tensor& mask;  // u8, written: of the shape of x, or [n, c] for whole channels of [n, c, ...]
  Tensor& out;
  double p = 0.5;
  uint64_t seed = 0;
  // philox of tensor/random.h, with the number of the block as the lower half of the counter and the seed as the key.
  std::array<uint32_t, 4> block(uint64_t number) const;
  bool keeps(uint64_t i) const { return static_cast<double>(block(i / 4)[i % 4]) >= p * 0x1p32; }
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("mask", mask), v.output("out", out), v.attribute(p); }
};

struct DropoutBackward {
  static constexpr std::string_view name = "dropout_backward";
  const Tensor& dy;
  const Tensor& mask;
  Tensor& dx;
  double p = 0.5;
  void check() const;
  void visit(auto&& v) const { v.input("dy", dy), v.input("mask", mask), v.output("dx", dx), v.attribute(p); }
};

// One step of an LSTM from its gates before the activation, in the order i, f, g, o:
// c = sigmoid(f) c_before + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c).
struct LstmCell {
  static constexpr std::string_view name = "lstm_cell";
  const Tensor& z;         // [n, 4 hidden]
  const Tensor& c_before;  // [n, hidden], any floating dtype
  Tensor& gates;           // [n, 4 hidden], after the activation; for backward
  Tensor& c;               // [n, hidden]
  Tensor& h;               // [n, hidden]
  void check() const;
  void visit(auto&& v) const {
    v.input("z", z), v.input("c_before", c_before), v.output("gates", gates), v.output("c", c), v.output("h", h);
  }
};

struct LstmCellBackward {
  static constexpr std::string_view name = "lstm_cell_backward";
  const Tensor& gates;
  const Tensor& c_before;
  const Tensor& c;
  const Tensor& dh;
  const Tensor& dc;  // from the next step
  Tensor& dz;
  Tensor& dc_before;
  void check() const;
  void visit(auto&& v) const {
    v.input("gates", gates), v.input("c_before", c_before), v.input("c", c), v.input("dh", dh), v.input("dc", dc);
    v.output("dz", dz), v.output("dc_before", dc_before);
  }
};

}  // namespace halfmark::kernels
