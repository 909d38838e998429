// Sums of products without a library: slow, for mixtures of dtypes that cublasLt and cuDNN do not support. Products are
// exact and each addition rounds once (fused multiply-add). Matmul, forward and backward data add in plain increasing
// order (kh, kw, c).
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/images.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

template <class Wide>
__global__ void __launch_bounds__(kThreads) matmul(MatmulArgs s, AnyTyped a, AnyTyped b, AnyTyped out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= s.batch * s.m * s.n) return;
  const uint32_t matrix = i / s.n / s.m, row = i / s.n - matrix * s.m, column = i % s.n;
  const uint32_t of_a = matrix * s.m * s.k, of_b = matrix * s.k * s.n;
  Wide sum = 0;
  for (uint32_t k = 0; k < s.k; ++k)
    sum = fma(a.load<Wide>(of_a + (s.transpose_a ? k * s.m + row : row * s.k + k)),
              b.load<Wide>(of_b + (s.transpose_b ? column * s.k + k : k * s.n + column)), sum);
  if (s.beta != 0) sum = fma(static_cast<Wide>(s.beta), out.load<Wide>(i), sum);
  out.store<Wide>(i, sum);
}

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    conv(Image xs, Image ws, Image ys, WindowArgs v, uint32_t groups, AnyTyped x, AnyTyped w, AnyTyped out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(ys)) return;
  const Place p = place_of(ys, i);
  const uint32_t first = p.c / (ws.n / groups) * ws.c;  // of the group's input channels
  Wide sum = 0;
  for (uint32_t a = 0; a < ws.h; ++a)
    for (uint32_t b = 0; b < ws.w; ++b) {
      const int y = static_cast<int>(p.y) * v.stride_h - v.pad_h + static_cast<int>(a) * v.dilation_h;
      const int column = static_cast<int>(p.x) * v.stride_w - v.pad_w + static_cast<int>(b) * v.dilation_w;
      if (y < 0 || y >= static_cast<int>(xs.h) || column < 0 || column >= static_cast<int>(xs.w)) continue;
      for (uint32_t c = 0; c < ws.c; ++c)
        sum = fma(x.load<Wide>(offset(xs, p.n, first + c, y, column)), w.load<Wide>(offset(ws, p.c, c, a, b)), sum);
    }
  out.store<Wide>(i, sum);
}

template <class Wide>
__global__ void __launch_bounds__(kThreads) conv_backward_data(Image xs, Image ws, Image ys, WindowArgs v,
                                                               uint32_t groups, AnyTyped dy, AnyTyped w, AnyTyped dx) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(xs)) return;
  const Place p = place_of(xs, i);
  const uint32_t outs = ws.n / groups, first = p.c / ws.c * outs, channel = p.c % ws.c;
  Wide sum = 0;
  for (uint32_t a = 0; a < ws.h; ++a)
    for (uint32_t b = 0; b < ws.w; ++b) {
      const int y = static_cast<int>(p.y) + v.pad_h - static_cast<int>(a) * v.dilation_h;
      const int column = static_cast<int>(p.x) + v.pad_w - static_cast<int>(b) * v.dilation_w;
      if (y < 0 || column < 0 || y % v.stride_h || column % v.stride_w) continue;
      const uint32_t oy = y / v.stride_h, ox = column / v.stride_w;
      if (oy >= ys.h || ox >= ys.w) continue;
      for (uint32_t o = 0; o < outs; ++o)
        sum = fma(dy.load<Wide>(offset(ys, p.n, first + o, oy, ox)), w.load<Wide>(offset(ws, first + o, channel, a, b)),
                  sum);
    }
  dx.store<Wide>(i, sum);
}

// One block per weight: the sum runs over a whole batch. Each thread takes every kThreads-th pixel; a tree of fixed
// shape adds their sums.
template <class Wide>
__global__ void __launch_bounds__(kThreads)
    conv_backward_weights(Image xs, Image ws, Image ys, WindowArgs v, uint32_t groups, AnyTyped x, AnyTyped dy,
                          AnyTyped dw) {
  __shared__ Wide shared[kThreads];
  const Place p = place_of(ws, blockIdx.x);
  const uint32_t channel = p.n / (ws.n / groups) * ws.c + p.c, pixels = ys.n * ys.h * ys.w;
  Wide sum = 0;
  for (uint32_t j = threadIdx.x; j < pixels; j += kThreads) {
    const uint32_t ox = j % ys.w, oy = j / ys.w % ys.h, n = j / ys.w / ys.h;
    const int y = static_cast<int>(oy) * v.stride_h - v.pad_h + static_cast<int>(p.y) * v.dilation_h;
    const int column = static_cast<int>(ox) * v.stride_w - v.pad_w + static_cast<int>(p.x) * v.dilation_w;
    if (y < 0 || y >= static_cast<int>(xs.h) || column < 0 || column >= static_cast<int>(xs.w)) continue;
    sum = fma(x.load<Wide>(offset(xs, n, channel, y, column)), dy.load<Wide>(offset(ys, n, p.n, oy, ox)), sum);
  }
  shared[threadIdx.x] = sum;
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dw.store<Wide>(blockIdx.x, shared[0]);
}

}  // namespace

void launch_direct_matmul(cudaStream_t stream, const MatmulArgs& s, bool wide, Array a, Array b, Array out) {
  const uint32_t blocks = blocks_for(s.batch * s.m * s.n, kThreads);
  if (wide)
    matmul<double><<<blocks, kThreads, 0, stream>>>(s, AnyTyped(a), AnyTyped(b), AnyTyped(out));
  else
    matmul<float><<<blocks, kThreads, 0, stream>>>(s, AnyTyped(a), AnyTyped(b), AnyTyped(out));
  launched("direct matmul");
}

void launch_direct_conv(cudaStream_t stream, const Image& x, const Image& w, const Image& y, const WindowArgs& v,
                        uint32_t groups, bool wide, Array x_data, Array w_data, Array y_data) {
  const uint32_t blocks = blocks_for(elements(y), kThreads);
  if (wide)
    conv<double>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(x_data), AnyTyped(w_data), AnyTyped(y_data));
  else
    conv<float>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(x_data), AnyTyped(w_data), AnyTyped(y_data));
  launched("direct conv2d");
}

void launch_direct_conv_backward_data(cudaStream_t stream, const Image& x, const Image& w, const Image& y,
                                      const WindowArgs& v, uint32_t groups, bool wide, Array dy, Array w_data,
                                      Array dx) {
  const uint32_t blocks = blocks_for(elements(x), kThreads);
  if (wide)
    conv_backward_data<double>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(dy), AnyTyped(w_data), AnyTyped(dx));
  else
    conv_backward_data<float>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(dy), AnyTyped(w_data), AnyTyped(dx));
  launched("direct conv2d_backward_data");
}

void launch_direct_conv_backward_weights(cudaStream_t stream, const Image& x, const Image& w, const Image& y,
                                         const WindowArgs& v, uint32_t groups, bool wide, Array x_data, Array dy,
                                         Array dw) {
  const uint32_t blocks = elements(w);
  if (wide)
    conv_backward_weights<double>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(x_data), AnyTyped(dy), AnyTyped(dw));
  else
    conv_backward_weights<float>
        <<<blocks, kThreads, 0, stream>>>(x, w, y, v, groups, AnyTyped(x_data), AnyTyped(dy), AnyTyped(dw));
  launched("direct conv2d_backward_weights");
}

}  // namespace halfmark::kernels::cuda
