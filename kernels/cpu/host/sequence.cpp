// Softmax, embeddings, dropout, permutations and the LSTM cell as host loops.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_unless_plain(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (tensor->layout() != Layout::plain && tensor->layout() != Layout::any) return "its rows are not contiguous";
  return {};
}

int64_t last_extent(const Tensor& tensor) { return tensor.shape()[tensor.shape().rank() - 1]; }
int64_t grain_of_rows(int64_t width) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)); }

// f(row values, result values, width) for rows of one, two operands; `out` of the same shape.
template <class T, size_t N, class F>
void each_row(Tensor& out, const std::array<const Tensor*, N>& in, F f) {
  out.materialize(Layout::plain);
  const int64_t width = last_extent(out), rows = out.elements() / std::max<int64_t>(width, 1);
  parallel_for(rows, grain_of_rows(width), [&](int64_t begin, int64_t end) {
    std::vector<T> buffers[N + 1];
    for (auto& buffer : buffers) buffer.resize(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      std::array<const T*, N> p;
      for (size_t k = 0; k < N; ++k) p[k] = read(*in[k], row * width, width, buffers[k].data());
      T* r = writable(out, row * width, buffers[N].data());
      f(p, r, width, row);
      written(out, row * width, width, r);
    }
  });
}

// r = exp(x - largest), and the sum.
template <class T>
T exponentials(const T* x, int64_t width, T largest, T* r) {
  constexpr int64_t lanes = kLanes<T>;
  T sums[lanes] = {};
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    T part[lanes];
    for (int64_t lane = 0; lane < lanes; ++lane) part[lane] = exp_of_nonpositive(x[j + lane] - largest);
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += part[lane], r[j + lane] = part[lane];
  }
  for (; j < width; ++j) r[j] = exp_of_nonpositive(x[j] - largest), sums[j % lanes] += r[j];
  return sum_of_lanes(sums);
}

template <class T>
void softmax(const Softmax& op) {
  const int64_t period = op.causal ? op.x.shape()[op.x.shape().rank() - 2] : 0;
  each_row<T>(
      op.out, std::array{&op.x},
      [log = op.log, masked = op.masked, period](const auto& p, T* r, int64_t all, int64_t row) {
        const T* x = p[0];
        const int64_t width = period ? std::min(all, row % period + 1) : all;  // that this row sees
        std::fill(r + width, r + all, T(0));
        // If x has a NaN, the sum of the exponentials has one too.
        const T largest = largest_of(x, width);
        if (masked && largest == -HUGE_VALF && std::none_of(x, x + width, [](T one) { return std::isnan(one); })) {
          std::fill_n(r, width, T(0));
          return;
        }
        if (log) {
          const T sum = lanes_sum<T, kLanes<T>>(width, [&](int64_t j) { return exp_of_nonpositive(x[j] - largest); });
          const T shift = std::log(sum);
          for (int64_t j = 0; j < width; ++j) r[j] = (x[j] - largest) - shift;
          return;
        }
        const T inverse = T(1) / exponentials(x, width, largest, r);
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < width; ++j) r[j] *= inverse;
      });
}

template <class T>
void softmax_backward(const SoftmaxBackward& op) {
  each_row<T>(op.dx, std::array{&op.y, &op.dy}, [log = op.log](const auto& p, T* r, int64_t width, int64_t) {
    const T *y = p[0], *dy = p[1];
    const T sum = lanes_sum<T, kLanes<T>>(width, [&](int64_t j) { return log ? dy[j] : dy[j] * y[j]; });
    if (log) HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < width; ++j) r[j] = dy[j] - exp_of_nonpositive(y[j]) * sum;
    else for (int64_t j = 0; j < width; ++j) r[j] = y[j] * (dy[j] - sum);
  });
}

Refusal refuses_softmax(const Device&, const Softmax& op) {
  if (Refusal refusal = refuses_unless_plain({&op.x, &op.out})) return refusal;
  return refuses_dtypes({&op.x, &op.out});
}
Refusal refuses_softmax_backward(const Device&, const SoftmaxBackward& op) {
  if (Refusal refusal = refuses_unless_plain({&op.y, &op.dy, &op.dx})) return refusal;
  return refuses_dtypes({&op.y, &op.dy, &op.dx});
}
void run_softmax(Device&, const Softmax& op) {
  computes_in_double({&op.x, &op.out}) ? softmax<double>(op) : softmax<float>(op);
}
void run_softmax_backward(Device&, const SoftmaxBackward& op) {
  computes_in_double({&op.y, &op.dy}) ? softmax_backward<double>(op) : softmax_backward<float>(op);
}

