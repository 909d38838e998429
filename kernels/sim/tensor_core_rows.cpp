// Matmul and the convolutions on the model of a tensor core. Each output element is one chain of blocks in increasing
// k; for the convolutions k runs over kh, kw, channel (weights' gradient: n, y, x), padding is +0. K is filled up with
// +0 to whole blocks. split_k: contiguous slices, each a chain of its own from c = +0, rounded to math.partial and
// added in order by ordinary fp32 (fp16) additions. beta: beta times out, rounded to the accumulator's format, is the
// first block's c (with split_k the first slice's).
#include "kernels/sim/tensor_core_rows.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/contraction.h"
#include "kernels/cpu/reference/operand.h"
#include "kernels/sim/sim_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark {
namespace {

bool holds(const Format& outer, const Format& inner) {
  return outer.fraction_bits >= inner.fraction_bits && outer.max_exponent() >= inner.max_exponent() &&
         outer.min_subnormal_exponent() <= inner.min_subnormal_exponent();
}

const TensorCore* core_for(const Device& device, DType operand, const Math& math) {
  const auto& sim = static_cast<const SimDevice&>(device);
  if (math.accumulate == kFp32) return tensor_core(sim.architecture().name, operand, DType::f32);
  if (math.accumulate == kFp16) return tensor_core(sim.architecture().name, operand, DType::f16);
  return nullptr;
}

Refusal refuses_types(const Device& device, const Tensor& a, const Tensor& b, const Math& math) {
  const std::string types = std::string(name_of(a.dtype())) + " times " + std::string(name_of(b.dtype()));
  if (a.dtype() != b.dtype()) return "operands differ: " + types;
  const TensorCore* core = core_for(device, a.dtype(), math);
  if (!core) return "no instruction for " + types + " summed in " + std::string(math.accumulate.name);
  if (!holds(math.multiply, format_of(a.dtype())))
    return "multiplies " + std::string(name_of(a.dtype())) + " as stored, not rounded to " +
           std::string(math.multiply.name);
  return {};
}

template <class Op>
Refusal refuses(const Device& device, const Op& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  if constexpr (std::is_same_v<Op, Conv2dBackwardData>) {
    return refuses_types(device, op.dy, op.w, op.math);
  } else if constexpr (std::is_same_v<Op, Conv2dBackwardWeights>) {
    return refuses_types(device, op.x, op.dy, op.math);
  } else if constexpr (std::is_same_v<Op, Conv2d>) {
    return refuses_types(device, op.x, op.w, op.math);
  } else {
    return refuses_types(device, op.a, op.b, op.math);
  }
}

// Operands taken apart, in logical order.
std::vector<Term> terms_of(const Tensor& tensor) {
  const std::vector<unsigned char> codes = tensor.codes();
  return take_apart(tensor.dtype(), codes.data(), static_cast<size_t>(tensor.elements()));
}

bool any_special(const std::vector<Term>& terms) {
  return std::any_of(terms.begin(), terms.end(), [](const Term& term) { return term.special != kFinite; });
}

class Chain {
 public:
  Chain(const TensorCore& core, const Math& math, int64_t depth, bool special)
      : core_(core), math_(math), special_(special), depth_(static_cast<size_t>(depth)) {
    slices_ = std::clamp<size_t>(static_cast<size_t>(math.split_k), 1, std::max<size_t>(depth_, 1));
    slice_depth_ = (depth_ + slices_ - 1) / slices_;
  }

  // The code of one element in core.result.
  uint32_t operator()(const Term* a, const Term* b, uint32_t c) const {
    if (slices_ == 1) return dot(core_, a, b, depth_, c, special_);
    double total = 0;
    for (size_t s = 0, first = 0; s < slices_; ++s, first += slice_depth_) {
      const size_t begin = std::min(first, depth_), count = std::min(slice_depth_, depth_ - begin);
      const uint32_t code = dot(core_, a + begin, b + begin, count, s ? 0 : c, special_);
      const double part = round_to(math_.partial, decode(core_.result, code));
      total = round_to(math_.accumulate, s ? add_to_odd(total, part) : part);
    }
    return static_cast<uint32_t>(encode(core_.result, total));
  }

 private:
  const TensorCore& core_;
  const Math& math_;
  bool special_;
  size_t depth_, slices_ = 1, slice_depth_ = 0;
};

template <class Op>
void run(Device& device, const Op& op) {
  const Contraction work(op);
  const TensorCore& core = *core_for(device, work.left->dtype(), work.math);
  Tensor& out = *work.out;
  reference::settle(out, *work.left);
  const std::vector<Term> left = terms_of(*work.left), right = terms_of(*work.right);
  const Chain chain(core, work.math, work.depth, any_special(left) || any_special(right));
  std::vector<double> before;
  if (work.beta != 0) before = reference::read<double>(out);

  const DType dtype = out.dtype();
  const size_t size = size_of(dtype), depth = static_cast<size_t>(work.depth);
  std::vector<unsigned char> results(static_cast<size_t>(out.elements()) * size);
  std::vector<Term> columns(static_cast<size_t>(work.columns) * depth);
  for (int64_t group = 0; group < work.groups; ++group) {
    std::vector<int64_t> index(depth);
    for (int64_t c = 0; c < work.columns; ++c) {
      work.right_column(group, c, index.data());
      for (size_t k = 0; k < depth; ++k)
        columns[static_cast<size_t>(c) * depth + k] = right[static_cast<size_t>(index[k])];
    }
    const int64_t row_work = std::max<int64_t>(work.columns * work.depth, 1);
    parallel_for(work.rows, std::max<int64_t>(1, 4096 / row_work), [&](int64_t begin, int64_t end) {
      std::vector<int64_t> at(depth);
      std::vector<Term> row(depth);
      for (int64_t r = begin; r < end; ++r) {
        work.left_row(group, r, at.data());
        for (size_t k = 0; k < depth; ++k) row[k] = at[k] < 0 ? Term{} : left[static_cast<size_t>(at[k])];
        for (int64_t c = 0; c < work.columns; ++c) {
          const auto o = static_cast<size_t>(work.out_index(group, r, c));
          const auto addend = work.beta != 0 ? static_cast<uint32_t>(encode(core.result, work.beta * before[o])) : 0;
          const uint32_t code = chain(row.data(), &columns[static_cast<size_t>(c) * depth], addend);
          // The instruction's own code, its NaN included, where the tensor stores that type.
          const uint64_t stored = dtype == core.result ? code : encode(dtype, decode(core.result, code));
          std::copy_n(reinterpret_cast<const unsigned char*>(&stored), size, &results[o * size]);
        }
      }
    });
  }
  reference::write_codes(out, results);
}

template <class Op>
void add(KernelTable& table) {
  table.of<Op>().push_back({"tensor-core", Speed::emulated, &refuses<Op>, &run<Op>});
}

}  // namespace

void add_tensor_core_rows(KernelTable& table) {
  add<Matmul>(table), add<Conv2d>(table), add<Conv2dBackwardData>(table), add<Conv2dBackwardWeights>(table);
}

}  // namespace halfmark
