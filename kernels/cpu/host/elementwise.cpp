// ReLU, addition, bias and cast as host loops. They do not care for layouts where all operands lie alike, a library's
// own layouts included: f(0) = 0 keeps their padding zero.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/host/host.h"

namespace halfmark::host {
namespace {

// Refuses operands that differ in dtype and lie in a library's layout: that layout exists for one dtype.
Refusal refuses_elementwise(std::initializer_list<const Tensor*> operands) {
  if (Refusal refusal = refuses_dtypes(operands)) return refusal;
  const DType dtype = (*operands.begin())->dtype();
  bool mixed = false, opaque = false;
  for (const Tensor* operand : operands) {
    mixed = mixed || operand->dtype() != dtype;
    opaque = opaque || operand->layout() == Layout::opaque;
  }
  if (mixed && opaque) return "operands of several dtypes in an opaque layout";
  return {};
}

bool is_half(const Tensor& tensor) { return tensor.dtype() == DType::bf16 || tensor.dtype() == DType::f16; }
int16_t infinity_code(const Tensor& tensor) { return tensor.dtype() == DType::bf16 ? 0x7f80 : 0x7c00; }

// ---- relu: a NaN stays a NaN, zeros of either sign become +0
// ---------------------------------------------------------------

template <class T>
void relu(const Tensor& x, Tensor& out) {
  map<T, 1>(out, {&x}, [](T v) { return v <= 0 ? T(0) : v; });
}

// The same on codes of 16 bits, without branches so that compilers make vectors of it: negative and no NaN.
void relu_codes(const Tensor& x, Tensor& out) {
  const auto* source = x.as<int16_t>();
  auto* target = out.as<int16_t>();
  const int16_t infinity = infinity_code(x);
  parallel_for(stored_elements(x), 2 * kGrain, [=](int64_t begin, int64_t end) {
    HM_EACH_FOR_ITSELF
    for (int64_t i = begin; i < end; ++i) {
      const int16_t code = source[i];
      const auto negative = static_cast<int16_t>((code < 0) & (static_cast<int16_t>(code & 0x7fff) <= infinity));
      target[i] = static_cast<int16_t>(code & (negative - 1));
    }
  });
}

Refusal refuses_relu(const Device&, const Relu& op) { return refuses_elementwise({&op.x, &op.out}); }

void run_relu(Device&, const Relu& op) {
  Result out(op.out, op.x);
  if (is_half(op.x) && op.x.dtype() == op.out.dtype())
    relu_codes(op.x, out.tensor());
  else if (computes_in_double({&op.x, &op.out}))
    relu<double>(op.x, out.tensor());
  else
    relu<float>(op.x, out.tensor());
  out.finish();
}

template <class T>
void relu_backward(const Tensor& y, const Tensor& dy, Tensor& dx) {
  map<T, 2>(dx, {&y, &dy}, [](T v, T d) { return v > 0 ? d : T(0); });
}

void relu_backward_codes(const Tensor& y, const Tensor& dy, Tensor& dx) {
  const auto* values = y.as<int16_t>();
  const auto* gradients = dy.as<int16_t>();
  auto* target = dx.as<int16_t>();
  const int16_t infinity = infinity_code(y);
  parallel_for(stored_elements(y), 2 * kGrain, [=](int64_t begin, int64_t end) {
    HM_EACH_FOR_ITSELF
    for (int64_t i = begin; i < end; ++i) {
      const auto positive = static_cast<int16_t>((values[i] > 0) & (values[i] <= infinity));
      target[i] = static_cast<int16_t>(gradients[i] & -positive);
    }
  });
}

Refusal refuses_relu_backward(const Device&, const ReluBackward& op) {
  return refuses_elementwise({&op.y, &op.dy, &op.dx});
}

void run_relu_backward(Device&, const ReluBackward& op) {
  const Tensor& model = leading({&op.y, &op.dy});
  const Tensor y = in_layout_of(model, op.y), dy = in_layout_of(model, op.dy);
  Result dx(op.dx, model);
  if (is_half(y) && y.dtype() == dy.dtype() && y.dtype() == op.dx.dtype())
    relu_backward_codes(y, dy, dx.tensor());
  else if (computes_in_double({&op.y, &op.dy, &op.dx}))
    relu_backward<double>(y, dy, dx.tensor());
  else
    relu_backward<float>(y, dy, dx.tensor());
  dx.finish();
}

// ---- add
// -------------------------------------------------------------------------------------------------------------------

Refusal refuses_add(const Device&, const Add& op) { return refuses_elementwise({&op.a, &op.b, &op.out}); }

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

// ---- cast
// ------------------------------------------------------------------------------------------------------------------

Refusal refuses_cast(const Device&, const Cast& op) {
  if (op.rounding != Rounding::near_even)
    return "rounds to nearest even only, not " + std::string(name_of(op.rounding));
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

// ---- bias
// ------------------------------------------------------------------------------------------------------------------

// Memory as rows in which the channel is constant (plain images) or runs (matrices and nhwc images).
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

// Sums in fp64 whatever the type, each piece of rows for itself and the pieces in order: any number of threads gives
// one result.
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
  add_row<Relu, refuses_relu, run_relu>(table);
  add_row<ReluBackward, refuses_relu_backward, run_relu_backward>(table);
  add_row<Add, refuses_add, run_add>(table);
  table.of<Cast>().push_back({"host", Speed::real, refuses_cast, run_cast});
  add_row<AddBias, refuses_add_bias, run_add_bias>(table);
  add_row<BiasGradient, refuses_bias_gradient, run_bias_gradient>(table);
}

}  // namespace halfmark::host