Refusal refuses_permute(const Device&, const Permute& op) {
  if (is_packed(op.x.dtype())) return "copies whole bytes, and " + std::string(name_of(op.x.dtype())) + " is packed";
  return refuses_unless_plain({&op.x, &op.out});
}

// Runs of the innermost axes that keep their place are copied at once.
void run_permute(Device&, const Permute& op) {
  op.out.materialize(Layout::plain);
  const Shape from = op.x.shape(), to = op.out.shape();
  int rank = op.order.rank;
  size_t run = size_of(op.x.dtype());
  while (rank > 0 && op.order.order[static_cast<size_t>(rank - 1)] == rank - 1)
    run *= static_cast<size_t>(from[--rank]);
  std::vector<size_t> steps(static_cast<size_t>(rank), run);  // of x in bytes, for each axis of the result
  int64_t pieces = 1;
  for (int i = 0; i < rank; ++i) {
    for (int axis = op.order.order[static_cast<size_t>(i)] + 1; axis < rank; ++axis)
      steps[static_cast<size_t>(i)] *= static_cast<size_t>(from[axis]);
    pieces *= to[i];
  }
  const auto* source = static_cast<const unsigned char*>(op.x.data());
  auto* target = static_cast<unsigned char*>(op.out.data());
  if (rank == 0) {
    std::memcpy(target, source, run);
    return;
  }
  const int64_t inner = to[rank - 1];  // pieces in a row of the result
  const size_t step = steps.back();
  parallel_for(pieces / std::max<int64_t>(inner, 1), grain_of_rows(inner * static_cast<int64_t>(run) / 4),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   size_t place = 0;
                   int64_t rest = row;
                   for (int i = rank - 1; i-- > 0;) {
                     place += static_cast<size_t>(rest % to[i]) * steps[static_cast<size_t>(i)];
                     rest /= to[i];
                   }
                   unsigned char* out = target + static_cast<size_t>(row * inner) * run;
                   for (size_t j = 0; j < static_cast<size_t>(inner); ++j)
                     std::memcpy(out + j * run, source + place + j * step, run);
                 }
               });
}

Refusal refuses_narrow_indices(const Device&, const NarrowIndices& op) {
  return refuses_unless_plain({&op.wide, &op.narrow});
}
void run_narrow_indices(Device&, const NarrowIndices& op) {
  op.narrow.materialize(Layout::plain);
  const auto* wide = op.wide.as<int32_t>();
  auto* narrow = op.narrow.as<int32_t>();
  parallel_for(op.narrow.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) narrow[i] = narrow_index(wide[2 * i], wide[2 * i + 1]);
  });
}

void check_indices(std::string_view operation, const Tensor& indices, int64_t entries) {
  const auto* index = indices.as<int32_t>();
  for (int64_t i = 0; i < indices.elements(); ++i)
    HM_CHECK(index[i] >= 0 && index[i] < entries, std::string(operation) + ": index " + std::to_string(index[i]) +
                                                      " of a table with " + std::to_string(entries) + " entries");
}

Refusal refuses_embedding(const Device&, const Embedding& op) {
  if (is_packed(op.table.dtype())) return "copies whole bytes";
  return refuses_unless_plain({&op.indices, &op.table, &op.out});
}
void run_embedding(Device&, const Embedding& op) {
  check_indices("embedding", op.indices, op.table.shape()[0]);
  op.out.materialize(Layout::plain);
  const size_t row = size_of(op.table.dtype()) * static_cast<size_t>(op.table.shape()[1]);
  const auto* index = op.indices.as<int32_t>();
  const auto* table = static_cast<const unsigned char*>(op.table.data());
  auto* out = static_cast<unsigned char*>(op.out.data());
  parallel_for(op.indices.elements(), grain_of_rows(op.table.shape()[1]), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(out + static_cast<size_t>(i) * row, table + static_cast<size_t>(index[i]) * row, row);
  });
}

Refusal refuses_embedding_backward(const Device&, const EmbeddingBackward& op) {
  if (Refusal refusal = refuses_unless_plain({&op.indices, &op.dy, &op.dtable})) return refusal;
  return refuses_dtypes({&op.dy, &op.dtable});
}

