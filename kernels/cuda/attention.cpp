// Rows of attention and of masks of scores. `cuda`: products of other rows, with kernels between them
// (attention_products.cu). `cuda-direct`: loops (attention.cu).
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "kernels/cuda/rows.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {
namespace {

// `rows` heads of all samples.
ScoreMask score_mask(const Tensor& mask, int64_t rows) {
  ScoreMask result{};
  if (mask.empty()) return result;
  const Shape& shape = mask.shape();
  result.data = const_cast<void*>(mask.data()), result.dtype = mask.dtype();
  result.is_bytes = mask.dtype() == DType::u8;
  result.heads = static_cast<uint32_t>(rows / shape[0]);
  result.queries = static_cast<uint32_t>(shape[1]), result.keys = static_cast<uint32_t>(shape[2]);
  return result;
}

Refusal refuses_heads(std::initializer_list<const Tensor*> all, const Tensor& mask) {
  if (Refusal r = not_readable_dtype(all)) return r;
  if (mask.empty() || mask.dtype() != DType::u8)
    if (Refusal r = not_readable_dtype({&mask})) return r;
  if (Refusal r = not_indexable(all)) return r;
  if (Refusal r = not_indexable({&mask})) return r;
  if (Refusal r = not_plain({&mask})) return r;
  return not_plain(all);
}

constexpr int64_t kMostFeatures = 2048;  // two fp64 sums of each in shared memory
Refusal refuses_features(const Tensor& q) {
  if (q.shape()[3] > kMostFeatures)
    return "takes up to " + std::to_string(kMostFeatures) + " features, not " + std::to_string(q.shape()[3]);
  return {};
}

AttentionForm attention_form(const Tensor& q, const Tensor& k, const Tensor& mask, bool causal, double scale) {
  const Shape& shape = q.shape();
  return {static_cast<uint32_t>(shape[2]),
          static_cast<uint32_t>(k.shape()[2]),
          static_cast<uint32_t>(shape[3]),
          causal,
          scale,
          score_mask(mask, shape[0] * shape[1])};
}
uint32_t heads_of(const Tensor& q) { return static_cast<uint32_t>(q.shape()[0] * q.shape()[1]); }

Refusal mask_refuses(const Device&, const MaskScores& op) { return refuses_heads({&op.scores, &op.out}, op.mask); }
void mask(Device& device, const MaskScores& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const Shape& shape = op.scores.shape();
  launch_mask_scores(cuda.stream(), static_cast<uint32_t>(op.scores.elements()), static_cast<uint32_t>(shape[1]),
                     score_mask(op.mask, shape[0]), array(op.scores), array(op.out));
}

Refusal attention_refuses(const Device&, const Attention& op) {
  if (Refusal r = refuses_features(op.q)) return r;
  return refuses_heads({&op.q, &op.k, &op.v, &op.out, &op.log_sum}, op.mask);
}
void attention(Device& device, const Attention& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  launch_attention(cuda.stream(), heads_of(op.q), attention_form(op.q, op.k, op.mask, op.causal, op.scale),
                   any_f64({&op.q, &op.k, &op.v, &op.out, &op.log_sum}), array(op.q), array(op.k), array(op.v),
                   array(op.out), array(op.log_sum));
}

Refusal attention_backward_refuses(const Device&, const AttentionBackward& op) {
  if (Refusal r = refuses_features(op.q)) return r;
  return refuses_heads({&op.q, &op.k, &op.v, &op.out, &op.log_sum, &op.dout, &op.dq, &op.dk, &op.dv}, op.mask);
}
void attention_backward(Device& device, const AttentionBackward& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.dq, &op.dk, &op.dv}) one->materialize(Layout::plain);
  const bool wide = any_f64({&op.q, &op.k, &op.v, &op.out, &op.log_sum, &op.dout, &op.dq, &op.dk, &op.dv});
  const AttentionForm form = attention_form(op.q, op.k, op.mask, op.causal, op.scale);
  Tensor memory = workspace(cuda, size_t{heads_of(op.q)} * form.t * (wide ? 8 : 4));
  launch_attention_backward(cuda.stream(), heads_of(op.q), form, wide, memory.data(),
                            {array(op.q), array(op.k), array(op.v), array(op.out), array(op.log_sum), array(op.dout),
                             array(op.dq), array(op.dk), array(op.dv)});
}

