// Rows `cudnn` of attention, forward and backward: the fused engines of cuDNN's graph API for f16 and bf16, which round the
// probabilities to that dtype. NVIDIA documents neither what they compute for a query that attends to nothing nor all of
// their faults, so masks are left to the next row, and an engine is used only after its results for random operands of the
// same shape were close to those of the next row.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/cudnn_attention_graph.h"
#include "kernels/cuda/cudnn_trial.h"
#include "kernels/cuda/rows.h"
#include "kernels/tensor/random.h"

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

// Random operands, results of the engine, and results of another row.
class Sample {
 public:
  Sample(Device& device, const AttentionProblem& p)
      : p_(p),
        queries_{p.n, p.heads, p.t, p.d},
        q_(normal(device, queries_, 1)),
        k_(normal(device, {p.n, p.heads, p.s, p.d}, 2)),
        v_(normal(device, k_.shape(), 3)),
        dout_(normal(device, queries_, 4)),
        out_(device, queries_, p.dtype),
        log_sum_(device, {p.n, p.heads, p.t}, DType::f32),
        other_out_(device, queries_, p.dtype),
        other_log_sum_(device, log_sum_.shape(), DType::f32) {}

  Attention forward(bool other) {
    return {.q = q_,
            .k = k_,
            .v = v_,
            .mask = none_,
            .out = other ? other_out_ : out_,
            .log_sum = other ? other_log_sum_ : log_sum_,
            .causal = p_.causal,
            .scale = scale()};
  }
  AttentionBackward backward(bool other) {
    std::vector<Tensor>& results = gradients_[other];
    if (results.empty())
      for (const Tensor* one : {&q_, &k_, &v_}) results.emplace_back(one->device(), one->shape(), p_.dtype);
    return {.q = q_,
            .k = k_,
            .v = v_,
            .mask = none_,
            .out = other_out_,
            .log_sum = other_log_sum_,
            .dout = dout_,
            .dq = results[0],
            .dk = results[1],
            .dv = results[2],
            .causal = p_.causal,
            .scale = scale()};
  }
  // Where the results differ by more than roundings to the dtype explain; empty: nowhere.
  std::string difference() const {
    // A result sums many products of rounded values, each with an error of half a last place of its own.
    const double of_dtype = 8 * format_of(p_.dtype).unit_roundoff();
    if (!p_.backward) {
      if (!close(out_, other_out_, of_dtype)) return "out";
      return close(log_sum_, other_log_sum_, 1e-4) ? "" : "log_sum";
    }
    constexpr const char* kNames[] = {"dq", "dk", "dv"};
    for (size_t i = 0; i < 3; ++i)
      if (!close(gradients_[0][i], gradients_[1][i], of_dtype)) return kNames[i];
    return "";
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(p_.d)); }
  Tensor normal(Device& device, const Shape& shape, uint64_t seed) const {
    const RandomKey key(seed);
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
    return Tensor::from(device, shape, p_.dtype, values);
  }
  static bool close(const Tensor& a, const Tensor& b, double share_of_largest) {
    const std::vector<double> left = a.values(), right = b.values();
    double largest = 0, worst = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      largest = std::max(largest, std::fabs(right[i])), worst = std::max(worst, std::fabs(left[i] - right[i]));
      if (std::isnan(left[i]) || std::isnan(right[i])) return false;
    }
    return worst <= share_of_largest * largest;
  }

  const AttentionProblem& p_;
  Shape queries_;
  Tensor none_, q_, k_, v_, dout_, out_, log_sum_, other_out_, other_log_sum_;
  std::vector<Tensor> gradients_[2];  // of the engine, of the other row
};

