#include "kernels/cuda/cudnn_attention_graph.h"

#include <array>
#include <span>
#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

using namespace attention_ids;

// A tensor of the graph is the index of its descriptor.
class Builder {
 public:
  explicit Builder(const AttentionProblem& problem) : p_(problem) {}

  using Extents = std::array<int64_t, 4>;
  size_t memory(int64_t id, DType dtype, const Extents& extents, const Extents& strides) {
    return tensor(id, cudnn_type(dtype), extents, strides, false, false);
  }
  // q, k, v or the gradient of one.
  size_t heads(int64_t id, int64_t length) {
    return memory(id, p_.dtype, {p_.n, p_.heads, length, p_.d}, head_strides(length, 3));
  }
  // The same memory as a transposed matrix of each head.
  size_t transposed_heads(int64_t id, int64_t length) {
    const Extents strides = head_strides(length, 3);
    return memory(id, p_.dtype, {p_.n, p_.heads, p_.d, length}, {strides[0], strides[1], strides[3], strides[2]});
  }
  // out or its gradient.
  size_t result_heads(int64_t id) { return memory(id, p_.dtype, {p_.n, p_.heads, p_.t, p_.d}, head_strides(p_.t, 1)); }
  size_t scalar(int64_t id) { return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }
  size_t rows(int64_t id) { return memory(id, DType::f32, {p_.n, p_.heads, p_.t, 1}, row_strides()); }

  // Between operations, without memory.
  size_t between_rows() {
    return tensor(next_++, CUDNN_DATA_FLOAT, {p_.n, p_.heads, p_.t, 1}, row_strides(), true, false);
  }
  size_t scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(next_++, type, {p_.n, p_.heads, p_.t, p_.s}, {p_.heads * p_.t * p_.s, p_.t * p_.s, p_.s, 1}, true,
                  false);
  }
  // parts: that lie beside each other in the memory whose order it has.
  size_t between_heads(cudnnDataType_t type, int64_t length, int64_t parts) {
    return tensor(next_++, type, {p_.n, p_.heads, length, p_.d}, head_strides(length, parts), true, false);
  }

  size_t pointwise(cudnnPointwiseMode_t mode, size_t x, size_t y, cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
    return pointwise(mode, {x, kNone, kNone}, y, compute);
  }
  size_t pointwise(cudnnPointwiseMode_t mode, size_t x, size_t b, size_t y,
                   cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
    return pointwise(mode, {x, b, kNone}, y, compute);
  }
  size_t reduce(cudnnReduceTensorOp_t mode, size_t x, size_t y) {
    CudnnDescriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, parts_[x]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, parts_[y]);
    return add(std::move(how), std::move(operation), y);
  }
  size_t multiply(size_t a, size_t b, size_t c) {
    CudnnDescriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, parts_[a]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, parts_[b]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, parts_[c]);
    return add(std::move(how), std::move(operation), c);
  }
  // The scores of each head as a transposed matrix, in the dtype of q.
  size_t transposed_scores(size_t x) {
    return reshape(x, tensor(next_++, cudnn_type(p_.dtype), {p_.n, p_.heads, p_.s, p_.t},
                             {p_.heads * p_.t * p_.s, p_.t * p_.s, 1, p_.s}, true, false));
  }
  size_t reshape(size_t x, size_t y) {
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, parts_[x]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, parts_[y]);
    operation.finalize();
    operations_.push_back(std::move(operation));
    return y;
  }
  // x where the query is not before the key, else -infinity.
  size_t causal(size_t x) {
    if (!p_.causal) return x;
    const size_t query = index_of(x, 2), key = index_of(x, 3);
    const size_t attends =
        pointwise(CUDNN_POINTWISE_CMP_GE, query, key, scores(CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
    return pointwise(CUDNN_POINTWISE_BINARY_SELECT, {x, scalar(kMinusInfinity), attends}, scores(), CUDNN_DATA_FLOAT);
  }

  CudnnGraph finish(const CudnnTarget& target) {
    CudnnDescriptor graph = cudnn_graph(target, operations_);
    return {std::move(parts_), std::move(operations_), std::move(graph)};
  }

 private:
  static constexpr size_t kNone = ~size_t{0};
  Extents row_strides() const { return {p_.heads * p_.t, p_.t, 1, 1}; }
  // Of [n, heads, length, d]. parts: of a position, if packed.
  Extents head_strides(int64_t length, int64_t parts) const {
    if (!p_.packed) return {p_.heads * length * p_.d, length * p_.d, p_.d, 1};
    const int64_t position = parts * p_.heads * p_.d;
    return {length * position, p_.d, position, 1};
  }

  size_t tensor(int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides, bool is_virtual,
                bool by_value) {
    CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(extents));
    made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(strides));
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {int64_t{p_.alignment}});
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    made.finalize();
    parts_.push_back(std::move(made));
    return parts_.size() - 1;
  }
  size_t index_of(size_t x, int64_t axis) {
    return pointwise(CUDNN_POINTWISE_GEN_INDEX, {x, kNone, kNone}, scores(CUDNN_DATA_INT32), CUDNN_DATA_INT32, axis);
  }
  size_t pointwise(cudnnPointwiseMode_t mode, const std::array<size_t, 3>& operands, size_t y, cudnnDataType_t compute,
                   int64_t axis = -1) {
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, {axis});
    how.finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    constexpr int kNames[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                              CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (size_t i = 0; i < 3; ++i)
      if (operands[i] != kNone) operation.set(kNames[i], parts_[operands[i]]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts_[y]);
    return add(std::move(how), std::move(operation), y);
  }
  size_t add(CudnnDescriptor how, CudnnDescriptor operation, size_t result) {
    operation.finalize();
    parts_.push_back(std::move(how)), operations_.push_back(std::move(operation));
    return result;
  }

  const AttentionProblem& p_;
  std::vector<CudnnDescriptor> parts_, operations_;
  int64_t next_ = 100;  // ids of tensors without memory
};