// Blocks of features in parallel, so that each sum has the order of the indices.
template <class T>
void embedding_backward(const EmbeddingBackward& op) {
  check_indices("embedding_backward", op.indices, op.dtable.shape()[0]);
  op.dtable.materialize(Layout::plain);
  const int64_t features = op.dtable.shape()[1], count = op.indices.elements();
  const auto* index = op.indices.as<int32_t>();
  std::vector<T> sums(static_cast<size_t>(op.dtable.elements()), T(0));
  constexpr int64_t kFeatures = 64;
  parallel_for((features + kFeatures - 1) / kFeatures, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kFeatures, last = std::min(features, end * kFeatures);
    std::vector<T> buffer(static_cast<size_t>(last - first));
    for (int64_t i = 0; i < count; ++i) {
      if (index[i] == op.padding) continue;
      const T* dy = read(op.dy, i * features + first, last - first, buffer.data());
      T* sum = sums.data() + index[i] * features + first;
      for (int64_t j = 0; j < last - first; ++j) sum[j] += dy[j];
    }
  });
  convert(kStored<T>, sums.data(), op.dtable.dtype(), op.dtable.data(), sums.size());
}
void run_embedding_backward(Device&, const EmbeddingBackward& op) {
  computes_in_double({&op.dy, &op.dtable}) ? embedding_backward<double>(op) : embedding_backward<float>(op);
}

// out = from factor, or 0 where not kept; `share` elements for each entry of the mask.
template <class T>
void masked_nhwc(const Tensor& from, const Tensor& mask, Tensor& out, double p) {
  const Shape& s = from.shape();
  const int64_t channels = s[1], pixels = s[2] * s[3];
  const T factor = static_cast<T>(1 / (1 - p));
  const auto* kept = mask.as<uint8_t>();
  parallel_for(s[0] * pixels, grain_of_rows(channels), [&](int64_t begin, int64_t end) {
    std::vector<T> source(static_cast<size_t>(channels)), result(source);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = read(from, row * channels, channels, source.data());
      T* r = writable(out, row * channels, result.data());
      const uint8_t* own = kept + row / pixels * channels;
      HM_EACH_FOR_ITSELF
      for (int64_t c = 0; c < channels; ++c) {
        const T scaled = x[c] * factor;
        r[c] = own[c] ? scaled : T(0);
      }
      written(out, row * channels, channels, r);
    }
  });
}

template <class T>
void masked(const Tensor& from, const Tensor& mask, Tensor& out, double p) {
  if (from.layout() == Layout::nhwc) return masked_nhwc<T>(from, mask, out, p);
  const auto* kept = mask.as<uint8_t>();
  const int64_t share = from.elements() / std::max<int64_t>(mask.elements(), 1);
  const T factor = static_cast<T>(1 / (1 - p));
  parallel_for(from.elements(), kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T source[kBlock], result[kBlock];
    for (int64_t i = begin; i < end;) {
      const int64_t left = share == 1 ? end - i : std::min(end, (i / share + 1) * share) - i;
      const int64_t count = std::min(kBlock, left);
      const T* x = read(from, i, count, source);
      T* r = writable(out, i, result);
      if (share == 1)
        for (int64_t j = 0; j < count; ++j) r[j] = kept[i + j] ? x[j] * factor : T(0);
      else if (kept[i / share])
        for (int64_t j = 0; j < count; ++j) r[j] = x[j] * factor;
      else
        std::fill_n(r, count, T(0));
      written(out, i, count, r);
      i += count;
    }
  });
}

// Images in nhwc only if whole channels are dropped: the numbers are drawn in plain order.
Refusal refuses_masked(const Tensor& from, const Tensor& mask, const Tensor& out) {
  const bool whole_channels = from.shape().rank() == 4 && mask.shape().rank() == 2;
  const bool is_nhwc = from.layout() == Layout::nhwc && (out.layout() == Layout::nhwc || out.layout() == Layout::any);
  if (whole_channels && is_nhwc) return refuses_unless_plain({&mask});
  return refuses_unless_plain({&from, &mask, &out});
}

