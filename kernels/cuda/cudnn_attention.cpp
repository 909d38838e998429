// Rows `cudnn` of attention, also of q, k and v in one memory, forward and backward: the fused engines of cuDNN's graph API for f16 and bf16, which round the
// probabilities to that dtype. NVIDIA documents neither what they compute for a query that attends to nothing nor all of
// their faults, so masks are left to the next row, and an engine is used only after a trial on random operands of the same
// shape: its results are close to those of the next row, have the same bits twice, and a NaN stays one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/cudnn_attention_graph.h"
#include "kernels/cuda/cudnn_attention_sample.h"
#include "kernels/cuda/cudnn_trial.h"
#include "kernels/cuda/kept_plans.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

using namespace attention_ids;

// The deterministic backward of Hopper keeps the derivatives of all scores.
constexpr size_t kWorkspace = size_t{1} << 30;
constexpr float kOneValue = 1, kMinusInfinityValue = -std::numeric_limits<float>::infinity();

AttentionProblem problem_of(const Tensor& q, const Tensor& k, bool causal, bool backward) {
  const Shape &of_q = q.shape(), &of_k = k.shape();
  return {backward, q.dtype(), of_q[0], of_q[1], of_q[2], of_k[2], of_q[3], causal};
}
AttentionProblem problem_of(const Attention& op) { return problem_of(op.q, op.k, op.causal, false); }
AttentionProblem problem_of(const AttentionBackward& op) { return problem_of(op.q, op.k, op.causal, true); }
AttentionProblem packed_problem(const Tensor& qkv, bool causal, bool backward) {
  const Shape& shape = qkv.shape();
  return {.backward = backward,
          .dtype = qkv.dtype(),
          .n = shape[0],
          .heads = shape[3],
          .t = shape[1],
          .s = shape[1],
          .d = shape[4],
          .causal = causal,
          .packed = true};
}
AttentionProblem problem_of(const PackedAttention& op) { return packed_problem(op.qkv, op.causal, false); }
AttentionProblem problem_of(const PackedAttentionBackward& op) { return packed_problem(op.qkv, op.causal, true); }

// The operands of a call. `along`: scratch, of backward.
CudnnOperands operands_of(const Attention& op, const float& scale, const void*) {
  CudnnOperands o;
  o.add(kQ, op.q.data()), o.add(kK, op.k.data()), o.add(kV, op.v.data()), o.add(kOut, op.out.data());
  o.add(kLogSum, op.log_sum.data()), o.add(kScale, &scale);
  if (op.causal) o.add(kMinusInfinity, &kMinusInfinityValue);
  return o;
}
CudnnOperands operands_of(const AttentionBackward& op, const float& scale, const void* along) {
  CudnnOperands o;
  o.add(kQ, op.q.data()), o.add(kK, op.k.data()), o.add(kV, op.v.data()), o.add(kOut, op.out.data());
  o.add(kLogSum, op.log_sum.data()), o.add(kDOut, op.dout.data()), o.add(kAlong, along);
  o.add(kDq, op.dq.data()), o.add(kDk, op.dk.data()), o.add(kDv, op.dv.data());
  o.add(kScale, &scale), o.add(kOne, &kOneValue);
  if (op.causal) o.add(kMinusInfinity, &kMinusInfinityValue);
  return o;
}

// q, k and v, or their gradients, where they begin in [n, t, 3, heads, d].
void add_parts(CudnnOperands& to, const std::array<int64_t, 3>& ids, const Tensor& packed) {
  const Shape& shape = packed.shape();
  const size_t part = bytes_for(packed.dtype(), static_cast<size_t>(shape[3] * shape[4]));
  for (size_t i = 0; i < ids.size(); ++i) to.add(ids[i], static_cast<const unsigned char*>(packed.data()) + i * part);
}
CudnnOperands operands_of(const PackedAttention& op, const float& scale, const void*) {
  CudnnOperands o;
  add_parts(o, {kQ, kK, kV}, op.qkv);
  o.add(kOut, op.out.data()), o.add(kLogSum, op.log_sum.data()), o.add(kScale, &scale);
  if (op.causal) o.add(kMinusInfinity, &kMinusInfinityValue);
  return o;
}
CudnnOperands operands_of(const PackedAttentionBackward& op, const float& scale, const void* along) {
  CudnnOperands o;
  add_parts(o, {kQ, kK, kV}, op.qkv), add_parts(o, {kDq, kDk, kDv}, op.dqkv);
  o.add(kOut, op.out.data()), o.add(kLogSum, op.log_sum.data()), o.add(kDOut, op.dout.data()), o.add(kAlong, along);
  o.add(kScale, &scale), o.add(kOne, &kOneValue);
  if (op.causal) o.add(kMinusInfinity, &kMinusInfinityValue);
  return o;
}

