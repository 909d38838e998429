// Activations, addition, bias and cast as host loops. If all operands have the same layout, any layout works, including
// a library's own, as long as f(0) = 0 keeps its padding zero.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

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
    map<float, 1>(out.tensor(), {&x}, [](float v) { return Row::forward(v); });
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
    map<float, 2>(dx.tensor(), {&kept, &dy}, [](float v, float d) { return Row::backward(v, d); });
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

// Memory as rows. Within a row the channel is constant (plain
// images) or the index along the row (matrices and nhwc images).
struct Rows {
  int64_t count, length;
  bool constant;  // row i belongs to channel i % channels
};

Rows rows_of(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  if (s.rank() == 4 && tensor.layout() == Layout::plain) return {s[0] * s[1], s[2] * s[3], true};
  return {s.elements() / std::max<int64_t>(s[1], 1), s[1], false};
}

template <class T>
void add_bias(const Tensor& x, const Tensor& bias, Tensor& out) {
  const Rows rows = rows_of(x);
  const int64_t channels = x.shape()[1], grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(rows.length, 1));
  const std::vector<T> b = widened<T>(bias);
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock], result[kBlock];
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < rows.length; i += kBlock) {
        const int64_t first = row * rows.length + i, count = std::min(kBlock, rows.length - i);
        const T* p = read(x, first, count, buffer);
        T* r = writable(out, first, result);
        if (rows.constant) {
          const T add = b[static_cast<size_t>(row % channels)];
          for (int64_t j = 0; j < count; ++j) r[j] = p[j] + add;
        } else {
          for (int64_t j = 0; j < count; ++j) r[j] = p[j] + b[static_cast<size_t>(i + j)];
        }
        written(out, first, count, r);
      }
  });
}

Refusal refuses_add_bias(const Device&, const AddBias& op) { return refuses_dtypes({&op.x, &op.bias, &op.out}); }

void run_add_bias(Device&, const AddBias& op) {
  const Tensor x = readable(op.x);
  Result out(op.out, x);
  if (computes_in_double({&op.x, &op.bias, &op.out}))
    add_bias<double>(x, op.bias, out.tensor());
  else
    add_bias<float>(x, op.bias, out.tensor());
  out.finish();
}

// Sums in fp64 for every type: each piece of rows by itself, then the pieces in order. The result does not depend on
// the number of threads.
template <class T>
std::vector<double> channel_sums(const Tensor& dy) {
  const Rows rows = rows_of(dy);
  const auto channels = static_cast<size_t>(dy.shape()[1]);
  std::vector<double> sums(channels, 0.0);
  if (rows.constant) {
    const int64_t images = dy.shape()[0];
    parallel_for(static_cast<int64_t>(channels), 1, [&](int64_t begin, int64_t end) {
      alignas(64) T buffer[kBlock];
      for (int64_t c = begin; c < end; ++c) {
        double lanes[8] = {};
        for (int64_t n = 0; n < images; ++n)
          for (int64_t i = 0; i < rows.length; i += kBlock) {
            const int64_t count = std::min(kBlock, rows.length - i);
            const T* p = read(dy, (n * static_cast<int64_t>(channels) + c) * rows.length + i, count, buffer);
            int64_t j = 0;
            for (; j + 8 <= count; j += 8)
              for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += p[j + lane];
            for (; j < count; ++j) lanes[j % 8] += p[j];
          }
        for (const double lane : lanes) sums[static_cast<size_t>(c)] += lane;
      }
    });
    return sums;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(rows.length, 1));
  const auto pieces = static_cast<size_t>((rows.count + grain - 1) / grain);
  std::vector<double> partial(pieces * channels, 0.0);
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T buffer[kBlock];
    double* sum = partial.data() + static_cast<size_t>(begin / grain) * channels;
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < rows.length; i += kBlock) {
        const int64_t count = std::min(kBlock, rows.length - i);
        const T* p = read(dy, row * rows.length + i, count, buffer);
        for (int64_t j = 0; j < count; ++j) sum[i + j] += p[j];
      }
  });
  for (size_t piece = 0; piece < pieces; ++piece)
    for (size_t c = 0; c < channels; ++c) sums[c] += partial[piece * channels + c];
  return sums;
}

Refusal refuses_bias_gradient(const Device&, const BiasGradient& op) { return refuses_dtypes({&op.dy, &op.dbias}); }

void run_bias_gradient(Device&, const BiasGradient& op) {
  const Tensor dy = readable(op.dy);
  op.dbias.materialize(Layout::plain);
  const std::vector<double> sums = dy.dtype() == DType::f64 ? channel_sums<double>(dy) : channel_sums<float>(dy);
  convert(DType::f64, sums.data(), op.dbias.dtype(), op.dbias.data(), sums.size());
}

}  // namespace

void add_elementwise(KernelTable& table) {
  activations::All::each([&]<class Row>() {
    add_row<Activation<Row>, refuses_activation<Row>, run_activation<Row>>(table);
    add_row<ActivationBackward<Row>, refuses_activation_backward<Row>, run_activation_backward<Row>>(table);
  });
  add_row<Add, refuses_add, run_add>(table), add_row<Scale, refuses_scale, run_scale>(table);
  table.of<Cast>().push_back({"host", Speed::real, refuses_cast, run_cast, Repeats::by_construction});
  add_row<AddBias, refuses_add_bias, run_add_bias>(table);
  add_row<BiasGradient, refuses_bias_gradient, run_bias_gradient>(table);
}

}  // namespace halfmark::kernels::host