Refusal refuses_dropout(const Device&, const Dropout& op) {
  if (Refusal refusal = refuses_masked(op.x, op.mask, op.out)) return refusal;
  return refuses_dtypes({&op.x, &op.out});
}
Refusal refuses_dropout_backward(const Device&, const DropoutBackward& op) {
  if (Refusal refusal = refuses_masked(op.dy, op.mask, op.dx)) return refusal;
  return refuses_dtypes({&op.dy, &op.dx});
}
void run_dropout(Device&, const Dropout& op) {
  op.mask.materialize(Layout::plain), op.out.materialize(op.x.layout());
  auto* kept = op.mask.as<uint8_t>();
  const double least = op.p * 0x1p32;
  const int64_t elements = op.mask.elements();
  parallel_for((elements + 3) / 4, kGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::array<uint32_t, 4> words = op.block(static_cast<uint64_t>(i));
      for (int64_t j = 4 * i; j < std::min(4 * i + 4, elements); ++j)
        kept[j] = static_cast<double>(words[static_cast<size_t>(j - 4 * i)]) >= least;
    }
  });
  computes_in_double({&op.x, &op.out}) ? masked<double>(op.x, op.mask, op.out, op.p)
                                       : masked<float>(op.x, op.mask, op.out, op.p);
}
void run_dropout_backward(Device&, const DropoutBackward& op) {
  op.dx.materialize(op.dy.layout());
  computes_in_double({&op.dy, &op.dx}) ? masked<double>(op.dy, op.mask, op.dx, op.p)
                                       : masked<float>(op.dy, op.mask, op.dx, op.p);
}

// Columns of a row that are in buffers at a time.
constexpr int64_t kColumns = kBlock / 4;

// The four gates i, f, g, o of columns `begin` and following, of [n, 4 hidden].
template <class T>
struct Gates {
  alignas(64) T wide[4][kColumns];
  const T* of[4];

  void load(const ReadView& tensor, int64_t row, int64_t hidden, int64_t begin, int64_t count) {
    for (int64_t g = 0; g < 4; ++g) of[g] = read(tensor, (4 * row + g) * hidden + begin, count, wide[g]);
  }
};
template <class T>
struct WrittenGates {
  alignas(64) T wide[4][kColumns];
  T* of[4];

  void open(const WriteView& tensor, int64_t row, int64_t hidden, int64_t begin) {
    for (int64_t g = 0; g < 4; ++g) of[g] = writable(tensor, (4 * row + g) * hidden + begin, wide[g]);
  }
  void close(const WriteView& tensor, int64_t row, int64_t hidden, int64_t begin, int64_t count) {
    for (int64_t g = 0; g < 4; ++g) written(tensor, (4 * row + g) * hidden + begin, count, of[g]);
  }
};

// f(row, first column, columns) for all rows of [n, hidden].
template <class F>
void each_cell_block(const Tensor& c, F f) {
  const int64_t n = c.shape()[0], hidden = c.shape()[1];
  parallel_for(n, grain_of_rows(hidden * 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < hidden; i += kColumns) f(row, i, std::min(kColumns, hidden - i));
  });
}

template <class T>
void cell(const LstmCell& op) {
  const int64_t hidden = op.c.shape()[1];
  for (Tensor* tensor : {&op.gates, &op.c, &op.h}) tensor->materialize(Layout::plain);
  const ReadView view_z(op.z), view_before(op.c_before);
  const WriteView view_gates(op.gates), view_c(op.c), view_h(op.h);
  each_cell_block(op.c, [&](int64_t row, int64_t first, int64_t count) {
    Gates<T> z;
    WrittenGates<T> gates;
    alignas(64) T wide_before[kColumns], wide_c[kColumns], wide_h[kColumns];
    const int64_t at = row * hidden + first;
    z.load(view_z, row, hidden, first, count), gates.open(view_gates, row, hidden, first);
    const T* before = read(view_before, at, count, wide_before);
    T *c = writable(view_c, at, wide_c), *h = writable(view_h, at, wide_h);
    for (const int gate : {0, 1, 3}) {
      const T* in = z.of[gate];
      T* out = gates.of[gate];
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) out[j] = vector_sigmoid(in[j]);
    }
    const T *in = z.of[2], *i = gates.of[0], *f = gates.of[1], *o = gates.of[3];
    T* g = gates.of[2];
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) g[j] = vector_tanh(in[j]);
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) {
      const T next = f[j] * before[j] + i[j] * g[j];
      c[j] = next, h[j] = o[j] * vector_tanh(next);
    }
    gates.close(view_gates, row, hidden, first, count);
    written(view_c, at, count, c), written(view_h, at, count, h);
  });
}

