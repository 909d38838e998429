// Activations, addition, bias and cast as host loops. If all operands have the same layout, any layout works, including
// a library's own, as long as f(0) = 0 keeps its padding zero.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {
namespace {

// Refuses operands of different dtypes in a library's layout: that layout exists for one dtype only.
Refusal refuses_elementwise(std::initializer_list<const Tensor*> operands) {
  if (Refusal refusal = refuses_dtypes(operands)) return refusal;
  const DType dtype = (*operands.begin())->dtype();
  bool mixed = false, opaque = false;
  for (const Tensor* operand : operands) {
    mixed = mixed || operand->dtype() != dtype;
    opaque = opaque || operand->layout() == Layout::opaque;
  }
  if (mixed && opaque) return "operands of different dtypes in an opaque layout";
  return {};
}

bool is_half(const Tensor& tensor) { return tensor.dtype() == DType::bf16 || tensor.dtype() == DType::f16; }
int16_t infinity_code(const Tensor& tensor) {
  HM_CHECK(is_half(tensor), "no path for codes of dtype " + std::string(name_of(tensor.dtype())));
  return static_cast<int16_t>(format_of(tensor.dtype()).infinity_code());
}

template <class Row>
constexpr bool kHasCodes = requires {
  Row::forward_code(int16_t{}, int16_t{});
};

// out = f(in[0], ...) on codes of 16 bits.
template <size_t N, class F>
void map_codes(Tensor& out, const std::array<const Tensor*, N>& in, F f) {
  std::array<const int16_t*, N> source;
  for (size_t k = 0; k < N; ++k) source[k] = in[k]->template as<int16_t>();
  auto* target = out.as<int16_t>();
  const int16_t infinity = infinity_code(*in[0]);
  parallel_for(stored_elements(out), 2 * kGrain, [=](int64_t begin, int64_t end) {
    HM_EACH_FOR_ITSELF
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (N == 1)
        target[i] = f(source[0][i], infinity);
      else
        target[i] = f(source[0][i], source[1][i], infinity);
    }
  });
}

template <class Row>
Refusal refuses_activation(const Device&, const Activation<Row>& op) {
  return refuses_elementwise({&op.x, &op.out});
}

template <class Row>
void run_activation(Device&, const Activation<Row>& op) {
  const Tensor x = Row::forward(0.0) == 0 ? op.x : readable(op.x);
  Result out(op.out, x);
  if (kHasCodes<Row> && is_half(x) && x.dtype() == op.out.dtype()) {
    if constexpr (kHasCodes<Row>) {
      map_codes<1>(out.tensor(), {&x}, [](int16_t v, int16_t infinity) { return Row::forward_code(v, infinity); });
    }
  } else if (computes_in_double({&x, &op.out})) {
    map<double, 1>(out.tensor(), {&x}, [](double v) { return Row::forward(v); });
  } else {
    map<float, 1>(out.tensor(), {&x}, [](float v) { return vector_forward<Row>(v); });
  }
  out.finish();
}

template <class Row>
Refusal refuses_activation_backward(const Device&, const ActivationBackward<Row>& op) {
  return refuses_elementwise({&op.kept, &op.dy, &op.dx});
}

template <class Row>
void run_activation_backward(Device&, const ActivationBackward<Row>& op) {
  const Tensor& model = leading({&op.kept, &op.dy});
  const Tensor kept = in_layout_of(model, op.kept), dy = in_layout_of(model, op.dy);
  Result dx(op.dx, model);
  if (kHasCodes<Row> && is_half(kept) && kept.dtype() == dy.dtype() && kept.dtype() == op.dx.dtype()) {
    if constexpr (kHasCodes<Row>) {
      map_codes<2>(dx.tensor(), {&kept, &dy},
                   [](int16_t v, int16_t d, int16_t infinity) { return Row::backward_code(v, d, infinity); });
    }
  } else if (computes_in_double({&kept, &dy, &op.dx})) {
    map<double, 2>(dx.tensor(), {&kept, &dy}, [](double v, double d) { return Row::backward(v, d); });
  } else {
    map<float, 2>(dx.tensor(), {&kept, &dy}, [](float v, float d) { return vector_backward<Row>(v, d); });
  }
  dx.finish();
}

Refusal refuses_add(const Device&, const Add& op) { return refuses_elementwise({&op.a, &op.b, &op.out}); }

Refusal refuses_scale(const Device&, const Scale& op) { return refuses_elementwise({&op.x, &op.out}); }

