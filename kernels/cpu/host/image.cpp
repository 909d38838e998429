// Joined and resampled images as host loops.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_copy(const Device&, const CopyChannels& op) {
  if (is_packed(op.x.dtype())) return "copies whole bytes, and " + std::string(name_of(op.x.dtype())) + " is packed";
  return {};
}

// Bytes, in `rows` pieces: of an nhwc image those of a pixel, of a plain one those of a sample.
void copy_channels(Device&, const CopyChannels& op) {
  Tensor x = readable(op.x);
  if (x.layout() != op.out.layout()) {
    const PurposeScope scope(Purpose::workspace);
    Tensor copy(x.device(), x.shape(), x.dtype(), op.out.layout());
    run(Reorder{x, copy});
    x = copy;
  }
  const Shape &xs = x.shape(), &ys = op.out.shape();
  const int64_t others = xs[1] ? x.elements() / (xs[0] * xs[1]) : 0;  // elements of one channel of one sample
  const bool last = x.layout() == Layout::nhwc;
  const int64_t rows = last ? xs[0] * others : xs[0];
  const size_t unit = size_of(x.dtype()) * static_cast<size_t>(last ? 1 : others);
  const auto bytes_of = [unit](int64_t channels) { return unit * static_cast<size_t>(channels); };
  const auto* source = static_cast<const unsigned char*>(x.data()) + bytes_of(op.from);
  auto* target = static_cast<unsigned char*>(op.out.data()) + bytes_of(op.to);
  const size_t step_x = bytes_of(xs[1]), step_y = bytes_of(ys[1]), length = bytes_of(op.count);
  if (length == 0) return;
  parallel_for(rows, std::max<int64_t>(1, static_cast<int64_t>(static_cast<size_t>(kGrain) / length)),
               [&](int64_t begin, int64_t end) {
                 for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
                   std::memcpy(target + i * step_y, source + i * step_x, length);
               });
}

// Weights of one axis in the type of the loops, and for each row of the image the rows of the result that read it.
template <class T>
struct Axis {
  std::vector<Sources> sources;
  std::vector<std::vector<std::pair<int64_t, T>>> readers;

  Axis(Resampling resampling, int64_t in, int64_t out)
      : sources(sources_of(resampling, in, out)), readers(static_cast<size_t>(in)) {
    for (size_t i = 0; i < sources.size(); ++i)
      for (size_t j = 0; j < sources[i].weights.size(); ++j)
        readers[static_cast<size_t>(sources[i].first) + j].emplace_back(static_cast<int64_t>(i),
                                                                        static_cast<T>(sources[i].weights[j]));
  }
  std::vector<std::pair<int64_t, T>> sources_at(int64_t i) const {
    std::vector<std::pair<int64_t, T>> all;
    const Sources& one = sources[static_cast<size_t>(i)];
    for (size_t j = 0; j < one.weights.size(); ++j)
      all.emplace_back(one.first + static_cast<int64_t>(j), static_cast<T>(one.weights[j]));
    return all;
  }
};

