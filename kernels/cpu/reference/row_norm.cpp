// Reference rows of layer norm, RMS norm, group norm and weight norm: fp64 throughout, in the order of the definition.
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/reference/operand.h"

namespace halfmark::kernels::reference {
namespace {

template <class Op>
struct Rows {
  size_t count, width, repeat, entries;
  explicit Rows(const Op& op, size_t scales)
      : count(static_cast<size_t>(op.x.elements() / op.width)),
        width(static_cast<size_t>(op.width)),
        repeat(static_cast<size_t>(op.repeat)),
        entries(scales ? scales : width / repeat) {}
  size_t entry(size_t i) const { return i / repeat % entries; }
  void each(auto&& f) const {
    parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) f(row, row * width);
    });
  }
};

std::vector<double> values_of(const Tensor& tensor) {
  return tensor.empty() ? std::vector<double>() : read<double>(tensor);
}

void normalize_rows(Device&, const NormalizeRows& op) {
  const std::vector<double> x = read<double>(op.x), scale = values_of(op.scale), shift = values_of(op.shift);
  const Rows rows(op, scale.size());
  std::vector<double> out(x.size()), mean(rows.count), inverse(rows.count);
  const auto width = static_cast<double>(rows.width);
  rows.each([&](size_t row, size_t begin) {
    double sum = 0, squares = 0;
    for (size_t i = begin; i < begin + rows.width; ++i) sum += x[i];
    mean[row] = op.centred ? sum / width : 0;
    for (size_t i = begin; i < begin + rows.width; ++i) squares += (x[i] - mean[row]) * (x[i] - mean[row]);
    inverse[row] = 1 / std::sqrt((op.summed ? squares : squares / width) + op.epsilon);
    for (size_t i = begin; i < begin + rows.width; ++i) {
      const size_t entry = rows.entry(i);
      out[i] =
          (scale.empty() ? 1 : scale[entry]) * (x[i] - mean[row]) * inverse[row] + (shift.empty() ? 0 : shift[entry]);
    }
  });
  settle(op.out, op.x);
  if (op.x.dtype() == DType::f32 &&
      op.out.dtype() != DType::f64)  // a narrower result has the bits of a norm and a cast
    for (double& value : out) value = static_cast<float>(value);
  write(op.out, out);
  op.inverse.materialize(Layout::plain);
  write(op.inverse, inverse);
  if (!op.centred) return;
  op.mean.materialize(Layout::plain);
  write(op.mean, mean);
}

void normalize_rows_backward(Device&, const NormalizeRowsBackward& op) {
  const std::vector<double> x = read<double>(op.x), dy = read<double>(op.dy), scale = values_of(op.scale),
                            mean = values_of(op.mean), inverse = read<double>(op.inverse);
  const Tensor& any = !op.scale.empty() ? op.scale : !op.dscale.empty() ? op.dscale : op.dshift;
  const Rows rows(op, any.empty() ? 0 : static_cast<size_t>(any.elements()));
  std::vector<double> dx(x.size()), xhat(x.size()), dscale(rows.entries), dshift(rows.entries);
  const auto width = static_cast<double>(rows.width);
  rows.each([&](size_t row, size_t begin) {
    double sum = 0, product = 0;
    const auto gradient = [&](size_t i) { return scale.empty() ? dy[i] : scale[rows.entry(i)] * dy[i]; };
    for (size_t i = begin; i < begin + rows.width; ++i) {
      xhat[i] = (x[i] - (op.centred ? mean[row] : 0)) * inverse[row];
      sum += gradient(i), product += gradient(i) * xhat[i];
    }
    for (size_t i = begin; i < begin + rows.width; ++i)
      dx[i] = inverse[row] *
              (gradient(i) - (op.centred ? sum / width : 0) - xhat[i] * (op.summed ? product : product / width));
  });
  for (size_t i = 0; i < x.size(); ++i) dscale[rows.entry(i)] += dy[i] * xhat[i], dshift[rows.entry(i)] += dy[i];
  settle(op.dx, op.x);
  write(op.dx, dx);
  for (const auto& [tensor, values] : {std::pair{&op.dscale, &dscale}, std::pair{&op.dshift, &dshift}}) {
    if (tensor->empty()) continue;
    tensor->materialize(Layout::plain);
    write(*tensor, *values);
  }
}

}  // namespace

void add_row_norm_rows(KernelTable& table) {
  add_row<NormalizeRows>(table, normalize_rows);
  add_row<NormalizeRowsBackward>(table, normalize_rows_backward);
}

}  // namespace halfmark::kernels::reference
