#include "kernels/cuda/cudnn_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_backend.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kWorkspace = size_t{256} << 20, kMostTried = 8;
constexpr std::array<int64_t, 3> kIds{1, 2, 3};  // of x, w and y
// Deprecated names of attributes that cuDNN before 9.19 needs: the handles of a graph and of a plan.
constexpr int kGraphHandle = 800, kPlanHandle = 400;

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::f64) return CUDNN_DATA_DOUBLE;
  if (dtype == DType::f16) return CUDNN_DATA_HALF;
  if (dtype == DType::bf16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::f32) return CUDNN_DATA_FLOAT;
  throw Error("no cuDNN type for " + std::string(name_of(dtype)));
}

struct Names {  // of the attributes of an operation
  cudnnBackendDescriptorType_t operation;
  int x, w, y, convolution, alpha, beta;
};
Names names_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Direction::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Direction::backward_weights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  throw Error("no such direction");
}

struct Pointers {
  const void *x = nullptr, *w = nullptr, *y = nullptr;
};

struct Candidate {
  CudnnDescriptor plan;
  size_t workspace = 0;
  int64_t engine = 0;
  bool tensor_cores = false;
  int place = 0;  // in the library's order, from 1
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
  CudnnDescriptor tensor(const Shape& shape, int64_t id, uint32_t alignment) const {
    const int64_t n = shape[0], c = shape[1], h = shape[2], w = shape[3];
    CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(problem_.dtype));
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
    if (problem_.last)
      made.set(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, 1, w * c, c});
    else
      made.set(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, h * w, w, 1});
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {int64_t{alignment}});
    made.finalize();
    return made;
  }

  CudnnDescriptor convolution() const {
    const Window& window = problem_.window;
    CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
             problem_.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    for (const int padding : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
      made.set(padding, {window.pad_h, window.pad_w});
    made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {window.stride_h, window.stride_w});
    made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {window.dilation_h, window.dilation_w});
    made.finalize();
    return made;
  }

  void prepare(CudaDevice& device) {
    const Names names = names_of(problem_.direction);
    parts_.push_back(tensor(problem_.x, kIds[0], problem_.alignment_x));
    parts_.push_back(tensor(problem_.w, kIds[1], problem_.alignment_w));
    parts_.push_back(tensor(problem_.y, kIds[2], problem_.alignment_y));
    parts_.push_back(convolution());
    CudnnDescriptor operation(names.operation);
    operation.set(names.x, parts_[0]), operation.set(names.w, parts_[1]), operation.set(names.y, parts_[2]);
    operation.set(names.convolution, parts_[3]);
    const auto scalar = [&](int name, double value) {
      if (problem_.dtype == DType::f64)
        operation.set(name, CUDNN_TYPE_DOUBLE, value);
      else
        operation.set(name, CUDNN_TYPE_FLOAT, static_cast<float>(value));
    };
    scalar(names.alpha, 1), scalar(names.beta, 0);
    operation.finalize();
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(kGraphHandle, CUDNN_TYPE_HANDLE, device.cudnn());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.finalize();
    int listed = 0;
    std::vector<Candidate> found = candidates(device, graph, listed);
    parts_.push_back(std::move(operation)), parts_.push_back(std::move(graph));
    if (found.empty()) {
      if (refusal_.empty()) refusal_ = "has no engine for this";
      return wait_for(device);  // the reason may be a fault
    }
    refusal_.clear();
    choose(device, found, listed);
  }

  // Those that keep to Math, in the library's order; with the fallback engines, because it names few engines for some
  // convolutions.
  std::vector<Candidate> candidates(CudaDevice& device, const CudnnDescriptor& graph, int& listed) {
    std::vector<Candidate> found;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
      heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
      heuristic.finalize();
      const size_t count = heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
      if (count == 0) continue;
      std::vector<CudnnDescriptor> configurations =
          heuristic.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
      for (CudnnDescriptor& configuration : configurations) {
        ++listed;
        if (found.size() < kMostTried)
          if (std::optional<Candidate> candidate = candidate_of(device, configuration, listed))
            found.push_back(std::move(*candidate)), parts_.push_back(std::move(configuration));
      }
    }
    return found;
  }

  std::optional<Candidate> candidate_of(CudaDevice& device, const CudnnDescriptor& configuration, int place) {
    const std::vector<CudnnDescriptor> engines =
        configuration.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (engines.empty()) return {};
    constexpr size_t kMostNotes = 64;  // more than there are, should a later version have new ones
    const auto notes = engines[0].get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                   CUDNN_TYPE_NUMERICAL_NOTE, kMostNotes);
    if (const std::string unwanted = unwanted_note(problem_.tensor_cores, notes); !unwanted.empty()) {
      if (refusal_.empty()) refusal_ = "offers only engines that compute otherwise; one " + unwanted;
      return {};
    }
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(kPlanHandle, CUDNN_TYPE_HANDLE, device.cudnn());
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (const cudnnStatus_t status = plan.try_to_finalize(); status != CUDNN_STATUS_SUCCESS) {
      refusal_ = std::string("has no plan for this (cudnnBackendFinalize: ") + cudnnGetErrorString(status) + ")";
      if (CUDNN_STATUS_CATEGORY(static_cast<int>(status)) != CUDNN_STATUS_NOT_SUPPORTED)
        others_ += "; another " + refusal_;
      return {};
    }
    const auto workspace = static_cast<size_t>(plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    if (workspace > kWorkspace) {
      refusal_ = "needs more than " + std::to_string(kWorkspace >> 20) + " MiB of workspace";
      return {};
    }
    const bool tensor_cores = std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
    return Candidate{std::move(plan), workspace, engines[0].number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), tensor_cores,
                     place};
  }

  cudnnStatus_t execute(const CudaDevice& device, const CudnnDescriptor& plan, const Pointers& p,
                        void* workspace) const {
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const std::array<void*, 3> pointers{const_cast<void*>(p.x), const_cast<void*>(p.w), const_cast<void*>(p.y)};
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(kIds));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    return cudnnBackendExecute(device.cudnn(), plan.handle(), pack.handle());
  }

  void choose(CudaDevice& device, std::vector<Candidate>& found, int listed) {
    Trial trial(device);
    std::optional<Pointers> scratch;
    void* workspace = nullptr;
    try {
      const auto memory = [&](const Shape& shape, int byte) {
        return trial.memory(bytes_for(problem_.dtype, static_cast<size_t>(shape.elements())), byte);
      };
      size_t most = 1;
      for (const Candidate& candidate : found) most = std::max(most, candidate.workspace);
      workspace = trial.memory(most, 0);
      // Bytes that make small normal numbers of every dtype.
      constexpr int kByte = 0x3c;
      scratch = Pointers{memory(problem_.x, kByte), memory(problem_.w, kByte), memory(problem_.y, kByte)};
    } catch (const Error& error) {
      throw_if_lost(device, error);
      return take(found[0], listed, std::string(", not tried: ") + error.what());
    }
    Candidate* best = nullptr;
    double fastest = 0;
    int ran = 0;
    for (Candidate& candidate : found) {
      const auto work = [&] { return execute(device, candidate.plan, *scratch, workspace); };
      const cudnnStatus_t status = work();
      wait_for(device);  // a fault of the device is no refusal
      if (status != CUDNN_STATUS_SUCCESS) {
        refusal_ = std::string("failed when it was tried: cudnnBackendExecute: ") + cudnnGetErrorString(status);
        others_ += "; number " + std::to_string(candidate.place) + " " + refusal_;
        continue;
      }
      ++ran;
      const bool timed = device.numerics().empty() && found.size() > 1;
      const double seconds = timed ? trial.seconds([&] { check(work(), "cudnnBackendExecute"); }) : 0;
      if (!best || (timed && seconds < kClearlyFaster * fastest)) best = &candidate, fastest = seconds;
      if (!timed || (ran == 1 && fastest < kWorthComparing)) break;  // the library's first that runs
    }
    if (!best) return;
    refusal_.clear();
    take(*best, listed, (ran > 1 ? ", the fastest of " + std::to_string(ran) + " tried" : std::string()) + others_);
  }

  void take(Candidate& candidate, int listed, const std::string& tried) {
    workspace_ = candidate.workspace;
    choice_ = problem_.x.text() + " by " + problem_.w.text() + (problem_.last ? " nhwc" : "") + ": engine " +
              std::to_string(candidate.engine) + (candidate.tensor_cores ? " (tensor cores)" : "") +
              "; the library's number " + std::to_string(candidate.place) + " of " + std::to_string(listed) + tried;
    plan_.emplace(std::move(candidate.plan));
  }

  ConvolutionProblem problem_;
  std::vector<CudnnDescriptor> parts_;  // what the plan was made of
  std::optional<CudnnDescriptor> plan_;
  std::string others_;  // engines before it that failed when they were tried
};

}  // namespace

std::unique_ptr<ConvolutionPlan> make_convolution_plan(CudaDevice& device, const ConvolutionProblem& problem) {
  device.activate();
  return std::make_unique<Plan>(device, problem);
}

}  // namespace halfmark::kernels::cuda
