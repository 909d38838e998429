// Layer norm, RMS norm, group norm and weight norm as host loops for fp64, fp32, fp16 and bf16. Sums are of fp64 for every type, as
// in batch norm: two passes, so that a large mean costs no digits of the variance.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses_layouts(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (!tensor->empty() && tensor->layout() != Layout::plain && tensor->layout() != Layout::any)
      return "its rows are not contiguous";
  return {};
}

Refusal refuses_dtypes_of(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (!tensor->empty())
      if (Refusal refusal = refuses_dtypes({tensor})) return refusal;
  return {};
}

// The entry of each value of the rows, repeated: value i of x uses element i mod size.
template <class T>
std::vector<T> spread(const Tensor& entries, int64_t count, int64_t repeat, T otherwise) {
  if (entries.empty()) return std::vector<T>(static_cast<size_t>(count * repeat), otherwise);
  std::vector<T> values = widened<T>(entries);
  if (repeat == 1) return values;
  std::vector<T> all;
  all.reserve(values.size() * static_cast<size_t>(repeat));
  for (const T value : values) all.insert(all.end(), static_cast<size_t>(repeat), value);
  return all;
}

int64_t rows_at_a_time(int64_t width) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1)); }

template <class T>
void normalize_forward(const NormalizeRows& op) {
  const int64_t width = op.width, rows = op.x.elements() / width;
  const int64_t entries = op.scale.empty() ? width / op.repeat : op.scale.elements();
  const double count = op.summed ? 1 : static_cast<double>(width);  // what a sum is divided by
  const std::vector<T> scale = spread<T>(op.scale, entries, op.repeat, 1),
                       shift = spread<T>(op.shift, entries, op.repeat, 0);
  const auto period = static_cast<int64_t>(scale.size());
  std::vector<T> means(static_cast<size_t>(rows)), inverses(static_cast<size_t>(rows));
  const ReadView view_x(op.x);
  const WriteView view_out(op.out);
  parallel_for(rows, rows_at_a_time(width), [&](int64_t begin, int64_t end) {
    std::vector<T> wide(static_cast<size_t>(width)), result(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      const T* x = read(view_x, row * width, width, wide.data());
      const double mean =
          op.centred ? lanes_sum<double, kLanes<T>>(width, [&](int64_t j) { return static_cast<double>(x[j]); }) /
                           static_cast<double>(width)
                     : 0;
      const double squares = lanes_sum<double, kLanes<T>>(width, [&](int64_t j) {
        const double difference = static_cast<double>(x[j]) - mean;
        return difference * difference;
      });
      const T center = static_cast<T>(mean), inverse = static_cast<T>(1 / std::sqrt(squares / count + op.epsilon));
      means[static_cast<size_t>(row)] = center, inverses[static_cast<size_t>(row)] = inverse;
      const T *factor = scale.data() + row * width % period, *offset = shift.data() + row * width % period;
      T* y = writable(view_out, row * width, result.data());
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < width; ++j) y[j] = factor[j] * ((x[j] - center) * inverse) + offset[j];
      written(view_out, row * width, width, y);
    }
  });
  convert(kStored<T>, inverses.data(), op.inverse.dtype(), op.inverse.data(), inverses.size());
  if (op.centred) convert(kStored<T>, means.data(), op.mean.dtype(), op.mean.data(), means.size());
}

Refusal refuses_rows(const Device&, const NormalizeRows& op) {
  if (Refusal refusal = refuses_layouts({&op.x, &op.out})) return refusal;
  return refuses_dtypes_of({&op.x, &op.scale, &op.shift, &op.out, &op.mean, &op.inverse});
}

void run_rows(Device&, const NormalizeRows& op) {
  op.out.materialize(Layout::plain), op.inverse.materialize(Layout::plain);
  if (op.centred) op.mean.materialize(Layout::plain);
  computes_in_double({&op.x, &op.out}) ? normalize_forward<double>(op) : normalize_forward<float>(op);
}

// Of g = factor dy over a row.
struct RowSums {
  double slopes, products;  // of g, and of g hat
};

// In one pass: hat = (x - center) inverse and the sums of a row whose values have entries of their own; dy hat is added to
// to_scale and dy to to_shift.
template <class T>
RowSums sums_of_row(const T* x, const T* dy, const T* factor, int64_t width, T center, T inverse, T* hat,
                    double* to_scale, double* to_shift) {
  constexpr int64_t lanes = kLanes<T>;
  double slopes[lanes] = {}, products[lanes] = {};
  const auto one = [&](int64_t j, double& slope_sum, double& product_sum) {
    const T own = (x[j] - center) * inverse;
    hat[j] = own;
    const double slope = static_cast<double>(factor[j]) * dy[j];
    slope_sum += slope, product_sum += slope * own;
  };
  const auto add = [&](int64_t j) {
    to_scale[j] += static_cast<double>(dy[j]) * hat[j], to_shift[j] += static_cast<double>(dy[j]);
  };
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    HM_EACH_FOR_ITSELF
    for (int64_t lane = 0; lane < lanes; ++lane) one(j + lane, slopes[lane], products[lane]);
    HM_EACH_FOR_ITSELF
    for (int64_t lane = 0; lane < lanes; ++lane) add(j + lane);
  }
  for (; j < width; ++j) {
    one(j, slopes[j % lanes], products[j % lanes]);
    add(j);
  }
  return {sum_of_lanes(slopes), sum_of_lanes(products)};
}

