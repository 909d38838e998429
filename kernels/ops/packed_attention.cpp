#include "kernels/ops/packed_attention.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/number/error.h"
#include "kernels/tensor/memory.h"

namespace halfmark::kernels {
namespace {

struct PackedExtents {
  int64_t n, t, heads, d;
  explicit PackedExtents(const Tensor& qkv)
      : n(qkv.shape()[0]), t(qkv.shape()[1]), heads(qkv.shape()[3]), d(qkv.shape()[4]) {}
  Shape parts() const { return {3, n, heads, t, d}; }
  Shape heads_first() const { return {n, heads, t, d}; }
};

Tensor scratch(const Tensor& like, const Shape& shape) {
  const PurposeScope scope(Purpose::workspace);
  return Tensor(like.device(), shape, like.dtype());
}

Tensor copy_of(const Tensor& x, const AxisOrder& order) {
  Tensor out = scratch(x, permuted(x.shape(), order));
  run(Permute{.x = x, .out = out, .order = order});
  return out;
}

// q, k or v, or its gradient.
Tensor part(const Tensor& parts, int64_t which, const PackedExtents& e) {
  return parts.slice(which, 1).reshaped(e.heads_first());
}

// The operands of Attention. `copied`: of qkv, with the heads first. A row that is only asked gets what has the shapes: other
// memory of the operands, and results without memory.
struct Separate {
  const PackedAttention& op;
  PackedExtents e;
  Tensor parts, q, k, v, out;
  Separate(const PackedAttention& packed, const Tensor& copied, const Tensor& result)
      : op(packed),
        e(packed.qkv),
        parts(copied),
        q(part(parts, 0, e)),
        k(part(parts, 1, e)),
        v(part(parts, 2, e)),
        out(result) {}
  Attention attention() {
    return {.q = q,
            .k = k,
            .v = v,
            .mask = op.mask,
            .out = out,
            .log_sum = op.log_sum,
            .causal = op.causal,
            .scale = op.scale};
  }
};

struct SeparateBackward {
  const PackedAttentionBackward& op;
  PackedExtents e;
  Tensor parts, q, k, v, out, dout, gradients, dq, dk, dv;
  SeparateBackward(const PackedAttentionBackward& packed, const Tensor& copied, const Tensor& copied_out,
                   const Tensor& copied_dout, const Tensor& results)
      : op(packed),
        e(packed.qkv),
        parts(copied),
        q(part(parts, 0, e)),
        k(part(parts, 1, e)),
        v(part(parts, 2, e)),
        out(copied_out),
        dout(copied_dout),
        gradients(results),
        dq(part(gradients, 0, e)),
        dk(part(gradients, 1, e)),
        dv(part(gradients, 2, e)) {}
  AttentionBackward attention() {
    return {.q = q,
            .k = k,
            .v = v,
            .mask = op.mask,
            .out = out,
            .log_sum = op.log_sum,
            .dout = dout,
            .dq = dq,
            .dk = dk,
            .dv = dv,
            .causal = op.causal,
            .scale = op.scale};
  }
};

Refusal refuses_layout(std::initializer_list<const Tensor*> all) {
  for (const Tensor* one : all) {
    if (one->layout() != Layout::plain && one->layout() != Layout::any) return "takes only layout plain";
    if (is_packed(one->dtype())) return "a part of a packed dtype may begin within a byte";
  }
  return {};
}

template <class Op>
Refusal refuses_speed(const Op& attention, bool emulated) {
  try {
    if ((chosen(attention).speed == Speed::emulated) == emulated) return {};
  } catch (const Unsupported& reason) {
    return std::string("no row has attention: ") + reason.what();
  }
  return std::string("the attention of this device is ") + (emulated ? "real" : "emulated");
}

// `emulated`: the row for operands whose Attention is.
template <bool emulated>
Refusal refuses(const Device&, const PackedAttention& op) {
  if (Refusal r = refuses_layout({&op.qkv, &op.out, &op.log_sum})) return r;
  const PackedExtents e(op.qkv);
  const Tensor result(op.out.device(), e.heads_first(), op.out.dtype(), Layout::any);
  Separate separate(op, op.qkv.reshaped(e.parts()), result);
  return refuses_speed(separate.attention(), emulated);
}
void attend(Device&, const PackedAttention& op) {
  op.out.materialize(Layout::plain);
  Separate separate(op, copy_of(op.qkv, kPartsFirst), scratch(op.out, PackedExtents(op.qkv).heads_first()));
  run(separate.attention());
  run(Permute{.x = separate.out, .out = op.out, .order = inverse(kHeadsFirst)});
}

template <bool emulated>
Refusal refuses_backward(const Device&, const PackedAttentionBackward& op) {
  if (Refusal r = refuses_layout({&op.qkv, &op.out, &op.log_sum, &op.dout, &op.dqkv})) return r;
  const PackedExtents e(op.qkv);
  const Tensor gradients = op.dqkv.layout() == Layout::any ? scratch(op.dqkv, e.parts()) : op.dqkv.reshaped(e.parts());
  SeparateBackward separate(op, op.qkv.reshaped(e.parts()), op.out.reshaped(e.heads_first()),
                            op.dout.reshaped(e.heads_first()), gradients);
  return refuses_speed(separate.attention(), emulated);
}
void attend_backward(Device&, const PackedAttentionBackward& op) {
  op.dqkv.materialize(Layout::plain);
  SeparateBackward separate(op, copy_of(op.qkv, kPartsFirst), copy_of(op.out, kHeadsFirst),
                            copy_of(op.dout, kHeadsFirst), scratch(op.dqkv, PackedExtents(op.qkv).parts()));
  run(separate.attention());
  run(Permute{.x = separate.gradients, .out = op.dqkv, .order = inverse(kPartsFirst)});
}

// What rows of Attention may do, this one may. It computes nothing itself: whether a result repeats is known of the operations
// that it runs.
template <class Op, class Of>
void add_rows(KernelTable& table, Refusal (*real)(const Device&, const Op&),
              Refusal (*emulated)(const Device&, const Op&), void (*run_row)(Device&, const Op&)) {
  const KernelList<Of>& of = table.of<Of>();
  const auto any = [&](auto&& has) { return std::ranges::any_of(of, has); };
  Kernel<Op> row{.name = "separate",
                 .speed = Speed::real,
                 .refuses = real,
                 .run = run_row,
                 .repeats = Repeats::by_construction,
                 .flushes_subnormals = any([](const Kernel<Of>& one) { return one.flushes_subnormals; }),
                 .rounds_between = any([](const Kernel<Of>& one) { return one.rounds_between; })};
  // Simulated devices have no real one.
  if (any([](const Kernel<Of>& one) { return one.speed == Speed::real; })) table.of<Op>().push_back(row);
  row.name = "separate-emulated", row.speed = Speed::emulated, row.refuses = emulated;
  table.of<Op>().push_back(row);
}

}  // namespace

void add_packed_attention_rows(KernelTable& table) {
  add_rows<PackedAttention, Attention>(table, refuses<false>, refuses<true>, attend);
  add_rows<PackedAttentionBackward, AttentionBackward>(table, refuses_backward<false>, refuses_backward<true>,
                                                       attend_backward);
}

}  // namespace halfmark::kernels
