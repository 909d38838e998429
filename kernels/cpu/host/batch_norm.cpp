// Batch normalisation as host loops for fp64, fp32, fp16 and bf16 images. Statistics take two passes (mean, then
// squared differences) and are summed in fp64 for every type, so that neither cancellation nor long sums lose digits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::host {
namespace {

// A plain image is a sequence of single-channel runs; an nhwc image is a sequence of rows over all channels.
struct Images {
  int64_t n, c, pixels;
  bool rows;

  explicit Images(const Tensor& x)
      : n(x.shape()[0]), c(x.shape()[1]), pixels(x.shape()[2] * x.shape()[3]), rows(x.layout() == Layout::nhwc) {}
  double values() const { return static_cast<double>(n * pixels); }  // of one channel
};

// Rows of one length that are read at once, so that short ones cost no call each.
int64_t rows_at_once(int64_t length) { return std::max<int64_t>(1, kBlock / std::max<int64_t>(length, 1)); }

// Two sums per channel: term(channel, a, b, first, second) adds the contribution of the elements a of x and b of y.
// Pieces and their order do not depend on the number of threads.
template <class T, class Term>
void channel_sums(const Tensor& x, const Tensor& y, double* first, double* second, Term term) {
  const Images m(x);
  const ReadView view_x(x), view_y(y);
  const bool is_same = &x == &y;
  std::fill_n(first, m.c, 0.0), std::fill_n(second, m.c, 0.0);
  if (!m.rows) {
    parallel_for(m.c, 1, [&](int64_t begin, int64_t end) {
      alignas(64) T bx[kBlock], by[kBlock];
      for (int64_t c = begin; c < end; ++c) {
        double s[4] = {}, t[4] = {};
        for (int64_t n = 0; n < m.n; ++n)
          for (int64_t i = 0; i < m.pixels; i += kBlock) {
            const int64_t count = std::min(kBlock, m.pixels - i), start = (n * m.c + c) * m.pixels + i;
            const T *p = read(view_x, start, count, bx), *q = is_same ? p : read(view_y, start, count, by);
            int64_t j = 0;
            for (; j + 4 <= count; j += 4)
              for (int64_t lane = 0; lane < 4; ++lane) term(c, p[j + lane], q[j + lane], s[lane], t[lane]);
            for (; j < count; ++j) term(c, p[j], q[j], s[j % 4], t[j % 4]);
          }
        first[c] = (s[0] + s[1]) + (s[2] + s[3]), second[c] = (t[0] + t[1]) + (t[2] + t[3]);
      }
    });
    return;
  }
  const int64_t count = m.n * m.pixels, grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(m.c, 1));
  const auto pieces = static_cast<size_t>((count + grain - 1) / grain), channels = static_cast<size_t>(m.c);
  std::vector<double> partial(pieces * channels * 2, 0.0);
  const int64_t step = rows_at_once(m.c);
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T bx[kBlock], by[kBlock];
    double* s = partial.data() + static_cast<size_t>(begin / grain) * channels * 2;
    double* t = s + channels;
    for (int64_t row = begin; row < end; row += step)
      for (int64_t i = 0; i < m.c; i += kBlock) {
        const int64_t length = std::min(kBlock, m.c - i), start = row * m.c + i;
        const int64_t numbers = std::min(step, end - row) * length;
        const T *p = read(view_x, start, numbers, bx), *q = is_same ? p : read(view_y, start, numbers, by);
        for (int64_t r = 0; r < numbers; r += length)
          for (int64_t j = 0; j < length; ++j) term(i + j, p[r + j], q[r + j], s[i + j], t[i + j]);
      }
  });
  for (size_t piece = 0; piece < pieces; ++piece)
    for (size_t c = 0; c < channels; ++c) {
      first[c] += partial[(2 * piece) * channels + c];
      second[c] += partial[(2 * piece + 1) * channels + c];
    }
}