void run_scale(Device&, const Scale& op) {
  Result out(op.out, op.x);
  if (computes_in_double({&op.x, &op.out}))
    map<double, 1>(out.tensor(), {&op.x}, [factor = op.factor](double v) { return factor * v; });
  else
    map<float, 1>(out.tensor(), {&op.x}, [factor = static_cast<float>(op.factor)](float v) { return factor * v; });
  out.finish();
}

void run_add(Device&, const Add& op) {
  const Tensor& model = leading({&op.a, &op.b});
  const Tensor a = in_layout_of(model, op.a), b = in_layout_of(model, op.b);
  Result out(op.out, model);
  if (computes_in_double({&op.a, &op.b, &op.out}))
    map<double, 2>(out.tensor(), {&a, &b}, [](double p, double q) { return p + q; });
  else
    map<float, 2>(out.tensor(), {&a, &b}, [](float p, float q) { return p + q; });
  out.finish();
}

Refusal refuses_cast(const Device&, const Cast& op) {
  if (op.rounding != Rounding::near_even)
    return "rounds only to nearest even, not " + std::string(name_of(op.rounding));
  if (op.out.layout() == Layout::opaque && op.x.dtype() != op.out.dtype()) return "a cast into an opaque layout";
  return refuses_dtypes({&op.x, &op.out});
}

void run_cast(Device&, const Cast& op) {
  const Tensor x = op.x.dtype() == op.out.dtype() ? op.x : readable(op.x);
  Result out(op.out, x);
  Tensor& target = out.tensor();
  parallel_for(stored_elements(x), kGrain, [&](int64_t begin, int64_t end) {
    convert(x.dtype(), at(x.data(), x.dtype(), begin), target.dtype(), at(target.data(), target.dtype(), begin),
            static_cast<size_t>(end - begin));
  });
  out.finish();
}

Refusal refuses_cast_tensors(const Device& device, const CastTensors& op) {
  for (CastPair& pair : op.pairs)
    if (Refusal refusal = refuses_cast(device, Cast{.x = pair.x, .out = pair.out, .rounding = op.rounding}))
      return refusal;
  return {};
}

void run_cast_tensors(Device& device, const CastTensors& op) {
  for (CastPair& pair : op.pairs) run_cast(device, Cast{.x = pair.x, .out = pair.out});
}

// Memory as slabs of equal length. Element j of slab i belongs to channel i % blocks * period + j % period.
struct Slabs {
  int64_t count, length, period, blocks;
  int64_t channels() const { return blocks * period; }  // with those that only fill up the last block
};

int64_t channel_block(const Tensor& tensor) {
  if (tensor.layout() != Layout::opaque) return 0;
  const auto* layout = dynamic_cast<const HostLayout*>(tensor.opaque_layout().get());
  return layout ? layout->channel_block() : 0;
}

Slabs slabs_of(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  if (const int64_t block = channel_block(tensor)) {
    const int64_t blocks = (s[1] + block - 1) / block;
    return {s[0] * blocks, s[2] * s[3] * block, block, blocks};
  }
  if (s.rank() == 4 && tensor.layout() == Layout::plain) return {s[0] * s[1], s[2] * s[3], 1, s[1]};
  return {1, s.elements(), std::max<int64_t>(s[1], 1), 1};
}

Tensor with_known_channels(const Tensor& tensor) { return channel_block(tensor) ? tensor : readable(tensor); }

// Elements of a slab that one thread takes at a time: whole periods.
int64_t piece_of(const Slabs& slabs) { return std::max<int64_t>(1, kGrain / slabs.period) * slabs.period; }

const uint16_t* bf16_codes(const Tensor& tensor) { return static_cast<const uint16_t*>(tensor.data()); }
uint16_t* bf16_codes(Tensor& tensor) { return static_cast<uint16_t*>(tensor.data()); }

inline void add_to_codes(const uint16_t* x, const float* add, uint16_t* out, int64_t count) {
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j) out[j] = bf16_code(bf16_value(x[j]) + add[j]);
}