// The results of the pointwise operations that are named after what they compute.
struct Formulas {
  Builder& b;
  size_t minus(size_t x, size_t row) { return b.pointwise(CUDNN_POINTWISE_SUB, x, row, b.scores()); }
  size_t times(size_t x, size_t y, size_t into) { return b.pointwise(CUDNN_POINTWISE_MUL, x, y, into); }
  size_t exponential(size_t x) { return b.pointwise(CUDNN_POINTWISE_EXP, x, b.scores()); }
};

void build_forward(Builder& b, const AttentionProblem& p) {
  Formulas f{b};
  const size_t q = b.heads(kQ, p.t), k = b.transposed_heads(kK, p.s), v = b.heads(kV, p.s), out = b.result_heads(kOut),
               log_sum = b.rows(kLogSum);
  const size_t score = b.causal(f.times(b.multiply(q, k, b.scores()), b.scalar(kScale), b.scores()));
  const size_t largest = b.reduce(CUDNN_REDUCE_TENSOR_MAX, score, b.between_rows());
  const size_t powers = f.exponential(f.minus(score, largest));
  const size_t sum = b.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, b.between_rows());
  const size_t logarithm = b.pointwise(CUDNN_POINTWISE_LOG, sum, b.between_rows());
  b.pointwise(CUDNN_POINTWISE_ADD, largest, logarithm, log_sum);
  const size_t weights = b.pointwise(CUDNN_POINTWISE_DIV, powers, sum, b.scores(cudnn_type(p.dtype)));
  b.multiply(weights, v, out);
}

// dq is the result of its product, not of additions to fp32 memory in the order in which blocks finish: the form that
// cudnn-frontend calls deterministic.
void build_backward(Builder& b, const AttentionProblem& p) {
  Formulas f{b};
  const size_t q = b.heads(kQ, p.t), k = b.transposed_heads(kK, p.s), v = b.transposed_heads(kV, p.s),
               out = b.result_heads(kOut), log_sum = b.rows(kLogSum), dout = b.result_heads(kDOut),
               dq = b.heads(kDq, p.t), dk = b.heads(kDk, p.s), dv = b.heads(kDv, p.s), scale = b.scalar(kScale);
  const size_t products = f.times(dout, out, b.between_heads(CUDNN_DATA_FLOAT, p.t, 1));
  const size_t sums = b.reduce(CUDNN_REDUCE_TENSOR_ADD, products, b.between_rows());
  const size_t along = f.times(sums, b.scalar(kOne), b.rows(kAlong));
  const size_t score = f.times(b.multiply(q, k, b.scores()), scale, b.scores());
  const size_t powers = f.exponential(b.causal(f.minus(score, log_sum)));
  b.multiply(b.transposed_scores(powers), dout, dv);
  const size_t slopes = f.minus(b.multiply(dout, v, b.scores()), along);
  const size_t derivatives = f.times(f.times(slopes, powers, b.scores()), scale, b.scores());
  b.multiply(b.transposed_scores(derivatives), q, dk);
  b.multiply(derivatives, b.reshape(k, b.between_heads(cudnn_type(p.dtype), p.s, 3)), dq);
}

}  // namespace

CudnnGraph attention_graph(const CudnnTarget& target, const AttentionProblem& problem) {
  Builder builder(problem);
  if (problem.backward)
    build_backward(builder, problem);
  else
    build_forward(builder, problem);
  return builder.finish(target);
}

}  // namespace halfmark::kernels::cuda