// Heads are taken some at a time, so that their scores, in workspace, have at most this many bytes unless one head has more.
// The software GPU has a small limit, so that its tests see several slices.
constexpr int64_t kScoreBytes = int64_t{64} << 20, kScoreBytesOfTests = int64_t{4} << 10;

struct HeadSlices {
  int64_t heads, at_once;  // of all samples
  explicit HeadSlices(const Tensor& q, const Tensor& k) : heads(q.shape()[0] * q.shape()[1]) {
    const int64_t score_bytes = q.shape()[2] * k.shape()[2] * (q.dtype() == DType::f64 ? 8 : 4);
    const int64_t limit = q.device().numerics().empty() ? kScoreBytes : kScoreBytesOfTests;
    const int64_t most = std::max<int64_t>(1, limit / score_bytes), slices = (heads + most - 1) / most;
    at_once = (heads + slices - 1) / slices;  // nearly equal slices
  }
  template <class F>
  void each(F f) const {
    for (int64_t first = 0; first < heads; first += at_once) f(first, std::min(at_once, heads - first));
  }
};

// The heads from `first` on of [n, heads, t, d] as a batch of matrices.
Tensor heads_from(const Tensor& x, int64_t first, int64_t count) {
  const Shape& shape = x.shape();
  return x.reshaped({shape[0] * shape[1], shape[2], shape[3]}).slice(first, count);
}