// Whether the operands begin where the graph says. Refusals cannot depend on it, because they are kept by shape.
struct AlignmentVisitor {
  uint32_t alignment;
  void input(std::string_view name, const Tensor& tensor) const {
    HM_CHECK(tensor.empty() || alignment_of(tensor) >= alignment,
             "attention: cuDNN needs operands that start at multiples of " + std::to_string(alignment) + " bytes; " +
                 std::string(name) + " does not");
  }
  void output(std::string_view name, const Tensor& tensor) const { input(name, tensor); }
  void attribute(const auto&) const {}
};

class Plan {
 public:
  Plan(CudaDevice& device, const AttentionProblem& problem) : problem_(problem) {
    const PurposeScope scope(Purpose::workspace);
    const LogPause pause;
    try {
      prepare(device);
    } catch (const Error& error) {
      throw_if_lost(device, error);
      refusal_ = std::string("failed: ") + error.what();
    } catch (const std::bad_alloc&) {
      device.note_shortage();
      refusal_ = "failed: not enough memory on the host for the trial";
    }
  }
  const std::string& refusal() const { return refusal_; }
  const std::string& choice() const { return choice_; }

  void run(CudaDevice& device, const auto& op) const {
    op.visit(AlignmentVisitor{problem_.alignment});
    const Tensor scratch = workspace(device, std::max<size_t>(workspace_, 1)), along = along_memory(device);
    const auto scale = static_cast<float>(op.scale);
    check(execute_plan(device.cudnn(), *plan_, operands_of(op, scale, along.data()), const_cast<void*>(scratch.data())),
          "cudnnBackendExecute");
  }

 private:
  Tensor along_memory(CudaDevice& device) const {
    if (!problem_.backward) return workspace(device, 1);
    return workspace(device, {problem_.n, problem_.heads, problem_.t}, DType::f32, Layout::plain);
  }

  void prepare(CudaDevice& device) {
    const CudnnTarget target{.handle = device.cudnn()};
    graph_.emplace(attention_graph(target, problem_));
    CudnnCandidates candidates = cudnn_candidates(target, graph_->graph, TensorCores::allowed, kWorkspace);
    if (candidates.found.empty()) {
      refusal_ = candidates.refusal;
      return wait_for(device);  // the reason may be a fault
    }
    AttentionSample sample(device, problem_);
    size_t most = 1;
    for (const CudnnCandidate& candidate : candidates.found) most = std::max(most, candidate.workspace);
    const Tensor scratch = workspace(device, most), along = along_memory(device);
    const auto execute = [&](const CudnnCandidate& candidate) {
      const auto with = [&](const auto& op) {
        const auto scale = static_cast<float>(op.scale);
        return execute_plan(device.cudnn(), candidate.plan, operands_of(op, scale, along.data()),
                            const_cast<void*>(scratch.data()));
      };
      return sample.with_operation(with);
    };
    Trial trial(device);
    // What an engine does not write keeps the byte: of NaN, or of 0.
    const auto run_on = [&](int byte, const CudnnCandidate& candidate) {
      for (Tensor& one : sample.results()) trial.set(const_cast<void*>(one.data()), one.bytes(), byte);
      for (const Tensor* one : {&scratch, &along}) trial.set(const_cast<void*>(one->data()), one->bytes(), byte);
      return execute(candidate);
    };
    // An engine that fails the trial is left out, and the others are chosen from again.
    while (!candidates.found.empty()) {
      const CudnnChoice chosen = choose_engine(device, trial, candidates.found, execute);
      if (!chosen.best) {
        refusal_ = chosen.refusal + candidates.failed;
        return;
      }
      const std::string fault = fault_of(*chosen.best, sample, run_on);
      wait_for(device);
      if (fault.empty()) return take(*chosen.best, candidates, chosen);
      candidates.failed += "; engine " + std::to_string(chosen.best->engine) + " " + fault;
      candidates.found.erase(candidates.found.begin() + (chosen.best - candidates.found.data()));
    }
    refusal_ = "has no engine that passes its trial" + candidates.failed;
  }