template <class T>
void cell_backward(const LstmCellBackward& op) {
  const int64_t hidden = op.c.shape()[1];
  op.dz.materialize(Layout::plain), op.dc_before.materialize(Layout::plain);
  const ReadView view_gates(op.gates), view_before(op.c_before), view_c(op.c), view_dh(op.dh), view_dc(op.dc);
  const WriteView view_dz(op.dz), view_dc_before(op.dc_before);
  each_cell_block(op.c, [&](int64_t row, int64_t first, int64_t count) {
    Gates<T> gates;
    WrittenGates<T> dz;
    alignas(64) T wide[5][kColumns];
    const int64_t at = row * hidden + first;
    gates.load(view_gates, row, hidden, first, count), dz.open(view_dz, row, hidden, first);
    const T *before = read(view_before, at, count, wide[0]), *c = read(view_c, at, count, wide[1]),
            *dh = read(view_dh, at, count, wide[2]), *dc_next = read(view_dc, at, count, wide[3]);
    T* dc_before = writable(view_dc_before, at, wide[4]);
    const T *gate_i = gates.of[0], *gate_f = gates.of[1], *gate_g = gates.of[2], *gate_o = gates.of[3];
    T *dz_i = dz.of[0], *dz_f = dz.of[1], *dz_g = dz.of[2], *dz_o = dz.of[3];
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) {
      const T i = gate_i[j], f = gate_f[j], g = gate_g[j], o = gate_o[j];
      const T t = vector_tanh(c[j]), dc = dc_next[j] + dh[j] * o * (1 - t * t);
      dz_i[j] = dc * g * i * (1 - i), dz_f[j] = dc * before[j] * f * (1 - f);
      dz_g[j] = dc * i * (1 - g * g), dz_o[j] = dh[j] * t * o * (1 - o);
      dc_before[j] = dc * f;
    }
    dz.close(view_dz, row, hidden, first, count);
    written(view_dc_before, at, count, dc_before);
  });
}

Refusal refuses_cell(const Device&, const LstmCell& op) {
  if (Refusal refusal = refuses_unless_plain({&op.z, &op.c_before, &op.gates, &op.c, &op.h})) return refusal;
  return refuses_dtypes({&op.z, &op.c_before, &op.gates, &op.c, &op.h});
}
Refusal refuses_cell_backward(const Device&, const LstmCellBackward& op) {
  if (Refusal refusal = refuses_unless_plain({&op.gates, &op.c_before, &op.c, &op.dh, &op.dc, &op.dz, &op.dc_before}))
    return refusal;
  return refuses_dtypes({&op.gates, &op.c_before, &op.c, &op.dh, &op.dc, &op.dz, &op.dc_before});
}
void run_cell(Device&, const LstmCell& op) { computes_in_double({&op.z, &op.c}) ? cell<double>(op) : cell<float>(op); }
void run_cell_backward(Device&, const LstmCellBackward& op) {
  computes_in_double({&op.gates, &op.c}) ? cell_backward<double>(op) : cell_backward<float>(op);
}

}  // namespace

void add_sequences(KernelTable& table) {
  add_row<Softmax, refuses_softmax, run_softmax>(table);
  add_row<SoftmaxBackward, refuses_softmax_backward, run_softmax_backward>(table);
  add_row<Dropout, refuses_dropout, run_dropout>(table);
  add_row<DropoutBackward, refuses_dropout_backward, run_dropout_backward>(table);
  add_row<EmbeddingBackward, refuses_embedding_backward, run_embedding_backward>(table);
  add_row<LstmCell, refuses_cell, run_cell>(table),
      add_row<LstmCellBackward, refuses_cell_backward, run_cell_backward>(table);
  // Copies compute nothing, so their times are real for every type.
  table.of<Permute>().push_back({"host", Speed::real, refuses_permute, run_permute, Repeats::by_construction});
  table.of<NarrowIndices>().push_back(
      {"host", Speed::real, refuses_narrow_indices, run_narrow_indices, Repeats::by_construction});
  table.of<Embedding>().push_back({"host", Speed::real, refuses_embedding, run_embedding, Repeats::by_construction});
}

}  // namespace halfmark::kernels::host
