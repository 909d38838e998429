// Matmul and convolution through OpenBLAS, with convolutions as im2col: the fast fp64 rows for the fp64 references, and
// the fp32 rows of builds without oneDNN.
#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/blas_room.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

// Two threads make a small product slower, because waking a second core costs more than it saves. The threshold, in
// multiply-adds, was measured in a sweep of square matrices.
constexpr double kThreadsFrom = 5e7;

template <class T>
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T beta,
          T* c, int64_t ldc) {
  const auto to = [](bool t) { return t ? CblasTrans : CblasNoTrans; };
  const auto i = [](int64_t x) { return static_cast<blasint>(x); };
  if constexpr (sizeof(T) == 8)
    cblas_dgemm(CblasRowMajor, to(ta), to(tb), i(m), i(n), i(k), 1, a, i(lda), b, i(ldb), beta, c, i(ldc));
  else
    cblas_sgemm(CblasRowMajor, to(ta), to(tb), i(m), i(n), i(k), 1, a, i(lda), b, i(ldb), beta, c, i(ldc));
}

void set_threads(double multiply_adds) {
  const int threads = 2 * multiply_adds > kThreadsFrom ? host_threads() : 1;
  require_blas_room(threads);
  openblas_set_num_threads(threads);
}

Refusal refuses(std::initializer_list<const Tensor*> operands, const Math& math) {
  const DType dtype = (*operands.begin())->dtype();
  if (dtype != DType::f64 && dtype != DType::f32)
    return "BLAS supports only fp64 and fp32, not " + std::string(name_of(dtype));
  for (const Tensor* operand : operands) {
    if (operand->dtype() != dtype) return "operands of different dtypes";
    if (operand->layout() == Layout::opaque) return "an operand has an opaque layout";
  }
  const Format& format = dtype == DType::f64 ? kFp64 : kFp32;
  const bool holds = math.multiply == format || math.multiply == kFp64;
  if (!holds) return "BLAS multiplies " + std::string(format.name) + ", not " + std::string(math.multiply.name);
  if (!(math.accumulate == format))
    return "BLAS accumulates in " + std::string(format.name) + ", not " + std::string(math.accumulate.name);
  if (math.split_k != 1) return "the library chooses the split of K";
  if (math.fast_accumulate) return "fast accumulation is not supported";
  return {};
}

Refusal refuses_matmul(const Device&, const Matmul& op) { return refuses({&op.a, &op.b, &op.out}, op.math); }

template <class T>
void matmul(const Matmul& op) {
  const int64_t m = op.out.shape()[0], n = op.out.shape()[1], k = op.a.shape()[op.transpose_a ? 0 : 1];
  set_threads(static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  op.out.materialize(Layout::plain);
  if (m == 0 || n == 0) return;
  gemm<T>(op.transpose_a, op.transpose_b, m, n, k, op.a.as<T>(), std::max<int64_t>(1, op.a.shape()[1]), op.b.as<T>(),
          std::max<int64_t>(1, op.b.shape()[1]), static_cast<T>(op.beta), op.out.as<T>(), n);
}

void run_matmul(Device&, const Matmul& op) { op.a.dtype() == DType::f64 ? matmul<double>(op) : matmul<float>(op); }

// Extents of one group.
struct Sizes {
  int64_t n, c, h, w, o, kh, kw, oh, ow, groups;
  Window window;

  Sizes(const Shape& x, const Shape& f, const Shape& y, const Window& win, int g)
      : n(x[0]),
        c(x[1] / g),
        h(x[2]),
        w(x[3]),
        o(y[1] / g),
        kh(f[2]),
        kw(f[3]),
        oh(y[2]),
        ow(y[3]),
        groups(g),
        window(win) {}
  int64_t depth() const { return c * kh * kw; }
  int64_t pixels() const { return oh * ow; }
  double work() const { return static_cast<double>(depth() * pixels()) * static_cast<double>(o); }

  // f(row of columns, pixel, place in the group's image) wherever the window lies inside the image.
  template <class F>
  void each_column(F f) const {
    for (int64_t k = 0; k < depth(); ++k) {
      const int64_t channel = k / (kh * kw), i = k / kw % kh, j = k % kw;
      for (int64_t y = 0; y < oh; ++y) {
        const int64_t row = y * window.stride_h - window.pad_h + i * window.dilation_h;
        if (row < 0 || row >= h) continue;
        for (int64_t z = 0; z < ow; ++z) {
          const int64_t column = z * window.stride_w - window.pad_w + j * window.dilation_w;
          if (column >= 0 && column < w) f(k, y * ow + z, (channel * h + row) * w + column);
        }
      }
    }
  }
};

template <class T>
void im2col(const Sizes& s, const T* image, T* columns) {
  std::fill_n(columns, s.depth() * s.pixels(), T(0));
  s.each_column([&](int64_t k, int64_t pixel, int64_t place) { columns[k * s.pixels() + pixel] = image[place]; });
}

template <class T>
void col2im(const Sizes& s, const T* columns, T* image) {
  std::fill_n(image, s.c * s.h * s.w, T(0));
  s.each_column([&](int64_t k, int64_t pixel, int64_t place) { image[place] += columns[k * s.pixels() + pixel]; });
}

// A plain tensor with the same values.
Tensor plain(const Tensor& tensor) {
  if (tensor.layout() == Layout::plain) return tensor;
  const PurposeScope scope(Purpose::workspace);
  Tensor copy(tensor.device(), tensor.shape(), tensor.dtype());
  run(Reorder{tensor, copy});
  return copy;
}

// The result as a plain tensor; finish() converts it to its own layout.
struct PlainResult {
  Tensor& target;
  Tensor use;
  explicit PlainResult(Tensor& t) : target(t), use(t) {
    target.materialize(Layout::plain);
    if (target.layout() == Layout::plain) return;
    const PurposeScope scope(Purpose::workspace);
    use = Tensor(t.device(), t.shape(), t.dtype());
  }
  void finish() {
    if (use.id() != target.id()) run(Reorder{use, target});
  }
};

// One buffer of columns per image and group. Pieces run in parallel,
// each on one BLAS thread; a single image gives BLAS all threads.
template <class F>
void each_image(const Sizes& s, F f) {
  const bool alone = s.n * s.groups == 1;
  const int64_t at_once = std::min<int64_t>(s.n * s.groups, host_threads());
  const int threads = alone && 2 * s.work() > kThreadsFrom ? host_threads() : 1;
  require_blas_room(std::max(threads, static_cast<int>(at_once)));
  openblas_set_num_threads(threads);
  parallel_for(s.n * s.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / s.groups, i % s.groups);
  });
}

