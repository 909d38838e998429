// Compares work through run(op) with the same work written directly against oneDNN: the cost of halfmark's dispatch,
// plans and layouts. On both sides the library chooses the layouts. Operands are the same numbers; parameters have
// plain layout, as an optimizer needs.
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/micro/micro.h"

#if HALFMARK_ONEDNN
#include <benchmark/benchmark.h>

#include <array>
#include <functional>
#include <string>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/tensor/random.h"

namespace halfmark::bench::micro {
namespace {

using onednn::Arguments;
using onednn::Desc;
using onednn::Dims;
using onednn::Tag;

CpuDevice& cpu() {
  static CpuDevice device;
  return device;
}

Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, double scale, Purpose purpose) {
  const PurposeScope scope(purpose);
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * key.normal(i);
  return Tensor::from(cpu(), shape, dtype, values);
}

Math math_of(DType dtype) { return {.multiply = format_of(dtype)}; }

// The chain: conv, batch norm and relu, four times forward and four times backward.
constexpr int kLayers = 4;
constexpr int64_t kBatch = 16, kChannels = 64, kSide = 28;
constexpr Window kWindow{.pad_h = 1, .pad_w = 1};

struct Inputs {
  Tensor x, dy, ones, zeros;
  std::array<Tensor, kLayers> w;

  explicit Inputs(DType dtype)
      : x(random_tensor({kBatch, kChannels, kSide, kSide}, dtype, 1, 1, Purpose::input)),
        dy(random_tensor({kBatch, kChannels, kSide, kSide}, dtype, 2, 1e-3, Purpose::input)),
        ones(Tensor::zeros(cpu(), {kChannels}, DType::f32)),
        zeros(Tensor::zeros(cpu(), {kChannels}, DType::f32)) {
    ones.fill(1);
    for (int i = 0; i < kLayers; ++i)
      w[static_cast<size_t>(i)] =
          random_tensor({kChannels, kChannels, 3, 3}, dtype, 3 + static_cast<uint64_t>(i), 0.06, Purpose::weights);
  }
};

// The chain as layers compute it: every result is a new tensor whose layout the kernel chooses.
class OurChain {
 public:
  explicit OurChain(DType dtype) : dtype_(dtype), in_(dtype) {
    for (Layer& layer : layers_) {
      for (Tensor* vector :
           {&layer.mean, &layer.variance, &layer.running_mean, &layer.running_variance, &layer.dscale, &layer.dshift})
        *vector = Tensor::zeros(cpu(), {kChannels}, DType::f32);
      layer.dw = Tensor(cpu(), {kChannels, kChannels, 3, 3}, dtype);
    }
  }

  void step() {
    Tensor x = in_.x;
    for (size_t i = 0; i < kLayers; ++i) {
      Layer& layer = layers_[i];
      layer.x = x;
      layer.conv = open(), layer.norm = open(), layer.y = open();
      run(Conv2d{.x = x, .w = in_.w[i], .out = layer.conv, .window = kWindow, .math = math_of(dtype_)});
      run(BatchNorm{.x = layer.conv,
                    .scale = in_.ones,
                    .shift = in_.zeros,
                    .out = layer.norm,
                    .mean = layer.mean,
                    .variance = layer.variance,
                    .running_mean = layer.running_mean,
                    .running_variance = layer.running_variance});
      run(Relu{.x = layer.norm, .out = layer.y});
      layer.norm = Tensor();  // backward needs only y
      x = layer.y;
    }
    Tensor dy = in_.dy;
    for (size_t i = kLayers; i-- > 0;) {
      Layer& layer = layers_[i];
      Tensor dnorm = open(), dconv = open(), dx = open();
      run(ReluBackward{.kept = layer.y, .dy = dy, .dx = dnorm});
      run(BatchNormBackward{.x = layer.conv,
                            .dy = dnorm,
                            .scale = in_.ones,
                            .mean = layer.mean,
                            .variance = layer.variance,
                            .dx = dconv,
                            .dscale = layer.dscale,
                            .dshift = layer.dshift});
      run(Conv2dBackwardWeights{.x = layer.x, .dy = dconv, .dw = layer.dw, .window = kWindow, .math = math_of(dtype_)});
      run(Conv2dBackwardData{.dy = dconv, .w = in_.w[i], .dx = dx, .window = kWindow, .math = math_of(dtype_)});
      dy = dx;
      layer.y = layer.conv = layer.x = Tensor();
    }
  }

 private:
  struct Layer {
    Tensor x, conv, norm, y, mean, variance, running_mean, running_variance, dscale, dshift, dw;
  };
  Tensor open() const { return Tensor(cpu(), {kBatch, kChannels, kSide, kSide}, dtype_, Layout::any); }