// out = f(channel, x, y) for every element.
template <class T, class F>
void channel_map(const Tensor& x, const Tensor& y, Tensor& out, F f) {
  const Images m(x);
  const int64_t rows = m.rows ? m.n * m.pixels : m.n * m.c, length = m.rows ? m.c : m.pixels;
  const int64_t step = rows_at_once(length);
  const ReadView view_x(x), view_y(y);
  const WriteView view_out(out);
  const bool is_same = &x == &y;
  parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(length, 1)), [&](int64_t begin, int64_t end) {
    alignas(64) T bx[kBlock], by[kBlock], result[kBlock];
    for (int64_t row = begin; row < end; row += step)
      for (int64_t i = 0; i < length; i += kBlock) {
        const int64_t count = std::min(kBlock, length - i), start = row * length + i;
        const int64_t held = std::min(step, end - row), numbers = held * count;
        const T *p = read(view_x, start, numbers, bx), *q = is_same ? p : read(view_y, start, numbers, by);
        T* out_row = writable(view_out, start, result);
        for (int64_t r = 0; r < held; ++r, p += count, q += count, out_row += count)
          if (m.rows)
            for (int64_t j = 0; j < count; ++j) out_row[j] = f(static_cast<size_t>(i + j), p[j], q[j]);
          else
            for (int64_t j = 0; j < count; ++j) out_row[j] = f(static_cast<size_t>((row + r) % m.c), p[j], q[j]);
        written(view_out, start, numbers, out_row - numbers);
      }
  });
}

template <class T>
struct Affine {  // out = (x - mean) * factor + shift
  std::vector<T> mean, factor, shift;
};

template <class T>
void normalize(const Tensor& x, Tensor& out, const Tensor& scale, const Tensor& shift, const std::vector<T>& mean,
               const std::vector<T>& variance, double epsilon) {
  const std::vector<T> wide_scale = widened<T>(scale);
  Affine<T> a{mean, std::vector<T>(mean.size()), widened<T>(shift)};
  for (size_t c = 0; c < mean.size(); ++c)
    a.factor[c] = wide_scale[c] / std::sqrt(variance[c] + static_cast<T>(epsilon));
  channel_map<T>(x, x, out,
                 [&a](size_t c, T v, T) { return formulas::batch_norm_folded(v, a.mean[c], a.factor[c], a.shift[c]); });
}

void round_into(Tensor& tensor, const double* values) {
  convert(DType::f64, values, tensor.dtype(), tensor.data(), static_cast<size_t>(tensor.elements()));
}

template <class T>
void train(const BatchNorm& op, const Tensor& x, Tensor& out) {
  const Images m(x);
  const auto channels = static_cast<size_t>(m.c);
  std::vector<double> mean(channels), variance(channels), unused(channels);
  channel_sums<T>(x, x, mean.data(), unused.data(), [](int64_t, T v, T, double& s, double&) { s += v; });
  for (double& value : mean) value /= m.values();
  const double* means = mean.data();
  channel_sums<T>(x, x, variance.data(), unused.data(), [means](int64_t c, T v, T, double& s, double&) {
    const double difference = v - means[c];
    s += difference * difference;
  });
  for (double& value : variance) value /= m.values();
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  round_into(op.mean, mean.data()), round_into(op.variance, variance.data());

  const double unbias = m.values() / (m.values() - 1);
  const auto update = [&](Tensor& running, const std::vector<double>& batch, double factor) {
    const std::vector<T> before = widened<T>(running);
    std::vector<T> after(channels);
    for (size_t c = 0; c < channels; ++c)
      after[c] = formulas::moving_average(before[c], static_cast<T>(batch[c] * factor), static_cast<T>(1 - op.momentum),
                                          static_cast<T>(op.momentum));
    convert(kStored<T>, after.data(), running.dtype(), running.data(), channels);
  };
  update(op.running_mean, mean, 1), update(op.running_variance, variance, unbias);
  // Normalises with the statistics as stored, the same values that backward reads.
  normalize<T>(x, out, op.scale, op.shift, widened<T>(op.mean), widened<T>(op.variance), op.epsilon);
}

Refusal refuses_training(const Device&, const BatchNorm& op) {
  if (op.accumulate) return "its sums are in fp64";
  return refuses_dtypes(
      {&op.x, &op.scale, &op.shift, &op.out, &op.mean, &op.variance, &op.running_mean, &op.running_variance});
}

void run_training(Device&, const BatchNorm& op) {
  const Tensor x = readable(op.x);
  Result out(op.out, x);
  computes_in_double({&op.x, &op.out}) ? train<double>(op, x, out.tensor()) : train<float>(op, x, out.tensor());
  out.finish();
}

Refusal refuses_inference(const Device&, const BatchNormInference& op) {
  return refuses_dtypes({&op.x, &op.scale, &op.shift, &op.running_mean, &op.running_variance, &op.out});
}

template <class T>
void infer(const BatchNormInference& op, const Tensor& x, Tensor& out) {
  normalize<T>(x, out, op.scale, op.shift, widened<T>(op.running_mean), widened<T>(op.running_variance), op.epsilon);
}