// to[y][x] = sum of weights times from[row][column]: the columns first, so that each element of `from` is read once for
// each row that needs it. `row_terms(y)` and `column_terms(x)` are lists of places and weights.
template <class T, class Rows, class Columns>
void weighted(const Tensor& from, Tensor& to, Rows row_terms, Columns column_terms) {
  const Shape &a = from.shape(), &b = to.shape();
  const bool last = from.layout() == Layout::nhwc;
  const int64_t lanes = last ? a[1] : 1, planes = last ? a[0] : a[0] * a[1];  // lanes: consecutive channels
  std::vector<std::vector<std::pair<int64_t, T>>> rows, columns;
  for (int64_t y = 0; y < b[2]; ++y) rows.push_back(row_terms(y));
  for (int64_t x = 0; x < b[3]; ++x) columns.push_back(column_terms(x));
  const int64_t row_of_from = a[3] * lanes, row_of_to = b[3] * lanes;
  parallel_for(planes * b[2], std::max<int64_t>(1, kGrain / std::max<int64_t>(row_of_to, 1)),
               [&](int64_t begin, int64_t end) {
                 const auto size = [](int64_t n) { return static_cast<size_t>(n); };
                 std::vector<T> mixed(size(row_of_from)), wide(size(row_of_from)), result(size(row_of_to));
                 for (int64_t i = begin; i < end; ++i) {
                   std::fill(mixed.begin(), mixed.end(), T(0));
                   T* sum = mixed.data();
                   for (const auto& [row, weight] : rows[size(i % b[2])]) {
                     const T* in = read(from, ((i / b[2]) * a[2] + row) * row_of_from, row_of_from, wide.data());
                     const T factor = weight;
                     HM_EACH_FOR_ITSELF
                     for (int64_t k = 0; k < row_of_from; ++k) sum[k] += factor * in[k];
                   }
                   T* out = writable(to, i * row_of_to, result.data());
                   for (int64_t x = 0; x < b[3]; ++x) {
                     T* pixel = out + x * lanes;
                     std::fill_n(pixel, lanes, T(0));
                     for (const auto& [column, weight] : columns[size(x)]) {
                       const T* in = sum + column * lanes;
                       const T factor = weight;
                       HM_EACH_FOR_ITSELF
                       for (int64_t k = 0; k < lanes; ++k) pixel[k] += factor * in[k];
                     }
                   }
                   written(to, i * row_of_to, row_of_to, out);
                 }
               });
}

template <class T>
void resample(const Resample2d& op, const Tensor& x, Tensor& out) {
  const Axis<T> rows(op.resampling, x.shape()[2], out.shape()[2]), columns(op.resampling, x.shape()[3], out.shape()[3]);
  weighted<T>(
      x, out, [&](int64_t i) { return rows.sources_at(i); }, [&](int64_t i) { return columns.sources_at(i); });
}

template <class T>
void resample_backward(const Resample2dBackward& op, const Tensor& dy, Tensor& dx) {
  const Axis<T> rows(op.resampling, dx.shape()[2], dy.shape()[2]), columns(op.resampling, dx.shape()[3], dy.shape()[3]);
  weighted<T>(
      dy, dx, [&](int64_t i) { return rows.readers[static_cast<size_t>(i)]; },
      [&](int64_t i) { return columns.readers[static_cast<size_t>(i)]; });
}

// Runs f(source, result) with the result in the layout of the source, which is plain or nhwc.
void with_result(const Tensor& given, Tensor& target, auto&& f) {
  const Tensor source = readable(given);
  target.materialize(source.layout());
  Tensor result = target;
  const bool copies = target.layout() != source.layout();
  if (copies) {
    const PurposeScope scope(Purpose::workspace);
    result = Tensor(target.device(), target.shape(), target.dtype(), source.layout());
  }
  f(source, result);
  if (copies) run(Reorder{result, target});
}

Refusal refuses_resample(const Device&, const Resample2d& op) { return refuses_dtypes({&op.x, &op.out}); }
Refusal refuses_resample_backward(const Device&, const Resample2dBackward& op) {
  return refuses_dtypes({&op.dy, &op.dx});
}

void run_resample(Device&, const Resample2d& op) {
  with_result(op.x, op.out, [&](const Tensor& x, Tensor& out) {
    computes_in_double({&op.x, &op.out}) ? resample<double>(op, x, out) : resample<float>(op, x, out);
  });
}
void run_resample_backward(Device&, const Resample2dBackward& op) {
  with_result(op.dy, op.dx, [&](const Tensor& dy, Tensor& dx) {
    computes_in_double({&op.dy, &op.dx}) ? resample_backward<double>(op, dy, dx) : resample_backward<float>(op, dy, dx);
  });
}

}  // namespace

void add_images(KernelTable& table) {
  // Copies compute nothing, so their times are real for every type.
  table.of<CopyChannels>().push_back({"host", Speed::real, refuses_copy, copy_channels, Repeats::by_construction});
  add_row<Resample2d, refuses_resample, run_resample>(table);
  add_row<Resample2dBackward, refuses_resample_backward, run_resample_backward>(table);
}

}  // namespace halfmark::kernels::host