  DType dtype_;
  Inputs in_;
  std::array<Layer, kLayers> layers_;
};

// The same chain in the oneDNN API: primitives are created once, and all memory is allocated in advance.
class DirectChain {
 public:
  explicit DirectChain(DType dtype) : in_(dtype) {
    using namespace onednn;
    const Dims image{kBatch, kChannels, kSide, kSide}, filter{kChannels, kChannels, 3, 3};
    const DataType type = onednn::type_of(dtype);
    const Desc any_image(image, type, Tag::any), any_filter(filter, type, Tag::any),
        plain_filter(filter, type, Tag::oihw);
    const Desc vector = plain_desc({kChannels}, DataType::f32);
    const Geometry g{{1, 1}, {0, 0}, {}, {1, 1}, {1, 1}};
    const dnnl::primitive_attr attr;
    const auto forward = make_convolution(any_image, any_filter, any_image, g, attr);
    const auto back_data = make_convolution_backward_data(any_image, any_filter, any_image, g, attr, forward);
    const auto back_weights = make_convolution_backward_weights(any_image, any_filter, any_image, g, attr, forward);
    const auto norm = make_batch_norm(true, forward.dst_desc(), 1e-5f, attr);
    const auto norm_back = make_batch_norm_backward(forward.dst_desc(), 1e-5f, attr, norm);
    const auto relu = make_relu(forward.dst_desc(), attr);
    const auto relu_back = make_relu_backward(forward.dst_desc(), attr, relu);

    const dnnl::memory scale = wrap(vector, in_.ones), shift = wrap(vector, in_.zeros);
    std::array<dnnl::memory, kLayers> xs, convs, ys, means, variances;
    dnnl::memory x = wrap(Desc(image, type, Tag::nchw), in_.x);
    for (size_t i = 0; i < kLayers; ++i) {
      xs[i] = x;
      convs[i] = make(forward.dst_desc()), ys[i] = make(relu.dst_desc()), means[i] = make(vector),
      variances[i] = make(vector);
      const dnnl::memory normed = make(forward.dst_desc());
      add(dnnl::convolution_forward(forward),
          {{DNNL_ARG_SRC, in(x, forward.src_desc())},
           {DNNL_ARG_WEIGHTS, packed(in_.w[i], plain_filter, forward.weights_desc())},
           {DNNL_ARG_DST, convs[i]}});
      add(dnnl::batch_normalization_forward(norm), {{DNNL_ARG_SRC, convs[i]},
                                                    {DNNL_ARG_SCALE, scale},
                                                    {DNNL_ARG_SHIFT, shift},
                                                    {DNNL_ARG_MEAN, means[i]},
                                                    {DNNL_ARG_VARIANCE, variances[i]},
                                                    {DNNL_ARG_DST, normed}});
      add(dnnl::eltwise_forward(relu), {{DNNL_ARG_SRC, normed}, {DNNL_ARG_DST, ys[i]}});
      x = ys[i];
    }
    dnnl::memory dy = wrap(Desc(image, type, Tag::nchw), in_.dy);
    for (size_t i = kLayers; i-- > 0;) {
      const dnnl::memory dnorm = make(forward.dst_desc()), dconv = make(forward.dst_desc());
      add(dnnl::eltwise_backward(relu_back),
          {{DNNL_ARG_DST, ys[i]}, {DNNL_ARG_DIFF_DST, in(dy, forward.dst_desc())}, {DNNL_ARG_DIFF_SRC, dnorm}});
      Arguments arguments{{DNNL_ARG_SRC, convs[i]},
                          {DNNL_ARG_DIFF_DST, dnorm},
                          {DNNL_ARG_MEAN, means[i]},
                          {DNNL_ARG_VARIANCE, variances[i]},
                          {DNNL_ARG_SCALE, scale},
                          {DNNL_ARG_DIFF_SRC, dconv},
                          {DNNL_ARG_DIFF_SCALE, make(vector)},
                          {DNNL_ARG_DIFF_SHIFT, make(vector)}};
      if (kBackwardTakesShift) arguments.insert({DNNL_ARG_SHIFT, shift});
      add(dnnl::batch_normalization_backward(norm_back), arguments);
      const dnnl::memory dw = make(back_weights.diff_weights_desc());
      add(dnnl::convolution_backward_weights(back_weights),
          {{DNNL_ARG_SRC, in(xs[i], back_weights.src_desc())},
           {DNNL_ARG_DIFF_DST, in(dconv, back_weights.diff_dst_desc())},
           {DNNL_ARG_DIFF_WEIGHTS, dw}});
      in(dw, plain_filter);
      const dnnl::memory dx = make(back_data.diff_src_desc());
      add(dnnl::convolution_backward_data(back_data),
          {{DNNL_ARG_DIFF_DST, in(dconv, back_data.diff_dst_desc())},
           {DNNL_ARG_WEIGHTS, packed(in_.w[i], plain_filter, back_data.weights_desc())},
           {DNNL_ARG_DIFF_SRC, dx}});
      dy = dx;
    }
  }

  void step() {
    for (auto& [primitive, arguments] : work_) primitive.execute(onednn::stream(), arguments);
    onednn::stream().wait();
  }
  int reorders() const { return reorders_; }