// The first row behind these ones that takes the operation.
template <class Op>
void run_other_row(Device& device, const Op& op) {
  bool behind = false;
  for (const Kernel<Op>& row : device.kernels().of<Op>()) {
    if (behind && !row.refuses(device, op)) return run_with(row, op);
    behind = behind || row.name == "cudnn";
  }
  throw Error("no other row to compare with");
}

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
    }
  }
  const std::string& refusal() const { return refusal_; }
  const std::string& choice() const { return choice_; }

  void run(CudaDevice& device, const auto& op) const {
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
    Sample sample(device, problem_);
    run_other_row(device, sample.forward(true));
    if (problem_.backward) run_other_row(device, sample.backward(true));
    size_t most = 1;
    for (const CudnnCandidate& candidate : candidates.found) most = std::max(most, candidate.workspace);
    const Tensor scratch = workspace(device, most), along = along_memory(device);
    Trial trial(device);
    const auto execute = [&](const CudnnCandidate& candidate) {
      const auto with = [&](const auto& op) {
        const auto scale = static_cast<float>(op.scale);
        return execute_plan(device.cudnn(), candidate.plan, operands_of(op, scale, along.data()),
                            const_cast<void*>(scratch.data()));
      };
      return problem_.backward ? with(sample.backward(false)) : with(sample.forward(false));
    };
    const CudnnChoice chosen = choose_engine(device, trial, candidates.found, execute);
    refusal_ = chosen.refusal;
    if (!chosen.best) return;
    check(execute(*chosen.best), "cudnnBackendExecute");  // the last one that was tried may be another
    device.synchronize();
    if (const std::string where = sample.difference(); !where.empty()) {
      refusal_ = "gives a " + where + " that differs from that of the next row (engine " +
                 std::to_string(chosen.best->engine) + ")";
      return;
    }
    take(*chosen.best, candidates, chosen);
  }

  void take(CudnnCandidate& candidate, const CudnnCandidates& all, const CudnnChoice& chosen) {
    workspace_ = candidate.workspace;
    choice_ = Shape{problem_.n, problem_.heads, problem_.t, problem_.d}.text() + " by " +
              Shape{problem_.n, problem_.heads, problem_.s, problem_.d}.text() + ": engine " +
              std::to_string(candidate.engine) + "; the library's number " + std::to_string(candidate.place) + " of " +
              std::to_string(all.listed) + chosen.tried + all.failed + chosen.failed + "; probabilities rounded to " +
              std::string(name_of(problem_.dtype));
    configuration_.emplace(std::move(candidate.configuration));
    plan_.emplace(std::move(candidate.plan));
  }

  AttentionProblem problem_;
  std::optional<CudnnGraph> graph_;
  std::optional<CudnnDescriptor> configuration_, plan_;
  size_t workspace_ = 0;
  std::string refusal_, choice_;
};

using Plans = std::unordered_map<Signature, std::unique_ptr<Plan>, SignatureHash>;

const Plan& plan_for(const CudaDevice& device, const AttentionProblem& p) {
  if (!device.cudnn_attention_plans) device.cudnn_attention_plans = std::make_shared<Plans>();
  auto& plans = *static_cast<Plans*>(device.cudnn_attention_plans.get());
  Signature key;
  for (const int64_t one :
       {int64_t{p.backward}, static_cast<int64_t>(p.dtype), p.n, p.heads, p.t, p.s, p.d, int64_t{p.causal}})
    key.add(one);
  if (const auto found = plans.find(key); found != plans.end()) return *found->second;
  // A plan is tried on the device, which does not change what the device is.
  auto plan = std::make_unique<Plan>(const_cast<CudaDevice&>(device), p);
  return *plans.emplace(std::move(key), std::move(plan)).first->second;
}

// What cudnn-frontend 1.23 refuses, or works around with a mask, on behalf of the library (sdpa_support_surface.h and
// scaled_dot_product_flash_attention.h): the library itself may not refuse it.
Refusal unsupported(const CudaDevice& device, const AttentionProblem& p) {
  if (device.compute_capability() < 80) return "needs compute capability 8.0";
  if (p.d % 8 != 0 || p.d > 128) return "takes up to 128 features, a multiple of 8, not " + std::to_string(p.d);
  if (p.t < 2 || p.s < 2) return "takes two queries and two keys at least";
  if (p.causal && p.t != p.s) return "takes as many queries as keys if causal";
  constexpr size_t kFirst = 91002, kAnyLength = 91501, kDeterministicBlackwell = 91800;
  const size_t version = cudnnGetVersion();
  if (version < kFirst) return "needs cuDNN 9.10.2";
  if (p.backward && p.s % 128 != 0 && version < kAnyLength)
    return "needs cuDNN 9.15.1 for a number of keys that is no multiple of 128";
  if (p.backward && device.compute_capability() / 10 == 10 && version < kDeterministicBlackwell)
    return "needs cuDNN 9.18 for a result that does not depend on the order of blocks";
  return {};
}

template <class Op>
Refusal refuses(const Device& device, const Op& op, std::initializer_list<const Tensor*> matrices) {
  const DType dtype = op.q.dtype();
  if (dtype != DType::f16 && dtype != DType::bf16) return "takes f16 and bf16, not " + std::string(name_of(dtype));
  for (const Tensor* one : matrices)
    if (one->dtype() != dtype) return std::string("takes operands of one dtype");
  if (op.log_sum.dtype() != DType::f32) return std::string("gives log_sum in f32");
  if (!op.mask.empty()) return std::string("leaves masks to the next row: a query may attend to nothing");
  if (Refusal r = not_indexable(matrices)) return r;
  if (Refusal r = not_plain(matrices)) return r;
  if (Refusal r = not_plain({&op.log_sum})) return r;
  const AttentionProblem problem = problem_of(op);
  for (const Tensor* one : matrices)
    if (alignment_of(*one) < problem.alignment) return std::string("takes operands that start at 16 bytes");
  if (alignment_of(op.log_sum) < problem.alignment) return std::string("takes operands that start at 16 bytes");
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

void add_cudnn_attention_rows(KernelTable& table) {
  add_row<Attention>(table, forward_refuses, forward);
  add_row<AttentionBackward>(table, backward_refuses, backward);
}

}  // namespace halfmark::kernels::cuda