template <class T>
void conv(const Conv2d& op) {
  const Sizes s(op.x.shape(), op.w.shape(), op.out.shape(), op.window, op.groups);
  const Tensor x = plain(op.x), w = plain(op.w);
  PlainResult out(op.out);
  each_image(s, [&](int64_t n, int64_t g) {
    std::vector<T> columns(static_cast<size_t>(s.depth() * s.pixels()));
    im2col(s, x.as<T>() + (n * s.groups + g) * s.c * s.h * s.w, columns.data());
    gemm<T>(false, false, s.o, s.pixels(), s.depth(), w.as<T>() + g * s.o * s.depth(), s.depth(), columns.data(),
            s.pixels(), 0, out.use.as<T>() + (n * s.groups + g) * s.o * s.pixels(), s.pixels());
  });
  out.finish();
}

template <class T>
void conv_backward_data(const Conv2dBackwardData& op) {
  const Sizes s(op.dx.shape(), op.w.shape(), op.dy.shape(), op.window, op.groups);
  const Tensor dy = plain(op.dy), w = plain(op.w);
  PlainResult dx(op.dx);
  each_image(s, [&](int64_t n, int64_t g) {
    std::vector<T> columns(static_cast<size_t>(s.depth() * s.pixels()));
    gemm<T>(true, false, s.depth(), s.pixels(), s.o, w.as<T>() + g * s.o * s.depth(), s.depth(),
            dy.as<T>() + (n * s.groups + g) * s.o * s.pixels(), s.pixels(), 0, columns.data(), s.pixels());
    col2im(s, columns.data(), dx.use.as<T>() + (n * s.groups + g) * s.c * s.h * s.w);
  });
  dx.finish();
}

template <class T>
void conv_backward_weights(const Conv2dBackwardWeights& op) {
  const Sizes s(op.x.shape(), op.dw.shape(), op.dy.shape(), op.window, op.groups);
  const Tensor x = plain(op.x), dy = plain(op.dy);
  PlainResult dw(op.dw);
  set_threads(s.work());
  std::vector<T> columns(static_cast<size_t>(s.depth() * s.pixels()));
  if (s.n == 0) std::fill_n(dw.use.as<T>(), dw.use.elements(), T(0));
  for (int64_t n = 0; n < s.n; ++n)  // sequential: the sum over images has one fixed order
    for (int64_t g = 0; g < s.groups; ++g) {
      im2col(s, x.as<T>() + (n * s.groups + g) * s.c * s.h * s.w, columns.data());
      gemm<T>(false, true, s.o, s.depth(), s.pixels(), dy.as<T>() + (n * s.groups + g) * s.o * s.pixels(), s.pixels(),
              columns.data(), s.pixels(), n ? T(1) : T(0), dw.use.as<T>() + g * s.o * s.depth(), s.depth());
    }
  dw.finish();
}

Refusal refuses_conv(const Device&, const Conv2d& op) { return refuses({&op.x, &op.w, &op.out}, op.math); }
Refusal refuses_conv_backward_data(const Device&, const Conv2dBackwardData& op) {
  return refuses({&op.dy, &op.w, &op.dx}, op.math);
}
Refusal refuses_conv_backward_weights(const Device&, const Conv2dBackwardWeights& op) {
  return refuses({&op.x, &op.dy, &op.dw}, op.math);
}

void run_conv(Device&, const Conv2d& op) { op.x.dtype() == DType::f64 ? conv<double>(op) : conv<float>(op); }
void run_conv_backward_data(Device&, const Conv2dBackwardData& op) {
  op.dy.dtype() == DType::f64 ? conv_backward_data<double>(op) : conv_backward_data<float>(op);
}
void run_conv_backward_weights(Device&, const Conv2dBackwardWeights& op) {
  op.x.dtype() == DType::f64 ? conv_backward_weights<double>(op) : conv_backward_weights<float>(op);
}

}  // namespace

void add_blas_rows(KernelTable& table) {
  // OpenBLAS divides the rows and columns of the result between its threads, by their number and the sizes alone
  // (driver/level3/level3_thread.c): one thread adds the products of an element, in one order.
  table.of<Matmul>().push_back({"openblas", Speed::real, refuses_matmul, run_matmul, Repeats::by_construction});
  table.of<Conv2d>().push_back({"openblas", Speed::real, refuses_conv, run_conv, Repeats::by_construction});
  table.of<Conv2dBackwardData>().push_back(
      {"openblas", Speed::real, refuses_conv_backward_data, run_conv_backward_data, Repeats::by_construction});
  table.of<Conv2dBackwardWeights>().push_back(
      {"openblas", Speed::real, refuses_conv_backward_weights, run_conv_backward_weights, Repeats::by_construction});
}

std::string openblas_version() { return openblas_get_config(); }

}  // namespace halfmark::kernels