template <class T>
void add_bias(const Tensor& x, const Tensor& bias, Tensor& out) {
  const bool both_bf16 = x.dtype() == DType::bf16 && out.dtype() == DType::bf16;
  const Slabs slabs = slabs_of(x);
  if (slabs.count * slabs.length == 0) return;
  std::vector<T> b = widened<T>(bias);
  b.resize(static_cast<size_t>(slabs.channels()), T(0));
  const int64_t piece = piece_of(slabs), pieces = (slabs.length + piece - 1) / piece;
  const int64_t chunk = slabs.period <= kBlock ? kBlock / slabs.period * slabs.period : kBlock;
  parallel_for(slabs.count * pieces, std::max<int64_t>(1, kGrain / piece), [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], result[kBlock], repeated[kBlock];
    int64_t filled = -1;  // the block whose entries are repeated
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slab = i / pieces, block = slab % slabs.blocks, first = i % pieces * piece;
      const int64_t last = std::min(first + piece, slabs.length);
      const T* own = b.data() + block * slabs.period;
      if (slabs.period <= kBlock && filled != block) {
        for (int64_t j = 0; j < chunk; j += slabs.period) std::copy_n(own, slabs.period, repeated + j);
        filled = block;
      }
      for (int64_t at = first; at < last;) {
        const int64_t column = at % slabs.period;
        const int64_t count =
            std::min(slabs.period <= kBlock ? chunk : std::min(kBlock, slabs.period - column), last - at);
        const T* add = slabs.period <= kBlock ? repeated : own + column;
        if (both_bf16) {
          add_to_codes(bf16_codes(x) + slab * slabs.length + at, reinterpret_cast<const float*>(add),
                       bf16_codes(out) + slab * slabs.length + at, count);
          at += count;
          continue;
        }
        const T* p = read(x, slab * slabs.length + at, count, buffer);
        T* r = writable(out, slab * slabs.length + at, result);
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < count; ++j) r[j] = p[j] + add[j];
        written(out, slab * slabs.length + at, count, r);
        at += count;
      }
    }
  });
}

Refusal refuses_add_bias(const Device&, const AddBias& op) { return refuses_dtypes({&op.x, &op.bias, &op.out}); }

void run_add_bias(Device&, const AddBias& op) {
  const Tensor x = op.x.dtype() == op.out.dtype() ? with_known_channels(op.x) : readable(op.x);
  Result out(op.out, x);
  if (computes_in_double({&op.x, &op.bias, &op.out}))
    add_bias<double>(x, op.bias, out.tensor());
  else
    add_bias<float>(x, op.bias, out.tensor());
  out.finish();
}

// Sums in fp64 for every type: each piece by itself, then the pieces in order. The result does not depend on the number
// of threads.

// Of slabs of one channel: eight sums in turn.
template <class T>
void sums_of_slabs(const Tensor& dy, const Slabs& slabs, double* sums) {
  const int64_t images = slabs.count / slabs.blocks;
  parallel_for(slabs.blocks, 1, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock];
    for (int64_t c = begin; c < end; ++c) {
      double lanes[8] = {};
      for (int64_t n = 0; n < images; ++n)
        for (int64_t i = 0; i < slabs.length; i += kBlock) {
          const int64_t count = std::min(kBlock, slabs.length - i);
          const T* p = read(dy, (n * slabs.blocks + c) * slabs.length + i, count, buffer);
          int64_t j = 0;
          for (; j + 8 <= count; j += 8)
            for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += p[j + lane];
          for (; j < count; ++j) lanes[j % 8] += p[j];
        }
      for (const double lane : lanes) sums[c] += lane;
    }
  });
}

// Of a library's blocks of channels.
template <class T, int64_t block>
void sums_of_blocks(const Tensor& dy, const Slabs& slabs, double* sums) {
  const int64_t images = slabs.count / slabs.blocks;
  parallel_for(slabs.blocks, 1, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock];
    for (int64_t c = begin; c < end; ++c) {
      double even[block] = {}, odd[block] = {};  // of pixels in turn: a single sum would wait for each addition
      for (int64_t n = 0; n < images; ++n)
        for (int64_t i = 0; i < slabs.length; i += kBlock) {
          const int64_t count = std::min(kBlock, slabs.length - i);
          const T* p = read(dy, (n * slabs.blocks + c) * slabs.length + i, count, buffer);
          int64_t j = 0;
          for (; j + 2 * block <= count; j += 2 * block)
            for (int64_t lane = 0; lane < block; ++lane) even[lane] += p[j + lane], odd[lane] += p[j + block + lane];
          if (j < count)
            for (int64_t lane = 0; lane < block; ++lane) even[lane] += p[j + lane];
        }
      for (int64_t lane = 0; lane < block; ++lane) sums[c * block + lane] = even[lane] + odd[lane];
    }
  });
}

double number_of(double value) { return value; }
double number_of(float value) { return static_cast<double>(value); }
double number_of(uint16_t code) { return static_cast<double>(bf16_value(code)); }