// The same of a row in which `repeat` consecutive values share an entry.
template <class T>
RowSums sums_of_shared_row(const T* x, const T* dy, const T* factor, int64_t width, int64_t repeat, T center, T inverse,
                           T* hat, double* to_scale, double* to_shift) {
  constexpr int64_t lanes = kLanes<T>;
  RowSums all{0, 0};
  for (int64_t e = 0; e < width / repeat; ++e) {
    const T *own_x = x + e * repeat, *own_dy = dy + e * repeat;
    T* own_hat = hat + e * repeat;
    double shifts[lanes] = {}, scales[lanes] = {};
    const auto one = [&](int64_t j, int64_t lane) {
      const T value = (own_x[j] - center) * inverse;
      own_hat[j] = value;
      shifts[lane] += static_cast<double>(own_dy[j]), scales[lane] += static_cast<double>(own_dy[j]) * value;
    };
    int64_t j = 0;
    for (; j + lanes <= repeat; j += lanes) {
      HM_EACH_FOR_ITSELF
      for (int64_t lane = 0; lane < lanes; ++lane) one(j + lane, lane);
    }
    for (; j < repeat; ++j) one(j, j % lanes);
    const double shift = sum_of_lanes(shifts), scale = sum_of_lanes(scales), own_factor = factor[e * repeat];
    to_shift[e] += shift, to_scale[e] += scale;
    all.slopes += own_factor * shift, all.products += own_factor * scale;
  }
  return all;
}

template <class T>
void normalize_backward(const NormalizeRowsBackward& op) {
  const int64_t width = op.width, rows = op.x.elements() / width, repeat = op.repeat;
  const Tensor& any = !op.scale.empty() ? op.scale : !op.dscale.empty() ? op.dscale : op.dshift;
  const int64_t entries = any.empty() ? width / repeat : any.elements();
  const double count = op.summed ? 1 : static_cast<double>(width);  // what a sum is divided by
  const std::vector<T> scale = spread<T>(op.scale, entries, repeat, 1);
  const auto period = static_cast<int64_t>(scale.size());
  const std::vector<T> inverses = widened<T>(op.inverse), means = op.centred ? widened<T>(op.mean) : std::vector<T>();
  // Pieces of rows, each with its own sums; their number and order do not depend on the number of threads.
  constexpr int64_t kPieces = 64;
  const int64_t grain = std::max(rows_at_a_time(width), (rows + kPieces - 1) / kPieces);
  const int64_t pieces = (rows + grain - 1) / grain;
  std::vector<double> dscales(static_cast<size_t>(pieces * entries)), dshifts(dscales.size());
  const ReadView view_x(op.x), view_dy(op.dy);
  const WriteView view_dx(op.dx);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> wide_x(static_cast<size_t>(width)), wide_dy(wide_x), hats(wide_x), result(wide_x);
    double *dscale = dscales.data() + begin / grain * entries, *dshift = dshifts.data() + begin / grain * entries;
    T* const hat = hats.data();
    for (int64_t row = begin; row < end; ++row) {
      const T *x = read(view_x, row * width, width, wide_x.data()),
              *dy = read(view_dy, row * width, width, wide_dy.data());
      const T inverse = inverses[static_cast<size_t>(row)],
              center = op.centred ? means[static_cast<size_t>(row)] : T(0);
      const T* factor = scale.data() + row * width % period;
      const int64_t first = row * (width / repeat) % entries;
      double *to_scale = dscale + first, *to_shift = dshift + first;
      const RowSums sums =
          repeat == 1 ? sums_of_row(x, dy, factor, width, center, inverse, hat, to_scale, to_shift)
                      : sums_of_shared_row(x, dy, factor, width, repeat, center, inverse, hat, to_scale, to_shift);
      const T of_sum = static_cast<T>((op.centred ? sums.slopes : 0) / static_cast<double>(width)),
              of_product = static_cast<T>(sums.products / count);
      T* dx = writable(view_dx, row * width, result.data());
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < width; ++j) dx[j] = inverse * (factor[j] * dy[j] - of_sum - hat[j] * of_product);
      written(view_dx, row * width, width, dx);
    }
  });
  for (int64_t piece = 1; piece < pieces; ++piece)
    for (int64_t e = 0; e < entries; ++e)
      dscales[static_cast<size_t>(e)] += dscales[static_cast<size_t>(piece * entries + e)],
          dshifts[static_cast<size_t>(e)] += dshifts[static_cast<size_t>(piece * entries + e)];
  for (const auto& [tensor, sums] : {std::pair{&op.dscale, &dscales}, std::pair{&op.dshift, &dshifts}})
    if (!tensor->empty())
      convert(DType::f64, sums->data(), tensor->dtype(), tensor->data(), static_cast<size_t>(entries));
}

Refusal refuses_rows_backward(const Device&, const NormalizeRowsBackward& op) {
  if (Refusal refusal = refuses_layouts({&op.x, &op.dy, &op.dx})) return refusal;
  return refuses_dtypes_of({&op.x, &op.dy, &op.scale, &op.mean, &op.inverse, &op.dx, &op.dscale, &op.dshift});
}

void run_rows_backward(Device&, const NormalizeRowsBackward& op) {
  op.dx.materialize(Layout::plain);
  for (Tensor* tensor : {&op.dscale, &op.dshift})
    if (!tensor->empty()) tensor->materialize(Layout::plain);
  computes_in_double({&op.x, &op.dy}) ? normalize_backward<double>(op) : normalize_backward<float>(op);
}

}  // namespace

void add_row_norms(KernelTable& table) {
  add_row<NormalizeRows, refuses_rows, run_rows>(table);
  add_row<NormalizeRowsBackward, refuses_rows_backward, run_rows_backward>(table);
}

}  // namespace halfmark::kernels::host
