// Reference rows without reductions, and the bias gradient. Each value is computed in fp64 from the operands as stored,
// which is exact or correctly rounded, and rounded once. The bias gradient is summed in fp32 (fp64 for f64) in logical
// order n, h, w.
#include <cmath>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::reference {
namespace {

// f(i) for every element; writes the results to `out`.
template <class F>
void map(Tensor& out, const Tensor& like, F f) {
  settle(out, like);
  std::vector<double> results(static_cast<size_t>(out.elements()));
  parallel_for(out.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) results[i] = f(i);
  });
  write(out, results);
}

// Elements of one channel that are consecutive in logical order.
size_t pixels_of(const Shape& shape) { return shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1; }

void add_bias(Device&, const AddBias& op) {
  const std::vector<double> x = read<double>(op.x), bias = read<double>(op.bias);
  const size_t pixels = pixels_of(op.x.shape());
  map(op.out, op.x, [&](size_t i) { return x[i] + bias[i / pixels % bias.size()]; });
}

template <class T>
std::vector<T> channel_sums(const Tensor& dy) {
  const std::vector<T> values = read<T>(dy);
  const auto n = static_cast<size_t>(dy.shape()[0]), channels = static_cast<size_t>(dy.shape()[1]),
             pixels = pixels_of(dy.shape());
  std::vector<T> sums(channels, T{0});
  parallel_for(static_cast<int64_t>(channels), 1, [&](int64_t begin, int64_t end) {
    for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c)
      for (size_t i = 0; i < n; ++i)
        for (size_t p = 0; p < pixels; ++p) sums[c] += values[(i * channels + c) * pixels + p];
  });
  return sums;
}

void bias_gradient(Device&, const BiasGradient& op) {
  settle(op.dbias, op.dbias);
  if (wants_fp64(op.dy))
    write(op.dbias, channel_sums<double>(op.dy));
  else
    write(op.dbias, channel_sums<float>(op.dy));
}

template <class Row>
void activation(Device&, const Activation<Row>& op) {
  const std::vector<double> x = read<double>(op.x);
  map(op.out, op.x, [&](size_t i) { return Row::forward(x[i]); });
}

template <class Row>
void activation_backward(Device&, const ActivationBackward<Row>& op) {
  const std::vector<double> kept = read<double>(op.kept), dy = read<double>(op.dy);
  map(op.dx, op.dy, [&](size_t i) { return Row::backward(kept[i], dy[i]); });
}

void add_tensors(Device&, const Add& op) {
  const std::vector<double> a = read<double>(op.a), b = read<double>(op.b);
  map(op.out, op.a, [&](size_t i) { return a[i] + b[i]; });
}

void cast(Device&, const Cast& op) {
  const std::vector<double> x = read<double>(op.x);
  settle(op.out, op.x);
  if (op.rounding == Rounding::near_even) return write(op.out, x);
  const DType dtype = op.out.dtype();
  const auto noise = [&](size_t i) { return op.rounding == Rounding::stochastic ? rounding_noise(op.noise, i) : 0; };
  std::vector<unsigned char> codes(bytes_for(dtype, x.size()));
  parallel_for(op.x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      store(dtype, codes.data(), i, x[i], op.rounding, nullptr, noise(i));
  });
  write_codes(op.out, codes);
}

void counted_cast(Device&, const CountedCast& op) {
  const std::vector<double> x = read<double>(op.x);
  settle(op.out, op.x);
  const DType dtype = op.out.dtype();
  std::vector<unsigned char> codes(bytes_for(dtype, x.size()));
  std::vector<double> events = read<double>(op.events);
  std::mutex mutex;
  parallel_for(op.x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    RoundEvents own;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      store(dtype, codes.data(), i, x[i], Rounding::near_even, &own);
    const std::lock_guard lock(mutex);
    const uint64_t counts[] = {own.inexact, own.overflow, own.underflow, own.subnormal};
    for (size_t i = 0; i < events.size(); ++i) events[i] += static_cast<double>(counts[i]);
  });
  write_codes(op.out, codes), write(op.events, events);
}

void cast_tensors(Device& device, const CastTensors& op) {
  for (CastPair& pair : op.pairs)
    cast(device, Cast{.x = pair.x, .out = pair.out, .rounding = op.rounding, .noise = pair.noise});
}

Refusal refuses_reorder(const Device&, const Reorder& op) {
  if (op.out.layout() == Layout::opaque) return "out has the opaque layout of another row";
  return {};
}

void reorder(Device&, const Reorder& op) {
  settle(op.out, op.x);
  write_codes(op.out, op.x.codes());  // the device unpacks an opaque x
}

void scale(Device&, const Scale& op) {
  std::vector<double> values = read<double>(op.x);
  for (double& value : values) value *= op.factor;
  settle(op.out, op.x);
  write(op.out, values);
}

}  // namespace

void add_elementwise_rows(KernelTable& table) {
  add_row<AddBias>(table, add_bias), add_row<BiasGradient>(table, bias_gradient);
  activations::All::each([&]<class Row>() {
    add_row<Activation<Row>>(table, activation<Row>);
    add_row<ActivationBackward<Row>>(table, activation_backward<Row>);
  });
  add_row<Scale>(table, scale), add_row<Add>(table, add_tensors), add_row<Cast>(table, cast);
  add_row<CountedCast>(table, counted_cast);
  add_row<CastTensors>(table, cast_tensors);
  table.of<Reorder>().push_back({"reference", Speed::emulated, &refuses_reorder, reorder, Repeats::by_construction});
}

}  // namespace halfmark::kernels::reference
