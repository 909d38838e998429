// Self-attention of several heads: as one operation, and as products and a softmax.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class SelfAttention : public TappedLayer {
 public:
  SelfAttention(std::string name, int64_t heads, AttentionOptions options)
      : TappedLayer(std::move(name)), heads_(heads), options_(std::move(options)) {}

  Shape output_shape(const Shape& x) const override { return {x[0], x[1], x[2] / 3}; }
  // q k^T and the product with v, over all pairs of positions also if causal, as counted in the field.
  double forward_flops(const Shape& x) const override {
    const int64_t width = x[2] / 3;
    return 4.0 * static_cast<double>(x[0] * x[1] * x[1] * width);
  }

 private:
  static constexpr AxisOrder kSplit{{2, 0, 3, 1, 4}, 5};  // [n, t, 3, heads, d] -> [3, n, heads, t, d]
  static constexpr AxisOrder kMerge{{0, 2, 1, 3}, 4};     // [n, heads, t, d] -> [n, t, heads, d]

  struct Sizes {
    int64_t n, heads, t, d;
    double scale;
    Sizes(const Shape& x, int64_t count)
        : n(x[0]), heads(count), t(x[1]), d(x[2] / 3 / count), scale(1 / std::sqrt(static_cast<double>(d))) {}
    Shape head() const { return {n, heads, t, d}; }
    Shape batch() const { return {n * heads, t, d}; }
    Shape scores() const { return {n * heads, t, t}; }
    Shape merged() const { return {n, t, heads, d}; }
    Shape packed() const { return {n, t, 3, heads, d}; }
  };

  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Sizes m(x.shape(), heads_);
    const Tensor a = pass.plain(pass.input("scaled_dot_product_attention", x));
    if (saved) saved->keep_spec(x);
    if (options_.fused) return attend(pass, a, m, saved).reshaped(output_shape(x.shape()));
    Tensor parts(pass.device, {3, m.n, m.heads, m.t, m.d}, a.dtype());
    run(Permute{.x = a.reshaped(m.packed()), .out = parts, .order = kSplit});
    const Tensor out = attend_in_steps(pass, parts, m, saved);
    Tensor y(pass.device, m.merged(), out.dtype());
    run(Permute{.x = out.reshaped(m.head()), .out = y, .order = kMerge});
    return y.reshaped(output_shape(x.shape()));
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    // The entries of forward are on top of the shape of x, so the gradients of q, k and v come first.
    const Shape& y = dy_given.shape();
    const Sizes m({y[0], y[1], 3 * y[2]}, heads_);
    const DType low = pass.input_dtype("scaled_dot_product_attention", dy_given.dtype());
    const Tensor dy = pass.plain(pass.cast(dy_given, low));
    if (options_.fused) {
      const Tensor dqkv = attend_backward(pass, dy, m, saved);
      const TensorSpec x = saved.take_spec();
      return pass.cast(dqkv.reshaped(x.shape), x.dtype);
    }
    Tensor dout(pass.device, m.head(), dy.dtype());
    run(Permute{.x = dy.reshaped(m.merged()), .out = dout, .order = inverse(kMerge)});
    const Tensor parts = steps_backward(pass, dout, m, saved);
    const TensorSpec x = saved.take_spec();
    Tensor dx(pass.device, m.packed(), parts.dtype());
    run(Permute{.x = parts, .out = dx, .order = inverse(kSplit)});
    return pass.cast(dx.reshaped(x.shape), x.dtype);
  }

  static Tensor part(const Tensor& parts, int64_t which, const Shape& shape) {
    return parts.slice(which, 1).reshaped(shape);
  }

  // [n, 1, t]: u8, or of the dtype of q, k and v; empty if every position is attended to. It is written anew in each pass,
  // as a framework gets it with the batch.
  Tensor mask(Pass& pass, const Sizes& m, DType dtype) const {
    if (options_.lengths.empty()) return {};
    std::vector<double> values;
    for (int64_t i = 0; i < m.n; ++i) {
      const int64_t length = options_.lengths[static_cast<size_t>(i) % options_.lengths.size()];
      for (int64_t j = 0; j < m.t; ++j) {
        const bool attends = j < length;
        values.push_back(options_.mask_value ? (attends ? 0 : *options_.mask_value) : attends ? 1 : 0);
      }
    }
    return Tensor::from(pass.device, {m.n, 1, m.t}, options_.mask_value ? dtype : DType::u8, values);
  }

  Tensor attend(Pass& pass, const Tensor& x, const Sizes& m, Saved* saved) const {
    const Tensor qkv = x.reshaped(m.packed());
    Tensor out(pass.device, m.merged(), x.dtype());
    Tensor log_sum(pass.device, {m.n, m.heads, m.t}, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
    const Tensor padding = mask(pass, m, x.dtype());
    run(PackedAttention{
        .qkv = qkv, .mask = padding, .out = out, .log_sum = log_sum, .causal = options_.causal, .scale = m.scale});
    if (saved) saved->keep(qkv), saved->keep(log_sum), saved->keep(out);
    return out;
  }
  Tensor attend_backward(Pass& pass, const Tensor& dy, const Sizes& m, Saved& saved) const {
    const Tensor out = saved.take(), log_sum = saved.take(), qkv = saved.take();
    const Tensor dout = dy.reshaped(m.merged());
    Tensor dqkv(pass.device, m.packed(), qkv.dtype());
    const Tensor padding = mask(pass, m, qkv.dtype());
    run(PackedAttentionBackward{.qkv = qkv,
                                .mask = padding,
                                .out = out,
                                .log_sum = log_sum,
                                .dout = dout,
                                .dqkv = dqkv,
                                .causal = options_.causal,
                                .scale = m.scale});
    return dqkv;
  }

  // Every product is an operation of its own, with the casts of autocast's rules for bmm and softmax.
  Tensor attend_in_steps(Pass& pass, const Tensor& parts, const Sizes& m, Saved* saved) const {
    const Math math = pass.math(parts.dtype());
    const double root = std::sqrt(m.scale);
    Tensor scaled(pass.device, {2, m.n, m.heads, m.t, m.d}, parts.dtype());
    run(Scale{.x = parts.slice(0, 2), .out = scaled, .factor = root});
    const Tensor q = part(scaled, 0, m.batch()), k = part(scaled, 1, m.batch()), v = part(parts, 2, m.batch());
    Tensor scores(pass.device, m.scores(), parts.dtype());
    run(BatchedMatmul{.a = q, .b = k, .out = scores, .transpose_b = true, .math = math});
    const Tensor padding = mask(pass, m, parts.dtype());
    if (!padding.empty()) run(MaskScores{.scores = scores, .mask = padding, .out = scores});
    const Tensor x = pass.input("softmax", scores);
    Tensor probabilities(pass.device, m.scores(), pass.output_dtype("softmax", x.dtype()));
    run(Softmax{
        .x = x, .out = probabilities, .causal = options_.causal, .masked = options_.guarded && !padding.empty()});
    const Tensor weights = pass.plain(pass.cast(probabilities, parts.dtype()));
    Tensor out(pass.device, m.batch(), parts.dtype());
    run(BatchedMatmul{.a = weights, .b = v, .out = out, .math = math});
    if (saved) saved->keep(parts), saved->keep(scaled), saved->keep(probabilities), saved->keep(weights);
    return out;
  }
  Tensor steps_backward(Pass& pass, const Tensor& dout_given, const Sizes& m, Saved& saved) const {
    const Tensor weights = saved.take(), probabilities = saved.take(), scaled = saved.take(), parts = saved.take();
    const Math math = pass.math(parts.dtype());
    const Tensor q = part(scaled, 0, m.batch()), k = part(scaled, 1, m.batch()), v = part(parts, 2, m.batch());
    const Tensor dout = dout_given.reshaped(m.batch());
    Tensor gradients(pass.device, parts.shape(), parts.dtype());
    Tensor dv = part(gradients, 2, m.batch());
    run(BatchedMatmul{.a = weights, .b = dout, .out = dv, .transpose_a = true, .math = math});
    Tensor dweights(pass.device, m.scores(), parts.dtype());
    run(BatchedMatmul{.a = dout, .b = v, .out = dweights, .transpose_b = true, .math = math});
    const Tensor dprobabilities = pass.plain(pass.cast(dweights, probabilities.dtype()));
    Tensor dscores_wide(pass.device, m.scores(), probabilities.dtype());
    run(SoftmaxBackward{.y = probabilities, .dy = dprobabilities, .dx = dscores_wide});
    const Tensor dscores = pass.plain(pass.cast(dscores_wide, parts.dtype()));
    Tensor dscaled(pass.device, scaled.shape(), parts.dtype());
    Tensor dq = part(dscaled, 0, m.batch()), dk = part(dscaled, 1, m.batch());
    run(BatchedMatmul{.a = dscores, .b = k, .out = dq, .math = math});
    run(BatchedMatmul{.a = dscores, .b = q, .out = dk, .transpose_a = true, .math = math});
    Tensor both = gradients.slice(0, 2);
    run(Scale{.x = dscaled, .out = both, .factor = std::sqrt(m.scale)});
    return gradients;
  }

  int64_t heads_;
  AttentionOptions options_;
};

}  // namespace

LayerPtr self_attention(std::string name, int64_t heads, const AttentionOptions& options) {
  return std::make_unique<SelfAttention>(std::move(name), heads, options);
}

}  // namespace halfmark::models
