#include "kernels/cuda/cudnn_graph_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/kept_plans.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/trial.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t{256} << 20;
constexpr int kNanByte = 0xff;  // bytes of NaN

void* bytes_of(const Tensor& tensor) { return const_cast<void*>(tensor.data()); }

bool same_value(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

double largest_among(const std::vector<double>& values) {
  double largest = 0;
  for (const double one : values) largest = std::max(largest, std::fabs(one));
  return largest;
}

// Both rows round a result once and add in different orders. The bounds are chosen above what that explains, and far
// below a wrong statistic or a lost term; they are not derived.
bool results_agree(const TriedResult& result) {
  const std::vector<double> found = result.found.values(), expected = result.expected.values();
  if (result.exact) return std::ranges::equal(found, expected, same_value);
  if (result.share > 0)
    return std::ranges::equal(found, expected, [&](double a, double b) {
      return std::fabs(a - b) <= result.share * std::fabs(b);  // false for NaN
    });
  constexpr double kRoundoffs = 8;
  const double of_largest = result.found.dtype() == DType::f64 ? 1e-14 : 1e-5;  // sums in fp64, or in fp32
  const Format& format = format_of(result.found.dtype());
  const double roundoff = format.unit_roundoff(), least = std::ldexp(kRoundoffs, format.min_subnormal_exponent());
  const double largest = std::max(largest_among(expected), result.term);
  const size_t line = result.line ? static_cast<size_t>(result.line) : found.size();
  for (size_t begin = 0; begin < found.size(); begin += line) {
    double of_line = 0, worst = 0;
    for (size_t i = begin; i < begin + line; ++i) {
      if (!std::isfinite(found[i]) || !std::isfinite(expected[i])) return false;
      of_line = std::max(of_line, std::fabs(expected[i])), worst = std::max(worst, std::fabs(found[i] - expected[i]));
    }
    if (worst > kRoundoffs * roundoff * of_line + of_largest * largest + least) return false;
  }
  return true;
}

// What an engine does wrong; empty: nothing.
std::string graph_fault(GraphTrial& trial, const std::function<cudnnStatus_t()>& run) {
  std::vector<std::vector<unsigned char>> first;
  if (run() != CUDNN_STATUS_SUCCESS) return "fails when it runs again";
  trial.finish();
  for (const TriedResult& one : trial.results) {
    if (!results_agree(one)) return "gives another " + std::string(one.name) + " than the row cuda";
    first.push_back(one.found.codes());
  }
  if (run() != CUDNN_STATUS_SUCCESS) return "fails when it runs again";
  trial.finish();
  for (size_t i = 0; i < first.size(); ++i)
    if (trial.results[i].found.codes() != first[i]) return "gives other bits each time";
  return {};
}

}  // namespace

GraphPlan::GraphPlan(CudaDevice& device, std::string what, TensorCores tensor_cores,
                     const std::function<CudnnGraph(const CudnnTarget&)>& graph,
                     const std::function<GraphTrial(CudaDevice&)>& trial)
    : what_(std::move(what)) {
  const PurposeScope scope(Purpose::workspace);
  const LogPause pause;
  device.activate();
  try {
    prepare(device, tensor_cores, graph, trial);
  } catch (const Unsupported& error) {
    wait_for(device);
    refusal_ = error.what();
  } catch (const Error& error) {
    throw_if_lost(device, error);
    refusal_ = std::string("failed: ") + error.what();
  } catch (const std::bad_alloc&) {
    device.note_shortage();
    refusal_ = "failed: not enough memory on the host for the trial";
  }
}

void GraphPlan::run(CudaDevice& device, const CudnnOperands& operands) const {
  const Tensor scratch = workspace(device, std::max<size_t>(workspace_, 1));
  check(execute_plan(device.cudnn(), *plan_, operands, bytes_of(scratch)), "cudnnBackendExecute");
}

void GraphPlan::prepare(CudaDevice& device, TensorCores tensor_cores,
                        const std::function<CudnnGraph(const CudnnTarget&)>& graph,
                        const std::function<GraphTrial(CudaDevice&)>& trial) {
  const CudnnTarget target{.handle = device.cudnn()};
  graph_.emplace(graph(target));
  CudnnCandidates candidates = cudnn_candidates(target, graph_->graph, tensor_cores, kMostWorkspace);
  if (candidates.found.empty()) {
    refusal_ = candidates.refusal;
    return wait_for(device);  // the reason may be a fault
  }
  GraphTrial tried = trial(device);
  size_t most = 1;
  for (const CudnnCandidate& candidate : candidates.found) most = std::max(most, candidate.workspace);
  const Tensor scratch = workspace(device, most);
  const auto execute = [&](const CudnnCandidate& candidate) {
    return execute_plan(device.cudnn(), candidate.plan, tried.operands, bytes_of(scratch));
  };
  Trial clock(device);
  // An engine that fails the trial is left out, and the others are chosen from again.
  while (!candidates.found.empty()) {
    const CudnnChoice chosen = choose_engine(device, clock, candidates.found, execute);
    if (!chosen.best) {
      refusal_ = chosen.refusal + candidates.failed;
      return;
    }
    const std::string fault = graph_fault(tried, [&] {
      for (const TriedResult& one : tried.results) clock.set(bytes_of(one.found), one.found.bytes(), kNanByte);
      clock.set(bytes_of(scratch), scratch.bytes(), kNanByte);
      return execute(*chosen.best);
    });
    wait_for(device);
    if (fault.empty()) return take(*chosen.best, candidates, chosen);
    candidates.failed += "; engine " + std::to_string(chosen.best->engine) + " " + fault;
    candidates.found.erase(candidates.found.begin() + (chosen.best - candidates.found.data()));
  }
  refusal_ = "has no engine that passes its trial" + candidates.failed;
}

void GraphPlan::take(CudnnCandidate& candidate, const CudnnCandidates& all, const CudnnChoice& chosen) {
  workspace_ = candidate.workspace;
  choice_ = what_ + ": engine " + std::to_string(candidate.engine) + (candidate.tensor_cores ? " (tensor cores)" : "") +
            "; the library's number " + std::to_string(candidate.place) + " of " + std::to_string(all.listed) +
            chosen.tried + all.failed + chosen.failed;
  configuration_.emplace(std::move(candidate.configuration));
  plan_.emplace(std::move(candidate.plan));
}

double largest_of(const Tensor& tensor) { return largest_among(tensor.values()); }

Tensor tried_values(Device& device, const Shape& shape, DType dtype, Layout layout, uint64_t seed, double mean) {
  constexpr size_t kPeriod = 1'000'003;  // a prime, so that no two lines are alike; drawing takes long
  // The host compares, with 8 bytes for each number of several tensors.
  constexpr int64_t kMost = int64_t{1} << 26;
  if (shape.elements() > kMost)
    throw Unsupported("is compared with the row cuda on up to " + std::to_string(kMost) + " numbers");
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = i < kPeriod ? mean + key.normal(i) : values[i - kPeriod];
  return Tensor::from(device, shape, dtype, values, layout);
}

void AlignmentCheck::input(std::string_view name, const Tensor& tensor) const {
  HM_CHECK(tensor.empty() || alignment_of(tensor) >= 16,
           "cudnn needs operands that start at multiples of 16 bytes; " + std::string(name) + " does not");
}

const GraphPlan& graph_plan(const CudaDevice& device, const Signature& key,
                            const std::function<std::unique_ptr<GraphPlan>(CudaDevice&)>& make) {
  return plans_in<GraphPlan>(device.cudnn_graph_plans).of(device, key, make);
}

}  // namespace halfmark::kernels::cuda