 private:
  static dnnl::memory wrap(const Desc& desc, const Tensor& tensor) {
    return dnnl::memory(desc, onednn::engine(), const_cast<void*>(tensor.data()));
  }
  static dnnl::memory make(const Desc& desc) { return dnnl::memory(desc, onednn::engine()); }
  void add(const dnnl::primitive& primitive, const Arguments& arguments) { work_.emplace_back(primitive, arguments); }

  // The memory itself, or a copy in the required layout, which is made again in every step.
  dnnl::memory in(const dnnl::memory& given, const Desc& wanted) {
    if (given.get_desc() == wanted) return given;
    const dnnl::memory copy = make(wanted);
    add(dnnl::reorder(given, copy), {{DNNL_ARG_FROM, given}, {DNNL_ARG_TO, copy}});
    ++reorders_;
    return copy;
  }
  // Parameters do not change here, so they are packed once.
  static dnnl::memory packed(const Tensor& w, const Desc& given, const Desc& wanted) {
    dnnl::memory source = wrap(given, w), copy = make(wanted);
    dnnl::reorder(source, copy).execute(onednn::stream(), source, copy);
    onednn::stream().wait();
    return copy;
  }

  Inputs in_;
  std::vector<std::pair<dnnl::primitive, Arguments>> work_;
  int reorders_ = 0;
};

template <class Work>
void measure(benchmark::State& state, Work& work, double flops) {
  for (auto _ : state) work();
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void chain_ours(benchmark::State& state, DType dtype, double flops) {
  OurChain chain(dtype);
  chain.step(), chain.step();  // creates primitives and packs weights
  const uint64_t before = onednn_reorders();
  auto step = [&] { chain.step(); };
  measure(state, step, flops);
  state.counters["reorders"] =
      static_cast<double>(onednn_reorders() - before) / static_cast<double>(state.iterations());
}

void chain_direct(benchmark::State& state, DType dtype, double flops) {
  onednn_set_threads(host_threads());
  DirectChain chain(dtype);
  chain.step(), chain.step();
  auto step = [&] { chain.step(); };
  measure(state, step, flops);
  state.counters["reorders"] = chain.reorders();
}

void matmul_ours(benchmark::State& state, DType dtype, int64_t n, double flops) {
  const Tensor a = random_tensor({n, n}, dtype, 1, 1, Purpose::input),
               b = random_tensor({n, n}, dtype, 2, 1, Purpose::weights);
  Tensor out(cpu(), {n, n}, dtype);
  auto step = [&] { run(Matmul{.a = a, .b = b, .out = out, .math = math_of(dtype)}); };
  step();
  measure(state, step, flops);
}

void matmul_direct(benchmark::State& state, DType dtype, int64_t n, double flops) {
  onednn_set_threads(host_threads());
  const Tensor a = random_tensor({n, n}, dtype, 1, 1, Purpose::input),
               b = random_tensor({n, n}, dtype, 2, 1, Purpose::weights);
  Tensor out(cpu(), {n, n}, dtype);
  const Desc plain = onednn::desc_of(a), any(Dims{n, n}, onednn::type_of(dtype), Tag::any);
  const auto description = onednn::make_matmul(plain, any, plain, dnnl::primitive_attr());
  dnnl::matmul primitive(description);
  const auto wrap = [&](const Tensor& t) { return dnnl::memory(plain, onednn::engine(), const_cast<void*>(t.data())); };
  dnnl::memory plain_b = wrap(b), packed(description.weights_desc(), onednn::engine());
  dnnl::reorder(plain_b, packed).execute(onednn::stream(), plain_b, packed);
  const Arguments arguments{{DNNL_ARG_SRC, wrap(a)}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, wrap(out)}};
  auto step = [&] {
    primitive.execute(onednn::stream(), arguments);
    onednn::stream().wait();
  };
  step();
  measure(state, step, flops);
}

}  // namespace

void register_peers() {
  const auto add = [](const std::string& name, std::function<void(benchmark::State&)> body) {
    benchmark::RegisterBenchmark(name.c_str(), std::move(body))->UseRealTime()->MeasureProcessCPUTime();
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (onednn::refuses_dtype(dtype)) continue;
    const std::string type(name_of(dtype));
    const double conv = 2.0 * kBatch * kSide * kSide * kChannels * kChannels * 9;
    const double flops = 3 * kLayers * conv;
    add("chain/conv_bn_relu/" + type + "/ours", [=](benchmark::State& s) { chain_ours(s, dtype, flops); });
    add("chain/conv_bn_relu/" + type + "/onednn", [=](benchmark::State& s) { chain_direct(s, dtype, flops); });
    for (const int64_t n : {512, 1024}) {
      const std::string name = "peer/matmul/" + type + "/" + std::to_string(n);
      const double products = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      add(name + "/ours", [=](benchmark::State& s) { matmul_ours(s, dtype, n, products); });
      add(name + "/onednn", [=](benchmark::State& s) { matmul_direct(s, dtype, n, products); });
    }
  }
}

}  // namespace halfmark::bench::micro

#else
namespace halfmark::bench::micro {
void register_peers() {}
}  // namespace halfmark::bench::micro
#endif
