// Random operands on which an engine of attention is tried, its results, and those of another row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_attention_graph.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

class AttentionSample {
 public:
  // The problem must outlive the sample. Throws Error if there is not enough memory, or no other row.
  AttentionSample(Device& device, const AttentionProblem& problem);

  // f(op) with the operation that the engine is to compute, and its results.
  auto with_operation(auto f) {
    if (p_.packed) return p_.backward ? f(packed_backward()) : f(packed_forward());
    return p_.backward ? f(backward(results_)) : f(forward(results_[0], results_[1]));
  }
  std::vector<Tensor>& results() { return results_; }
  // Where the engine's results differ by more than roundings explain; empty: nowhere.
  std::string difference() const;
  // The last query of the last head, or the gradient of its result, becomes NaN. Returns the operand as it was.
  Tensor spoil();
  void restore(const Tensor& whole);
  // In the row of out and log_sum, or of dq, and in dk and dv of all keys if the query sees them.
  bool keeps_nan() const;

 private:
  double scale() const;
  Attention forward(Tensor& out, Tensor& log_sum) const;
  AttentionBackward backward(std::vector<Tensor>& gradients) const;
  PackedAttention packed_forward();
  PackedAttentionBackward packed_backward();
  Tensor& spoilt() { return p_.backward ? dout_ : q_; }
  void pack();                        // the operands, as they are now
  std::vector<Tensor> found() const;  // the engine's results with the heads first: out and log_sum, or dq, dk and dv

  const AttentionProblem& p_;
  Shape queries_;
  Tensor none_, parts_, q_, k_, v_, dout_, other_out_, other_log_sum_;  // parts_: q, k and v in one memory, if packed
  Tensor packed_qkv_, packed_out_, packed_dout_;
  std::vector<Tensor> results_, other_results_;  // other_results_: of backward
};

}  // namespace halfmark::kernels::cuda