  // What an engine does wrong; empty: nothing.
  static std::string fault_of(const CudnnCandidate& candidate, AttentionSample& sample, const auto& run_on) {
    constexpr int kNan = 0xff;
    constexpr const char* kFails = "fails when it runs again";
    if (run_on(kNan, candidate) != CUDNN_STATUS_SUCCESS) return kFails;
    if (const std::string where = sample.difference(); !where.empty())
      return "gives another " + where + " than the next row";
    std::vector<std::vector<unsigned char>> first;
    for (const Tensor& one : sample.results()) first.push_back(one.codes());
    if (run_on(kNan, candidate) != CUDNN_STATUS_SUCCESS) return kFails;
    for (size_t i = 0; i < first.size(); ++i)
      if (sample.results()[i].codes() != first[i]) return "gives other bits each time";
    const Tensor whole = sample.spoil();
    const cudnnStatus_t status = run_on(0, candidate);
    sample.restore(whole);
    if (status != CUDNN_STATUS_SUCCESS) return kFails;
    return sample.keeps_nan() ? "" : "loses a NaN";
  }

  void take(CudnnCandidate& candidate, const CudnnCandidates& all, const CudnnChoice& chosen) {
    workspace_ = candidate.workspace;
    choice_ = shapes() + ": engine " + std::to_string(candidate.engine) + "; the library's number " +
              std::to_string(candidate.place) + " of " + std::to_string(all.listed) + chosen.tried + all.failed +
              chosen.failed + "; probabilities rounded to " + std::string(name_of(problem_.dtype));
    configuration_.emplace(std::move(candidate.configuration));
    plan_.emplace(std::move(candidate.plan));
  }

  std::string shapes() const {
    const AttentionProblem& p = problem_;
    if (p.packed) return Shape{p.n, p.t, 3, p.heads, p.d}.text();
    return Shape{p.n, p.heads, p.t, p.d}.text() + " by " + Shape{p.n, p.heads, p.s, p.d}.text();
  }

  AttentionProblem problem_;
  std::optional<CudnnGraph> graph_;
  std::optional<CudnnDescriptor> configuration_, plan_;
  size_t workspace_ = 0;
  std::string refusal_, choice_;
};

const Plan& plan_for(const CudaDevice& device, const AttentionProblem& p) {
  Signature key;
  for (const int64_t one : {int64_t{p.backward}, static_cast<int64_t>(p.dtype), p.n, p.heads, p.t, p.s, p.d,
                            int64_t{p.causal}, int64_t{p.packed}})
    key.add(one);
  return plans_in<Plan>(device.cudnn_attention_plans).of(device, key, [&](CudaDevice& tried_on) {
    return std::make_unique<Plan>(tried_on, p);
  });
}

