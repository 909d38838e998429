// Reference rows of the operations of sequence models: fp64 from the operands as stored, each output rounded once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::reference {
namespace {

// max, and the sum of the exponentials of what is left; a NaN in x makes both NaN.
struct RowSum {
  double largest, sum = 0;
  RowSum(const double* x, size_t count) : largest(x[0]) {
    for (size_t i = 1; i < count; ++i)
      if (x[i] > largest || std::isnan(x[i])) largest = x[i];
    for (size_t i = 0; i < count; ++i) sum += std::exp(x[i] - largest);
  }
};

size_t last_extent(const Tensor& tensor) { return static_cast<size_t>(tensor.shape()[tensor.shape().rank() - 1]); }

void softmax(Device&, const Softmax& op) {
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out(x.size());
  const size_t n = last_extent(op.x);
  const size_t rows = op.causal ? static_cast<size_t>(op.x.shape()[op.x.shape().rank() - 2]) : 1;
  for (size_t row = 0; row < x.size(); row += n) {
    const size_t seen = op.causal ? std::min(n, row / n % rows + 1) : n;
    const RowSum sum(x.data() + row, seen);
    if (op.masked && sum.largest == -HUGE_VAL) continue;
    for (size_t i = row; i < row + seen; ++i)
      out[i] = op.log ? x[i] - sum.largest - std::log(sum.sum) : std::exp(x[i] - sum.largest) / sum.sum;
  }
  settle(op.out, op.x);
  write(op.out, out);
}

void softmax_backward(Device&, const SoftmaxBackward& op) {
  const std::vector<double> y = read<double>(op.y), dy = read<double>(op.dy);
  std::vector<double> dx(y.size());
  const size_t n = last_extent(op.y);
  for (size_t row = 0; row < y.size(); row += n) {
    double sum = 0;
    for (size_t i = row; i < row + n; ++i) sum += op.log ? dy[i] : dy[i] * y[i];
    for (size_t i = row; i < row + n; ++i) dx[i] = op.log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
  }
  settle(op.dx, op.y);
  write(op.dx, dx);
}

struct Heads {  // [n, heads, t, d] and [n, heads, s, d]
  size_t count, t, s, d;
  bool causal;
  Heads(const Tensor& q, const Tensor& k, bool is_causal)
      : count(static_cast<size_t>(q.shape()[0] * q.shape()[1])),
        t(static_cast<size_t>(q.shape()[2])),
        s(static_cast<size_t>(k.shape()[2])),
        d(static_cast<size_t>(q.shape()[3])),
        causal(is_causal) {}
  size_t seen(size_t i) const { return causal ? std::min(s, i + 1) : s; }  // positions that query i attends to
};

double dot(const double* a, const double* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// What a mask adds to a score.
class AddedMask {
 public:
  AddedMask(const Tensor& mask, size_t rows) : values_(mask.empty() ? std::vector<double>() : mask.values()) {
    if (mask.empty()) return;
    if (mask.dtype() == DType::u8)
      for (double& value : values_) value = value == 0 ? -HUGE_VAL : 0;
    share_ = rows / static_cast<size_t>(mask.shape()[0]);
    t_ = static_cast<size_t>(mask.shape()[1]), s_ = static_cast<size_t>(mask.shape()[2]);
  }
  // Row of all scores, query, key.
  double at(size_t row, size_t i, size_t j) const {
    return values_.empty() ? 0 : values_[(row / share_ * t_ + (t_ == 1 ? 0 : i)) * s_ + j];
  }

 private:
  std::vector<double> values_;
  size_t share_ = 1, t_ = 1, s_ = 0;  // rows that have an entry of the first axis in common
};

void mask_scores(Device&, const MaskScores& op) {
  std::vector<double> x = read<double>(op.scores);
  const size_t rows = static_cast<size_t>(op.scores.shape()[0]), t = static_cast<size_t>(op.scores.shape()[1]),
               s = static_cast<size_t>(op.scores.shape()[2]);
  const AddedMask mask(op.mask, rows);
  for (size_t at = 0; at < x.size(); ++at) x[at] += mask.at(at / (t * s), at / s % t, at % s);
  settle(op.out, op.scores);
  write(op.out, x);
}

void attention(Device&, const Attention& op) {
  const Heads heads(op.q, op.k, op.causal);
  const std::vector<double> q = read<double>(op.q), k = read<double>(op.k), v = read<double>(op.v);
  std::vector<double> out(q.size(), 0.0), log_sum(heads.count * heads.t), scores(heads.s);
  const AddedMask mask(op.mask, heads.count);
  for (size_t head = 0; head < heads.count; ++head)
    for (size_t i = 0; i < heads.t; ++i) {
      const size_t row = head * heads.t + i, seen = heads.seen(i);
      for (size_t j = 0; j < seen; ++j)
        scores[j] =
            op.scale * dot(&q[row * heads.d], &k[(head * heads.s + j) * heads.d], heads.d) + mask.at(head, i, j);
      const RowSum sum(scores.data(), seen);
      log_sum[row] = sum.largest == -HUGE_VAL ? -HUGE_VAL : sum.largest + std::log(sum.sum);
      if (log_sum[row] == -HUGE_VAL) continue;
      for (size_t j = 0; j < seen; ++j) {
        const double p = std::exp(scores[j] - sum.largest) / sum.sum;
        for (size_t e = 0; e < heads.d; ++e) out[row * heads.d + e] += p * v[(head * heads.s + j) * heads.d + e];
      }
    }
  settle(op.out, op.q), settle(op.log_sum, op.q);
  write(op.out, out), write(op.log_sum, log_sum);
}

void attention_backward(Device&, const AttentionBackward& op) {
  const Heads heads(op.q, op.k, op.causal);
  const std::vector<double> q = read<double>(op.q), k = read<double>(op.k), v = read<double>(op.v);
  const std::vector<double> out = read<double>(op.out), dout = read<double>(op.dout),
                            log_sum = read<double>(op.log_sum);
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
  const AddedMask mask(op.mask, heads.count);
  for (size_t head = 0; head < heads.count; ++head)
    for (size_t i = 0; i < heads.t; ++i) {
      const size_t row = head * heads.t + i, d = heads.d;
      if (log_sum[row] == -HUGE_VAL) continue;
      const double along = dot(&dout[row * d], &out[row * d], d);
      for (size_t j = 0; j < heads.seen(i); ++j) {
        const size_t other = (head * heads.s + j) * d;
        const double p = std::exp(op.scale * dot(&q[row * d], &k[other], d) + mask.at(head, i, j) - log_sum[row]);
        const double ds = op.scale * p * (dot(&dout[row * d], &v[other], d) - along);
        for (size_t e = 0; e < d; ++e) {
          dv[other + e] += p * dout[row * d + e];
          dq[row * d + e] += ds * k[other + e], dk[other + e] += ds * q[row * d + e];
        }
      }
    }
  settle(op.dq, op.q), settle(op.dk, op.k), settle(op.dv, op.v);
  write(op.dq, dq), write(op.dk, dk), write(op.dv, dv);
}

void permute_axes(Device&, const Permute& op) {
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out(x.size());
  const Shape from = op.x.shape(), to = op.out.shape();
  const int rank = from.rank();
  std::vector<size_t> steps(static_cast<size_t>(rank), 1);  // of x, for each axis of the result
  for (int i = 0; i < rank; ++i)
    for (int axis = op.order.order[static_cast<size_t>(i)] + 1; axis < rank; ++axis)
      steps[static_cast<size_t>(i)] *= static_cast<size_t>(from[axis]);
  for (size_t o = 0; o < out.size(); ++o) {
    size_t rest = o, place = 0;
    for (int i = rank; i-- > 0;) {
      place += rest % static_cast<size_t>(to[i]) * steps[static_cast<size_t>(i)];
      rest /= static_cast<size_t>(to[i]);
    }
    out[o] = x[place];
  }
  op.out.materialize(Layout::plain);
  write(op.out, out);
}

void narrow_indices(Device&, const NarrowIndices& op) {
  const std::vector<double> halves = op.wide.values();
  std::vector<double> narrow;
  for (size_t i = 0; i < halves.size(); i += 2)
    narrow.push_back(narrow_index(static_cast<int32_t>(halves[i]), static_cast<int32_t>(halves[i + 1])));
  op.narrow.materialize(Layout::plain);
  op.narrow.set_values(narrow);
}

std::vector<int64_t> indices_of(const Tensor& indices, int64_t entries) {
  std::vector<int64_t> all;
  for (const double value : indices.values()) {
    HM_CHECK(value >= 0 && value < static_cast<double>(entries),
             "embedding: index " + std::to_string(static_cast<int64_t>(value)) + " of a table with " +
                 std::to_string(entries) + " entries");
    all.push_back(static_cast<int64_t>(value));
  }
  return all;
}

void embedding(Device&, const Embedding& op) {
  const std::vector<double> table = read<double>(op.table);
  const auto features = static_cast<size_t>(op.table.shape()[1]);
  std::vector<double> out;
  for (const int64_t index : indices_of(op.indices, op.table.shape()[0])) {
    const auto row = table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(index) * features);
    out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(features));
  }
  op.out.materialize(Layout::plain);
  write(op.out, out);
}

