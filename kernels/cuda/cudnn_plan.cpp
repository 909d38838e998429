#include "kernels/cuda/cudnn_plan.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_trial.h"

namespace halfmark::kernels::cuda {
namespace {

using namespace convolution_ids;

constexpr size_t kWorkspace = size_t{256} << 20;

struct Pointers {
  const void *x = nullptr, *w = nullptr, *y = nullptr;
};

class Plan final : public ConvolutionPlan {
 public:
  Plan(CudaDevice& device, const ConvolutionProblem& problem) : problem_(problem) {
    try {
      prepare(device);
    } catch (const Error& error) {
      throw_if_lost(device, error);
      refusal_ = std::string("failed: ") + error.what();
    }
  }

  void run(const CudaDevice& device, const void* x, const void* w, const void* y, void* workspace) const override {
    check(execute(device, *plan_, {x, w, y}, workspace), "cudnnBackendExecute");
  }

 private:
  void prepare(CudaDevice& device) {
    const CudnnTarget target{.handle = device.cudnn()};
    graph_.emplace(convolution_graph(target, problem_));
    CudnnCandidates candidates = cudnn_candidates(target, graph_->graph, problem_.tensor_cores, kWorkspace);
    others_ = candidates.failed;
    if (candidates.found.empty()) {
      refusal_ = candidates.refusal;
      return wait_for(device);  // the reason may be a fault
    }
    choose(device, candidates.found, candidates.listed);
  }

  static cudnnStatus_t execute(const CudaDevice& device, const CudnnDescriptor& plan, const Pointers& p,
                               void* workspace) {
    CudnnOperands operands;
    operands.add(kX, p.x), operands.add(kW, p.w), operands.add(kY, p.y);
    return execute_plan(device.cudnn(), plan, operands, workspace);
  }

  void choose(CudaDevice& device, std::vector<CudnnCandidate>& found, int listed) {
    Trial trial(device);
    std::optional<Pointers> scratch;
    void* workspace = nullptr;
    try {
      // Random numbers, as in use: how fast a GPU runs depends on how many bits change.
      const auto memory = [&](const Shape& shape, uint64_t seed) {
        const auto elements = static_cast<size_t>(shape.elements());
        void* numbers = trial.memory(bytes_for(problem_.dtype, elements), 0);
        trial.set_random(numbers, problem_.dtype, elements, seed);
        return numbers;
      };
      size_t most = 1;
      for (const CudnnCandidate& candidate : found) most = std::max(most, candidate.workspace);
      workspace = trial.memory(most, 0);
      scratch = Pointers{memory(problem_.x, 1), memory(problem_.w, 2), memory(problem_.y, 3)};
    } catch (const Error& error) {
      throw_if_lost(device, error);
      return take(found[0], listed, std::string(", not tried: ") + error.what());
    }
    const CudnnChoice choice = choose_engine(device, trial, found, [&](const CudnnCandidate& candidate) {
      return execute(device, candidate.plan, *scratch, workspace);
    });
    others_ += choice.failed;
    refusal_ = choice.refusal;
    if (choice.best) take(*choice.best, listed, choice.tried + others_);
  }

  void take(CudnnCandidate& candidate, int listed, const std::string& tried) {
    workspace_ = candidate.workspace;
    choice_ = problem_.x.text() + " by " + problem_.w.text() + (problem_.last ? " nhwc" : "") + ": engine " +
              std::to_string(candidate.engine) + (candidate.tensor_cores ? " (tensor cores)" : "") +
              "; the library's number " + std::to_string(candidate.place) + " of " + std::to_string(listed) + tried;
    configuration_.emplace(std::move(candidate.configuration));
    plan_.emplace(std::move(candidate.plan));
  }

  ConvolutionProblem problem_;
  std::optional<CudnnGraph> graph_;
  std::optional<CudnnDescriptor> configuration_, plan_;
  std::string others_;  // engines before it that failed when they were tried
};

}  // namespace

std::unique_ptr<ConvolutionPlan> make_convolution_plan(CudaDevice& device, const ConvolutionProblem& problem) {
  device.activate();
  return std::make_unique<Plan>(device, problem);
}

}  // namespace halfmark::kernels::cuda