// What cudnn-frontend 1.23 refuses, or works around with a mask, on behalf of the library (sdpa_support_surface.h and
// scaled_dot_product_flash_attention.h): the library itself may not refuse it. And what cannot be compared.
Refusal unsupported(const CudaDevice& device, const AttentionProblem& p) {
  if (p.d % 8 != 0) return "takes a multiple of 8 features, not " + std::to_string(p.d);
  if (!p.backward) return {};
  const int64_t most = device.compute_capability() / 10 == 9 ? 256 : 128;
  if (p.d > most) return "takes up to " + std::to_string(most) + " features here, not " + std::to_string(p.d);
  if (p.s == 1 || (p.causal && p.t == 1))
    return "cannot be tried where each query sees one key: the gradients of scores are 0";
  constexpr size_t kAnyLength = 91501;
  if (p.s % 128 != 0 && cudnnGetVersion() < kAnyLength)
    return "needs cuDNN 9.15.1 for a number of keys that is no multiple of 128";
  return {};
}
// The same of whole GPUs. On 10.x the front end sets the engine of a backward with fixed bits and its knobs itself.
bool has_forward(const CudaDevice& device) {
  constexpr size_t kFirst = 91002;
  return device.compute_capability() >= 80 && cudnnGetVersion() >= kFirst;
}
bool has_backward(const CudaDevice& device) { return has_forward(device) && device.compute_capability() / 10 != 10; }

// `matrices`: all operands but the mask and log_sum.
template <class Op>
Refusal refuses(const Device& device, const Op& op, std::initializer_list<const Tensor*> matrices) {
  const AttentionProblem problem = problem_of(op);
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    return "takes f16 and bf16, not " + std::string(name_of(problem.dtype));
  for (const Tensor* one : matrices)
    if (one->dtype() != problem.dtype) return std::string("takes operands of one dtype");
  if (op.log_sum.dtype() != DType::f32) return std::string("gives log_sum in f32");
  if (!op.mask.empty()) return std::string("leaves masks to the next row: a query may attend to nothing");
  if (Refusal r = not_indexable(matrices)) return r;
  if (Refusal r = not_plain(matrices)) return r;
  if (Refusal r = not_plain({&op.log_sum})) return r;
  if (Refusal r = unsupported(of(device), problem)) return r;
  const Plan& plan = plan_for(of(device), problem);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

template <class Op>
std::string choice(const Device& device, const Op& op) {
  return plan_for(of(device), problem_of(op)).choice();
}

Refusal forward_refuses(const Device& device, const Attention& op) {
  return refuses(device, op, {&op.q, &op.k, &op.v, &op.out});
}
void forward(Device& device, const Attention& op) {
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  plan_for(of(device), problem_of(op)).run(on(device), op);
}

Refusal backward_refuses(const Device& device, const AttentionBackward& op) {
  return refuses(device, op, {&op.q, &op.k, &op.v, &op.out, &op.dout, &op.dq, &op.dk, &op.dv});
}
void backward(Device& device, const AttentionBackward& op) {
  for (Tensor* one : {&op.dq, &op.dk, &op.dv}) one->materialize(Layout::plain);
  plan_for(of(device), problem_of(op)).run(on(device), op);
}

Refusal packed_refuses(const Device& device, const PackedAttention& op) {
  return refuses(device, op, {&op.qkv, &op.out});
}
void packed_forward(Device& device, const PackedAttention& op) {
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  plan_for(of(device), problem_of(op)).run(on(device), op);
}

Refusal packed_backward_refuses(const Device& device, const PackedAttentionBackward& op) {
  return refuses(device, op, {&op.qkv, &op.out, &op.dout, &op.dqkv});
}
void packed_backward(Device& device, const PackedAttentionBackward& op) {
  op.dqkv.materialize(Layout::plain);
  plan_for(of(device), problem_of(op)).run(on(device), op);
}

template <class Op>
void add_row(KernelTable& table, Refusal (*refuses)(const Device&, const Op&), void (*run)(Device&, const Op&)) {
  table.of<Op>().push_back({.name = "cudnn",
                            .speed = Speed::real,
                            .refuses = refuses,
                            .run = run,
                            .rounds_between = true,
                            .choice = choice<Op>});
}

}  // namespace

void add_cudnn_attention_rows(KernelTable& table, const CudaDevice& device) {
  if (has_forward(device)) {
    add_row<Attention>(table, forward_refuses, forward);
    add_row<PackedAttention>(table, packed_refuses, packed_forward);
  }
  if (has_backward(device)) {
    add_row<AttentionBackward>(table, backward_refuses, backward);
    add_row<PackedAttentionBackward>(table, packed_backward_refuses, packed_backward);
  }
}

}  // namespace halfmark::kernels::cuda