void embedding_backward(Device&, const EmbeddingBackward& op) {
  const std::vector<double> dy = read<double>(op.dy);
  const auto features = static_cast<size_t>(op.dtable.shape()[1]);
  std::vector<double> table(static_cast<size_t>(op.dtable.elements()));
  size_t row = 0;
  for (const int64_t index : indices_of(op.indices, op.dtable.shape()[0])) {
    if (index != op.padding)
      for (size_t i = 0; i < features; ++i) table[static_cast<size_t>(index) * features + i] += dy[row * features + i];
    ++row;
  }
  op.dtable.materialize(Layout::plain);
  write(op.dtable, table);
}

// f(i, kept) for every element in logical order.
void each_kept(const Tensor& x, const Tensor& mask, auto&& f) {
  const std::vector<unsigned char> kept = mask.codes();
  const size_t count = static_cast<size_t>(x.elements()), share = kept.empty() ? 1 : count / kept.size();
  for (size_t i = 0; i < count; ++i) f(i, kept[i / share] != 0);
}

void dropout(Device&, const Dropout& op) {
  const std::vector<double> x = read<double>(op.x);
  std::vector<unsigned char> kept(static_cast<size_t>(op.mask.elements()));
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = op.keeps(i);
  op.mask.materialize(Layout::plain);
  write_codes(op.mask, kept);
  std::vector<double> out(x.size());
  each_kept(op.x, op.mask, [&](size_t i, bool is_kept) { out[i] = is_kept ? x[i] / (1 - op.p) : 0; });
  settle(op.out, op.x);
  write(op.out, out);
}