DType wide_type(const Tensor& q) { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }
Math wide_sums(const Tensor& q) {
  if (q.dtype() != DType::f64) return {};
  return {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
}
Tensor scores_of(const Tensor& q, const Tensor& k, int64_t count) {
  return workspace(q.device(), {count, q.shape()[2], k.shape()[2]}, wide_type(q), Layout::plain);
}
// The scores themselves, if they have the dtype already.
Tensor rounded_scores(const Tensor& scores, DType dtype) {
  if (scores.dtype() == dtype) return scores;
  return workspace(scores.device(), scores.shape(), dtype, Layout::plain);
}

struct ForwardProducts {
  Tensor q, k, v, out, scores, weights;
  Math math;
  ForwardProducts(const Attention& op, const Tensor& result, int64_t first, int64_t count)
      : q(heads_from(op.q, first, count)),
        k(heads_from(op.k, first, count)),
        v(heads_from(op.v, first, count)),
        out(result),
        scores(scores_of(op.q, op.k, count)),
        weights(rounded_scores(scores, op.q.dtype())),
        math(wide_sums(op.q)) {}
  BatchedMatmul of_scores() { return {.a = q, .b = k, .out = scores, .transpose_b = true, .math = math}; }
  BatchedMatmul of_values() { return {.a = weights, .b = v, .out = out, .math = math}; }
  std::array<BatchedMatmul, 2> all() { return {of_scores(), of_values()}; }
};

struct BackwardProducts {
  Tensor q, k, v, dout, dq, dk, dv, scores, slopes, weights, derivatives;
  Math math;
  BackwardProducts(const AttentionBackward& op, const std::array<Tensor, 3>& results, int64_t first, int64_t count)
      : q(heads_from(op.q, first, count)),
        k(heads_from(op.k, first, count)),
        v(heads_from(op.v, first, count)),
        dout(heads_from(op.dout, first, count)),
        dq(results[0]),
        dk(results[1]),
        dv(results[2]),
        scores(scores_of(op.q, op.k, count)),
        slopes(scores_of(op.q, op.k, count)),
        weights(rounded_scores(scores, op.q.dtype())),
        derivatives(rounded_scores(slopes, op.q.dtype())),
        math(wide_sums(op.q)) {}
  BatchedMatmul of_scores() { return {.a = q, .b = k, .out = scores, .transpose_b = true, .math = math}; }
  BatchedMatmul of_slopes() { return {.a = dout, .b = v, .out = slopes, .transpose_b = true, .math = math}; }
  BatchedMatmul of_dv() { return {.a = weights, .b = dout, .out = dv, .transpose_a = true, .math = math}; }
  BatchedMatmul of_dq() { return {.a = derivatives, .b = k, .out = dq, .math = math}; }
  BatchedMatmul of_dk() { return {.a = derivatives, .b = q, .out = dk, .transpose_a = true, .math = math}; }
  std::array<BatchedMatmul, 5> all() { return {of_scores(), of_slopes(), of_dv(), of_dq(), of_dk()}; }
};

// Why the rows before the one that takes a product do not.
std::string refusals_of(const BatchedMatmul& product, const Kernel<BatchedMatmul>& taken) {
  Device& device = product.a.device();
  std::string text;
  for (const Kernel<BatchedMatmul>& row : device.kernels().of<BatchedMatmul>()) {
    if (&row == &taken) break;
    if (const Refusal reason = row.refuses(device, product)) text += "; " + std::string(row.name) + ": " + *reason;
  }
  return text;
}

// Why the products, of the first slice, are not real. They are asked about with the memory that they need.
Refusal refuses_products(const Tensor& q, const Tensor& k, auto&& make) {
  const int64_t scores = HeadSlices(q, k).at_once * q.shape()[2] * k.shape()[2];
  if (scores > std::numeric_limits<int32_t>::max())
    return "takes heads of up to 2^31 - 1 scores, not " + std::to_string(scores);
  try {
    auto products = make();
    for (const BatchedMatmul& product : products.all()) {
      const auto& row = chosen(product);
      if (row.speed != Speed::real)
        return "a product is " + std::string(name_of(row.speed)) + " (" + std::string(row.name) + ")" +
               refusals_of(product, row);
    }
  } catch (const Unsupported& reason) {
    return std::string("no row has a product: ") + reason.what();
  } catch (const Error& error) {
    throw_if_lost(of(q.device()), error);
    return std::string("failed: ") + error.what();
  }
  return {};
}

// One dtype, of which tensor cores or the usual cores form products.
Refusal refuses_mixture(std::initializer_list<const Tensor*> all) {
  if (Refusal r = not_for_library(all)) return r;
  for (const Tensor* one : all)
    if (one->dtype() != (*all.begin())->dtype()) return std::string("takes operands of one dtype");
  return {};
}

Tensor scratch_heads(const Tensor& like, int64_t count) {
  return workspace(like.device(), {count, like.shape()[2], like.shape()[3]}, like.dtype(), Layout::plain);
}

Refusal products_refuse(const Device&, const Attention& op) {
  if (Refusal r = refuses_heads({&op.q, &op.k, &op.v, &op.out, &op.log_sum}, op.mask)) return r;
  if (Refusal r = refuses_mixture({&op.q, &op.k, &op.v, &op.out})) return r;
  const int64_t count = HeadSlices(op.q, op.k).at_once;
  return refuses_products(op.q, op.k, [&] { return ForwardProducts(op, scratch_heads(op.out, count), 0, count); });
}
void attention_by_products(Device& device, const Attention& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  const AttentionForm form = attention_form(op.q, op.k, op.mask, op.causal, op.scale);
  HeadSlices(op.q, op.k).each([&](int64_t first, int64_t count) {
    ForwardProducts products(op, heads_from(op.out, first, count), first, count);
    run(products.of_scores());
    const HeadRows rows{form, static_cast<uint32_t>(first), static_cast<uint32_t>(count) * form.t};
    launch_attention_weights(cuda.stream(), rows, op.q.dtype() == DType::f64, products.scores.data(),
                             array(products.weights), op.log_sum.data());
    run(products.of_values());
  });
}

Refusal products_refuse_backward(const Device&, const AttentionBackward& op) {
  if (Refusal r = refuses_heads({&op.q, &op.k, &op.v, &op.out, &op.log_sum, &op.dout, &op.dq, &op.dk, &op.dv}, op.mask))
    return r;
  if (Refusal r = refuses_mixture({&op.q, &op.k, &op.v, &op.out, &op.dout, &op.dq, &op.dk, &op.dv})) return r;
  const int64_t count = HeadSlices(op.q, op.k).at_once;
  return refuses_products(op.q, op.k, [&] {
    return BackwardProducts(op, {scratch_heads(op.dq, count), scratch_heads(op.dk, count), scratch_heads(op.dv, count)},
                            0, count);
  });
}
void attention_backward_by_products(Device& device, const AttentionBackward& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.dq, &op.dk, &op.dv}) one->materialize(Layout::plain);
  const AttentionForm form = attention_form(op.q, op.k, op.mask, op.causal, op.scale);
  const bool wide = op.q.dtype() == DType::f64;
  const Tensor along = workspace(cuda, {int64_t{heads_of(op.q)}, op.q.shape()[2]}, wide_type(op.q), Layout::plain);
  launch_attention_along(cuda.stream(), heads_of(op.q) * form.t, form.d, wide, array(op.out), array(op.dout),
                         const_cast<void*>(along.data()));
  HeadSlices(op.q, op.k).each([&](int64_t first, int64_t count) {
    const std::array<Tensor, 3> results{heads_from(op.dq, first, count), heads_from(op.dk, first, count),
                                        heads_from(op.dv, first, count)};
    BackwardProducts products(op, results, first, count);
    run(products.of_scores()), run(products.of_slopes());
    const HeadRows rows{form, static_cast<uint32_t>(first), static_cast<uint32_t>(count) * form.t};
    launch_attention_slopes(cuda.stream(), rows, wide, products.scores.data(), products.slopes.data(),
                            op.log_sum.data(), along.data(), array(products.weights), array(products.derivatives));
    run(products.of_dv()), run(products.of_dq()), run(products.of_dk());
  });
}

