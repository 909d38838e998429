// Rows of attention and of masks of scores; their kernels are in attention.cu.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda/rows.h"

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

}  // namespace

void add_mask_rows(KernelTable& table) { table.of<MaskScores>().push_back({"cuda", Speed::real, mask_refuses, mask}); }

void add_attention_rows(KernelTable& table) {
  table.of<Attention>().push_back({"cuda-direct", Speed::emulated, attention_refuses, attention});
  table.of<AttentionBackward>().push_back(
      {"cuda-direct", Speed::emulated, attention_backward_refuses, attention_backward});
}

}  // namespace halfmark::kernels::cuda