void dropout_backward(Device&, const DropoutBackward& op) {
  const std::vector<double> dy = read<double>(op.dy);
  std::vector<double> dx(dy.size());
  each_kept(op.dy, op.mask, [&](size_t i, bool is_kept) { dx[i] = is_kept ? dy[i] / (1 - op.p) : 0; });
  settle(op.dx, op.dy);
  write(op.dx, dx);
}

void lstm_cell(Device&, const LstmCell& op) {
  const std::vector<double> z = read<double>(op.z), before = read<double>(op.c_before);
  std::vector<double> gates(z.size()), c(before.size()), h(before.size());
  const size_t hidden = last_extent(op.c);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (size_t n = 0; n < c.size() / hidden; ++n)
    for (size_t j = 0; j < hidden; ++j) {
      double* gate = gates.data() + 4 * n * hidden + j;
      for (size_t which = 0; which < 4; ++which) {
        const double value = z[4 * n * hidden + which * hidden + j];
        gate[which * hidden] = which == 2 ? std::tanh(value) : sigmoid(value);
      }
      const size_t i = n * hidden + j;
      c[i] = gate[hidden] * before[i] + gate[0] * gate[2 * hidden], h[i] = gate[3 * hidden] * std::tanh(c[i]);
    }
  for (Tensor* one : {&op.gates, &op.c, &op.h}) one->materialize(Layout::plain);
  write(op.gates, gates), write(op.c, c), write(op.h, h);
}

void lstm_cell_backward(Device&, const LstmCellBackward& op) {
  const std::vector<double> gates = read<double>(op.gates), before = read<double>(op.c_before), c = read<double>(op.c),
                            dh = read<double>(op.dh), dc_next = read<double>(op.dc);
  std::vector<double> dz(gates.size()), dc_before(c.size());
  const size_t hidden = last_extent(op.c);
  for (size_t n = 0; n < c.size() / hidden; ++n)
    for (size_t j = 0; j < hidden; ++j) {
      const size_t k = n * hidden + j, base = 4 * n * hidden + j;
      const double i = gates[base], f = gates[base + hidden], g = gates[base + 2 * hidden],
                   o = gates[base + 3 * hidden];
      const double t = std::tanh(c[k]), dc = dc_next[k] + dh[k] * o * (1 - t * t);
      dz[base] = dc * g * i * (1 - i), dz[base + hidden] = dc * before[k] * f * (1 - f);
      dz[base + 2 * hidden] = dc * i * (1 - g * g), dz[base + 3 * hidden] = dh[k] * t * o * (1 - o);
      dc_before[k] = dc * f;
    }
  op.dz.materialize(Layout::plain), op.dc_before.materialize(Layout::plain);
  write(op.dz, dz), write(op.dc_before, dc_before);
}

}  // namespace

void add_sequence_rows(KernelTable& table) {
  add_row<Softmax>(table, softmax), add_row<SoftmaxBackward>(table, softmax_backward);
  add_row<MaskScores>(table, mask_scores);
  add_row<Attention>(table, attention), add_row<AttentionBackward>(table, attention_backward);
  add_row<Permute>(table, permute_axes), add_row<NarrowIndices>(table, narrow_indices);
  add_row<Embedding>(table, embedding), add_row<EmbeddingBackward>(table, embedding_backward);
  add_row<Dropout>(table, dropout), add_row<DropoutBackward>(table, dropout_backward);
  add_row<LstmCell>(table, lstm_cell), add_row<LstmCellBackward>(table, lstm_cell_backward);
}

}  // namespace halfmark::kernels::reference