// What the row decides that its time and its bits depend on.
template <class Op>
std::string slices_chosen(const Device&, const Op& op) {
  const HeadSlices slices(op.q, op.k);
  std::string text = op.q.shape().text() + " by " + op.k.shape().text() + ": scores of " +
                     std::to_string(slices.at_once) + " of " + std::to_string(slices.heads) + " heads at a time";
  if (wide_type(op.q) != op.q.dtype())
    text += std::string("; probabilities rounded to ") + std::string(name_of(op.q.dtype()));
  return text;
}

}  // namespace

void add_mask_rows(KernelTable& table) { table.of<MaskScores>().push_back({"cuda", Speed::real, mask_refuses, mask}); }

void add_attention_rows(KernelTable& table) {
  table.of<Attention>().push_back({.name = "cuda",
                                   .speed = Speed::real,
                                   .refuses = products_refuse,
                                   .run = attention_by_products,
                                   .rounds_between = true,
                                   .choice = slices_chosen<Attention>});
  table.of<AttentionBackward>().push_back({.name = "cuda",
                                           .speed = Speed::real,
                                           .refuses = products_refuse_backward,
                                           .run = attention_backward_by_products,
                                           .rounds_between = true,
                                           .choice = slices_chosen<AttentionBackward>});
  table.of<Attention>().push_back({"cuda-direct", Speed::emulated, attention_refuses, attention});
  table.of<AttentionBackward>().push_back(
      {"cuda-direct", Speed::emulated, attention_backward_refuses, attention_backward});
}

}  // namespace halfmark::kernels::cuda
