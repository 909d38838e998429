// Reference rows of joined and resampled images: resampling in fp64, rounded once.
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"

namespace halfmark::kernels::reference {
namespace {

void copy_channels(Device&, const CopyChannels& op) {
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out = read<double>(op.out);
  const Shape &xs = op.x.shape(), &ys = op.out.shape();
  int64_t rest = 1;
  for (int axis = 2; axis < xs.rank(); ++axis) rest *= xs[axis];
  for (int64_t n = 0; n < xs[0]; ++n)
    for (int64_t i = 0; i < op.count * rest; ++i)
      out[static_cast<size_t>((n * ys[1] + op.to) * rest + i)] =
          x[static_cast<size_t>((n * xs[1] + op.from) * rest + i)];
  write(op.out, out);
}

// f(element of the image, element of the result, weight)
void each_source(Resampling resampling, const Shape& image, const Shape& result, auto&& f) {
  const std::vector<Sources> rows = sources_of(resampling, image[2], result[2]),
                             columns = sources_of(resampling, image[3], result[3]);
  size_t o = 0;
  for (int64_t plane = 0; plane < image[0] * image[1]; ++plane)
    for (const Sources& row : rows)
      for (const Sources& column : columns) {
        for (size_t i = 0; i < row.weights.size(); ++i)
          for (size_t j = 0; j < column.weights.size(); ++j)
            f(static_cast<size_t>((plane * image[2] + row.first) * image[3] + column.first) +
                  i * static_cast<size_t>(image[3]) + j,
              o, row.weights[i] * column.weights[j]);
        ++o;
      }
}

void resample(Device&, const Resample2d& op) {
  const std::vector<double> x = read<double>(op.x);
  std::vector<double> out(static_cast<size_t>(op.out.elements()));
  each_source(op.resampling, op.x.shape(), op.out.shape(),
              [&](size_t from, size_t to, double weight) { out[to] += weight * x[from]; });
  settle(op.out, op.x);
  write(op.out, out);
}

void resample_backward(Device&, const Resample2dBackward& op) {
  const std::vector<double> dy = read<double>(op.dy);
  std::vector<double> dx(static_cast<size_t>(op.dx.elements()));
  each_source(op.resampling, op.dx.shape(), op.dy.shape(),
              [&](size_t to, size_t from, double weight) { dx[to] += weight * dy[from]; });
  settle(op.dx, op.dy);
  write(op.dx, dx);
}

}  // namespace

void add_image_rows(KernelTable& table) {
  add_row<CopyChannels>(table, copy_channels);
  add_row<Resample2d>(table, resample), add_row<Resample2dBackward>(table, resample_backward);
}

}  // namespace halfmark::kernels::reference