// Sums of as many columns of `rows` rows as fit `columns` registers at a time, beginning at column `first`; the columns
// that are left. Each sum is in the order of the rows.
template <int64_t columns, class S>
int64_t sums_of_columns(const S* rows, int64_t count, int64_t stride, int64_t first, double* sums) {
  for (; first + columns <= stride; first += columns) {
    double sum[columns] = {};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t lane = 0; lane < columns; ++lane) sum[lane] += number_of(rows[i * stride + first + lane]);
    std::copy_n(sum, columns, sums + first);
  }
  return first;
}

// Of rows over all channels, with elements stored as S.
template <class S>
void sums_of_rows(const Tensor& dy, const Slabs& slabs, double* sums) {
  const int64_t channels = slabs.period, piece = piece_of(slabs), pieces = (slabs.length + piece - 1) / piece;
  const auto* elements = static_cast<const S*>(dy.data());
  std::vector<double> partial(static_cast<size_t>(pieces * channels));
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* sum = partial.data() + i * channels;
      const int64_t rows = (std::min((i + 1) * piece, slabs.length) - i * piece) / channels;
      int64_t first = sums_of_columns<32>(elements + i * piece, rows, channels, 0, sum);
      first = sums_of_columns<8>(elements + i * piece, rows, channels, first, sum);
      sums_of_columns<1>(elements + i * piece, rows, channels, first, sum);
    }
  });
  for (int64_t i = 0; i < pieces; ++i)
    for (int64_t c = 0; c < channels; ++c) sums[c] += partial[static_cast<size_t>(i * channels + c)];
}

// The elements in the same order as another dtype.
Tensor widened_rows(const Tensor& dy, DType dtype) {
  Tensor wide = scratch_like(dy, dtype);
  run(Cast{dy, wide});
  return wide;
}

template <class T>
std::vector<double> channel_sums(const Tensor& dy) {
  const Slabs slabs = slabs_of(dy);
  std::vector<double> sums(static_cast<size_t>(slabs.channels()), 0.0);
  if (slabs.count * slabs.length == 0) return sums;
  if (channel_block(dy) == 16)
    sums_of_blocks<T, 16>(dy, slabs, sums.data());
  else if (channel_block(dy) == 8)
    sums_of_blocks<T, 8>(dy, slabs, sums.data());
  else if (dy.shape().rank() == 4 && dy.layout() == Layout::plain)
    sums_of_slabs<T>(dy, slabs, sums.data());
  else if (dy.dtype() == DType::bf16)
    sums_of_rows<uint16_t>(dy, slabs, sums.data());
  else if (dy.dtype() == kStored<T>)
    sums_of_rows<T>(dy, slabs, sums.data());
  else
    sums_of_rows<T>(widened_rows(dy, kStored<T>), slabs, sums.data());
  return sums;
}

Refusal refuses_bias_gradient(const Device&, const BiasGradient& op) { return refuses_dtypes({&op.dy, &op.dbias}); }

void run_bias_gradient(Device&, const BiasGradient& op) {
  const int64_t block = channel_block(op.dy);
  const Tensor dy = block == 8 || block == 16 ? op.dy : readable(op.dy);
  op.dbias.materialize(Layout::plain);
  const std::vector<double> sums = dy.dtype() == DType::f64 ? channel_sums<double>(dy) : channel_sums<float>(dy);
  convert(DType::f64, sums.data(), op.dbias.dtype(), op.dbias.data(), static_cast<size_t>(op.dbias.elements()));
}

}  // namespace

void add_elementwise(KernelTable& table) {
  activations::All::each([&]<class Row>() {
    add_row<Activation<Row>, refuses_activation<Row>, run_activation<Row>>(table);
    add_row<ActivationBackward<Row>, refuses_activation_backward<Row>, run_activation_backward<Row>>(table);
  });
  add_row<Add, refuses_add, run_add>(table), add_row<Scale, refuses_scale, run_scale>(table);
  table.of<Cast>().push_back({"host", Speed::real, refuses_cast, run_cast, Repeats::by_construction});
  table.of<CastTensors>().push_back(
      {"host", Speed::real, refuses_cast_tensors, run_cast_tensors, Repeats::by_construction});
  add_row<AddBias, refuses_add_bias, run_add_bias>(table);
  add_row<BiasGradient, refuses_bias_gradient, run_bias_gradient>(table);
}

}  // namespace halfmark::kernels::host