void run_inference(Device&, const BatchNormInference& op) {
  const Tensor x = readable(op.x);
  Result out(op.out, x);
  computes_in_double({&op.x, &op.out}) ? infer<double>(op, x, out.tensor()) : infer<float>(op, x, out.tensor());
  out.finish();
}

template <class T>
void backward(const BatchNormBackward& op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  const Images m(x);
  const auto channels = static_cast<size_t>(m.c);
  const std::vector<double> mean = widened<double>(op.mean), variance = widened<double>(op.variance);
  std::vector<double> dshift(channels), dscale(channels), inverse(channels);
  for (size_t c = 0; c < channels; ++c) inverse[c] = formulas::batch_norm_inverse(variance[c], op.epsilon);
  const double* means = mean.data();
  channel_sums<T>(x, dy, dshift.data(), dscale.data(), [means](int64_t c, T v, T d, double& s, double& t) {
    s += d;
    t += d * (v - means[c]);
  });
  for (size_t c = 0; c < channels; ++c) dscale[c] *= inverse[c];
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  round_into(op.dscale, dscale.data()), round_into(op.dshift, dshift.data());

  // dx = a (dy - b - (x - mean) d), with a = scale inverse, b = dshift / m, d = inverse dscale / m
  const std::vector<double> scale = widened<double>(op.scale);
  std::vector<T> a(channels), b(channels), d(channels), center(channels);
  for (size_t c = 0; c < channels; ++c) {
    a[c] = static_cast<T>(scale[c] * inverse[c]), b[c] = static_cast<T>(dshift[c] / m.values());
    d[c] = static_cast<T>(inverse[c] * dscale[c] / m.values()), center[c] = static_cast<T>(mean[c]);
  }
  channel_map<T>(x, dy, dx, [&](size_t c, T v, T g) {
    return formulas::batch_norm_backward_folded(v, g, center[c], a[c], b[c], d[c]);
  });
}

Refusal refuses_backward(const Device&, const BatchNormBackward& op) {
  return refuses_dtypes({&op.x, &op.dy, &op.scale, &op.mean, &op.variance, &op.dx, &op.dscale, &op.dshift});
}

void run_backward(Device&, const BatchNormBackward& op) {
  const Tensor x = readable(op.x), dy = in_layout_of(x, readable(op.dy));
  Result dx(op.dx, x);
  computes_in_double({&op.x, &op.dy}) ? backward<double>(op, x, dy, dx.tensor())
                                      : backward<float>(op, x, dy, dx.tensor());
  dx.finish();
}

template <class T>
void inference_backward(const BatchNormInferenceBackward& op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  const auto channels = static_cast<size_t>(Images(x).c);
  const std::vector<double> mean = widened<double>(op.running_mean), variance = widened<double>(op.running_variance),
                            scale = widened<double>(op.scale);
  std::vector<double> dshift(channels), dscale(channels);
  std::vector<T> factor(channels);
  const double* means = mean.data();
  channel_sums<T>(x, dy, dshift.data(), dscale.data(), [means](int64_t c, T v, T d, double& s, double& t) {
    s += d;
    t += d * (v - means[c]);
  });
  for (size_t c = 0; c < channels; ++c) {
    const double inverse = formulas::batch_norm_inverse(variance[c], op.epsilon);
    dscale[c] *= inverse, factor[c] = static_cast<T>(scale[c] * inverse);
  }
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  round_into(op.dscale, dscale.data()), round_into(op.dshift, dshift.data());
  channel_map<T>(dy, dy, dx, [&](size_t c, T g, T) { return factor[c] * g; });
}

Refusal refuses_inference_backward(const Device&, const BatchNormInferenceBackward& op) {
  return refuses_dtypes(
      {&op.x, &op.dy, &op.scale, &op.running_mean, &op.running_variance, &op.dx, &op.dscale, &op.dshift});
}

void run_inference_backward(Device&, const BatchNormInferenceBackward& op) {
  const Tensor x = readable(op.x), dy = in_layout_of(x, readable(op.dy));
  Result dx(op.dx, x);
  computes_in_double({&op.x, &op.dy}) ? inference_backward<double>(op, x, dy, dx.tensor())
                                      : inference_backward<float>(op, x, dy, dx.tensor());
  dx.finish();
}

}  // namespace

void add_batch_norms(KernelTable& table) {
  add_row<BatchNorm, refuses_training, run_training>(table);
  add_row<BatchNormInference, refuses_inference, run_inference>(table);
  add_row<BatchNormBackward, refuses_backward, run_backward>(table);
  add_row<BatchNormInferenceBackward, refuses_inference_backward, run_inference_backward>(table);
}

}  // namespace halfmark::kernels::host
