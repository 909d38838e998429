#include "kernels/cuda/cudnn_engines.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kMostTried = 8;
// Deprecated names of attributes that cuDNN before 9.19 needs: the handles of a graph and of a plan.
constexpr int kGraphHandle = 800, kPlanHandle = 400;
// Names that the header has from cuDNN 9.8 on: the properties of a device, of a plan and of a heuristic.
constexpr int kPlanProperties = 407, kHeuristicProperties = 204;

void set_target(CudnnDescriptor& descriptor, const CudnnTarget& target, int handle, int properties) {
  if (target.properties)
    descriptor.set(properties, *target.properties);
  else
    descriptor.set(handle, CUDNN_TYPE_HANDLE, target.handle);
}

struct Search {
  const CudnnTarget& target;
  TensorCores tensor_cores;
  size_t most_workspace;
  CudnnCandidates result{};

  std::optional<CudnnCandidate> candidate_of(CudnnDescriptor configuration) {
    const std::vector<CudnnDescriptor> engines = engines_of(configuration);
    if (engines.empty()) return {};
    const std::vector<cudnnBackendNumericalNote_t> notes = notes_of(engines[0]);
    std::string& refusal = result.refusal;
    if (const std::string unwanted = unwanted_note(tensor_cores, notes); !unwanted.empty()) {
      if (refusal.empty()) refusal = "offers only engines that compute otherwise; one " + unwanted;
      return {};
    }
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_target(plan, target, kPlanHandle, kPlanProperties);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (const cudnnStatus_t status = plan.try_to_finalize(); status != CUDNN_STATUS_SUCCESS) {
      refusal = std::string("has no plan for this (cudnnBackendFinalize: ") + cudnnGetErrorString(status) + ")";
      if (CUDNN_STATUS_CATEGORY(static_cast<int>(status)) != CUDNN_STATUS_NOT_SUPPORTED)
        result.failed += "; another " + refusal;
      return {};
    }
    const auto workspace = static_cast<size_t>(plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    if (workspace > most_workspace) {
      refusal = "needs more than " + std::to_string(most_workspace >> 20) + " MiB of workspace";
      return {};
    }
    const bool uses_tensor_cores = std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
    return CudnnCandidate{
        std::move(configuration), std::move(plan), workspace, engines[0].number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
        uses_tensor_cores,        result.listed};
  }

  void list(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode) {
    for (CudnnDescriptor& configuration : cudnn_configurations(target, graph, mode)) {
      ++result.listed;
      if (result.found.size() == kMostTried) continue;
      if (std::optional<CudnnCandidate> candidate = candidate_of(std::move(configuration)))
        result.found.push_back(std::move(*candidate));
    }
  }
};

}  // namespace

cudnnDataType_t cudnn_type(DType dtype) {
  if (dtype == DType::f64) return CUDNN_DATA_DOUBLE;
  if (dtype == DType::f16) return CUDNN_DATA_HALF;
  if (dtype == DType::bf16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::f32) return CUDNN_DATA_FLOAT;
  throw Error("no cuDNN type for " + std::string(name_of(dtype)));
}

CudnnDescriptor cudnn_graph(const CudnnTarget& target, std::span<const CudnnDescriptor> operations) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!target.properties) graph.set(kGraphHandle, CUDNN_TYPE_HANDLE, target.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  graph.finalize();
  return graph;
}

std::vector<CudnnDescriptor> cudnn_configurations(const CudnnTarget& target, const CudnnDescriptor& graph,
                                                  cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.properties) heuristic.set(kHeuristicProperties, *target.properties);
  heuristic.finalize();
  const size_t count = heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  if (count == 0) return {};
  return heuristic.parts(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

std::vector<CudnnDescriptor> engines_of(const CudnnDescriptor& configuration) {
  return configuration.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
}
std::vector<cudnnBackendNumericalNote_t> notes_of(const CudnnDescriptor& engine) {
  constexpr size_t kMostNotes = 64;  // more than there are, should a later version have new ones
  return engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                 kMostNotes);
}

CudnnCandidates cudnn_candidates(const CudnnTarget& target, const CudnnDescriptor& graph, TensorCores tensor_cores,
                                 size_t most_workspace) {
  Search search{target, tensor_cores, most_workspace};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) search.list(graph, mode);
  if (search.result.found.empty() && search.result.refusal.empty()) search.result.refusal = "has no engine for this";
  return std::move(search.result);
}

cudnnStatus_t execute_plan(cudnnHandle_t handle, const CudnnDescriptor& plan, const CudnnOperands& operands,
                           void* workspace) {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(operands.ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(operands.pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  return cudnnBackendExecute(handle, plan.handle(), pack.handle());
}

}  // namespace halfmark::kernels::cuda
