// cuDNN's graph API: descriptors, what finalising them checks, and the execution of convolutions.
#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/libraries/reference.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

Handles<cudnnBackendDescriptor_t, std::shared_ptr<Node>> nodes;

struct Names {  // of the attributes of an operation
  Direction direction;
  int x, w, y, convolution, alpha, beta;
};
std::optional<Names> names_of(cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    return Names{Direction::forward,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
    return Names{Direction::data,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
    return Names{Direction::filter,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  return {};
}

size_t element_bytes(cudnnDataType_t type) {
  if (type == CUDNN_DATA_BOOLEAN || type == CUDNN_DATA_INT8 || type == CUDNN_DATA_UINT8) return 1;
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}
cudnnDataType_t data_type(const Node& tensor) { return tensor.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT); }

cudnnStatus_t finalize_tensor(const Node& node) {
  const auto extents = node.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = node.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (extents.empty() || extents.size() != strides.size()) return refuse(kBad, "dimensions and strides do not match");
  const int64_t alignment = node.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  if (alignment <= 0 || alignment % static_cast<int64_t>(element_bytes(data_type(node))) != 0)
    return refuse(kBad, "the alignment is no multiple of the data type's size");
  if (std::any_of(strides.begin(), strides.end(), [](int64_t one) { return one < 0; }))
    return refuse(kBad, "a stride is negative");
  return kFine;
}

// Padding may be absent; the other lists have one number for each spatial axis.
cudnnStatus_t finalize_convolution(const Node& node) {
  const auto axes = static_cast<size_t>(node.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0));
  const auto fits = [&](int attribute, int64_t least, bool may_lack) {
    const auto values = node.all<int64_t>(attribute);
    if (values.empty() && may_lack) return true;
    return values.size() == axes && std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least; });
  };
  const bool valid = axes > 0 && fits(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1, false) &&
                     fits(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1, false) &&
                     fits(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0, true) &&
                     fits(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0, true);
  return valid ? kFine : refuse(kBad, "paddings, strides or dilations do not fit the spatial dimensions");
}

std::array<int, 4> four(const Node& node, int attribute) {
  std::array<int, 4> result{};
  const auto values = node.all<int64_t>(attribute);
  for (size_t i = 0; i < 4; ++i) result[i] = static_cast<int>(values[i]);
  return result;
}
std::array<int, 2> two(const Node& node, int attribute) {
  const auto values = node.all<int64_t>(attribute);
  if (values.size() < 2) return {0, 0};
  return {static_cast<int>(values[0]), static_cast<int>(values[1])};
}

// The operation as a part of a larger graph.
cudnnStatus_t make_convolution_step(Node& node, const Names& names) {
  auto step = std::make_shared<FormulaStep>();
  step->kind = FormulaKind::convolution, step->convolution = std::make_shared<Problem>(node.problem);
  step->operands.resize(2);
  for (const auto& [name, tensor] :
       {std::pair{names.x, &step->operands[0]}, {names.w, &step->operands[1]}, {names.y, &step->result}})
    if (const cudnnStatus_t status = tensor_of(node, name, *tensor); status != kFine) return status;
  node.step = std::move(step);
  return kFine;
}

cudnnStatus_t finalize_operation(Node& node, const Names& names) {
  const auto part = [&](int attribute, cudnnBackendDescriptorType_t type) {
    return finalized_node(node.one<cudnnBackendDescriptor_t>(attribute, nullptr), type);
  };
  const auto x = part(names.x, CUDNN_BACKEND_TENSOR_DESCRIPTOR), w = part(names.w, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
             y = part(names.y, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
             convolution = part(names.convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  if (!x || !w || !y || !convolution) return refuse(kBad, "a tensor or the convolution is not there or not finalized");
  for (const auto& tensor : {x, w, y})
    if (tensor->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size() != 4)
      return refuse(kUnsupported, "only images of two dimensions here");
  if (convolution->one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) != 2)
    return refuse(kBad, "the convolution has another number of spatial dimensions than the tensors");
  Problem& p = node.problem;
  p.direction = names.direction;
  const auto image = [](const Node& tensor) {
    return Image{true, data_type(tensor), four(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS),
                 four(tensor, CUDNN_ATTR_TENSOR_STRIDES)};
  };
  p.x = image(*x), p.y = image(*y);
  p.w.set = true, p.w.type = data_type(*w), p.w.extents = four(*w, CUDNN_ATTR_TENSOR_DIMENSIONS);
  const std::array<int, 4> strides = four(*w, CUDNN_ATTR_TENSOR_STRIDES);
  if (strides != packed_strides(p.w.extents, CUDNN_TENSOR_NCHW) &&
      strides != packed_strides(p.w.extents, CUDNN_TENSOR_NHWC))
    return refuse(kUnsupported, "only packed filters here");
  p.w.format = strides == packed_strides(p.w.extents, CUDNN_TENSOR_NCHW) ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
  Convolution& c = p.convolution;
  c.set = true;
  c.pad = two(*convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  if (c.pad != two(*convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
    return refuse(kUnsupported, "only equal paddings here");
  c.stride = two(*convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  c.dilation = two(*convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  c.mode = convolution->one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION);
  c.compute = convolution->one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  // Groups are where the image has more channels than the filter.
  if (p.w.extents[1] == 0 || p.x.extents[1] % p.w.extents[1] != 0) return refuse(kBad, "the channels do not fit");
  c.groups = p.x.extents[1] / p.w.extents[1];
  if (p.w.extents[0] % c.groups != 0) return refuse(kBad, "the filters are no multiple of the groups");
  std::array<int, 4> expected{};
  if (const cudnnStatus_t status = output_extents(c, p.x, p.w, expected); status != kFine) return status;
  if (p.y.extents != expected) return refuse(kBad, "the result has other extents than the convolution gives");
  size_t i = 0;
  for (const auto& tensor : {x, w, y}) {
    node.uids[i] = tensor->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    node.alignments[i++] = tensor->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  }
  node.alpha = node.one(names.alpha, 1.0), node.beta = node.one(names.beta, 0.0);
  if (p.direction == Direction::forward && node.alpha == 1 && node.beta == 0) return make_convolution_step(node, names);
  return kFine;
}

cudnnStatus_t finalize_step(Node& node) {
  auto step = std::make_shared<FormulaStep>();
  if (const cudnnStatus_t status = make_step(node, *step); status != kFine) return status;
  node.step = std::move(step);
  return kFine;
}

struct Configuration {
  cudnnDataType_t data, compute;
  DType dtype;
  int architecture;
};
// Backend API reference, "Supported Graph Patterns": data types and compute types of single convolutions.
constexpr Configuration kConfigurations[] = {
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, DType::f32, 50},     {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, DType::f64, 50},
    {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, DType::f16, 50},      {CUDNN_DATA_HALF, CUDNN_DATA_HALF, DType::f16, 53},
    {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, DType::bf16, 80},
};

cudnnStatus_t finalize_graph(Node& node) {
  const auto operations = node.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations.empty()) return refuse(kBad, "the graph has no operation");
  std::vector<FormulaStep> steps;
  for (const cudnnBackendDescriptor_t one : operations) {
    const std::shared_ptr<Node> operation = find_node(one);
    if (!operation) return refuse(kBad, "not an operation");
    const bool may_be_alone = names_of(operation->type) || operation->layer;
    if (!may_be_alone && !operation->step) return refuse(kBad, "not an operation");
    if (may_be_alone && operations.size() == 1) {
      node.take_problem(*operation);
      return node.layer ? node.layer->check_graph() : kFine;
    }
    if (!operation->step) return refuse(kUnsupported, "only graphs of one such operation here");
    steps.push_back(*operation->step);
  }
  auto formula = std::make_shared<Formula>();
  if (const cudnnStatus_t status = make_formula(std::move(steps), *formula); status != kFine) return status;
  node.formula = std::move(formula);
  return kFine;
}

cudnnStatus_t finalize_heuristic(Node& node) {
  const auto graph = finalized_node(node.one<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, nullptr),
                                    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!graph) return refuse(kBad, "no finalized graph");
  const int mode = node.one<int>(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_INSTANT);
  if (mode < 0 || mode >= CUDNN_HEUR_MODES_COUNT) return refuse(kBad, "no such mode");
  node.take_problem(*graph);
  node.architecture = architecture_of(current_device());
  if (node.layer) {
    node.engines = node.layer->engines(node.architecture, static_cast<cudnnBackendHeurMode_t>(mode));
    return kFine;
  }
  if (node.formula) {
    node.engines = formula_engines(*node.formula, node.architecture);
    return kFine;
  }
  Problem& p = node.problem;
  p.architecture = node.architecture;
  const auto* found = std::find_if(std::begin(kConfigurations), std::end(kConfigurations), [&](const auto& row) {
    return row.data == p.x.type && row.data == p.w.type && row.data == p.y.type && row.compute == p.convolution.compute;
  });
  if (found == std::end(kConfigurations) || p.architecture < found->architecture) return kFine;  // nothing is listed
  p.dtype = found->dtype;
  node.engines = listed_engines(p, static_cast<cudnnBackendHeurMode_t>(mode),
                                *std::min_element(node.alignments.begin(), node.alignments.end()));
  return kFine;
}

cudnnStatus_t finalize_plan(Node& node) {
  const auto configuration =
      finalized_node(node.one<cudnnBackendDescriptor_t>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, nullptr),
                     CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!configuration) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no finalized engine configuration");
  node.take_problem(*configuration);
  if (planted("plans-fail")) return refuse(kUnsupported, "planted: no plan");
  return kFine;
}

cudnnStatus_t finalize_pack(const Node& node) {
  const auto uids = node.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = node.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  return uids.size() == pointers.size() ? kFine : refuse(kBad, "as many pointers as ids are needed");
}

// The pointer of a tensor of the graph, which the pack must have once and as aligned as the tensor says.
cudnnStatus_t pointer_of(const Node& pack, int64_t uid, int64_t alignment, void*& pointer) {
  const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (std::count(uids.begin(), uids.end(), uid) != 1) return refuse(kBad, "a tensor has no pointer, or several");
  const auto at = static_cast<size_t>(std::find(uids.begin(), uids.end(), uid) - uids.begin());
  pointer = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)[at];
  if (!pointer || reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0)
    return refuse(kBad, "a pointer is null or not as aligned as its tensor says");
  return kFine;
}

// A pointer to memory is checked; a value is read now, as the real library does.
cudnnStatus_t execute_graph(const Handle& handle, const Node& plan, const Node& pack) {
  auto values = std::make_shared<std::map<int64_t, float>>();
  std::map<int64_t, void*> pointers;
  for (const FormulaTensor& tensor : plan.layer ? plan.layer->tensors() : memory_of(*plan.formula)) {
    void*& pointer = pointers[tensor.id];
    const int64_t alignment = tensor.by_value ? int64_t{alignof(float)} : tensor.alignment;
    if (const cudnnStatus_t status = pointer_of(pack, tensor.id, alignment, pointer); status != kFine) return status;
    if (tensor.by_value) {
      float& value = (*values)[tensor.id];
      std::memcpy(&value, pointer, sizeof value);
      pointer = &value;
    }
  }
  void* workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  const size_t bytes = plan.layer ? plan.layer->workspace() : attention_workspace(*plan.formula);
  if (bytes && !workspace) return refuse(kBad, "the plan needs a workspace");
  const FormulaEngine engine = plan.formula ? formula_engine(plan.engine, *plan.formula) : FormulaEngine{};
  enqueue(handle.stream, [formula = plan.formula, layer = plan.layer, values, pointers, workspace, bytes, engine] {
    if (planted("faults")) throw Fault(cudaErrorIllegalAddress, "planted: a graph faults");
    spoil(workspace, bytes);
    if (layer)
      layer->compute(pointers);
    else
      compute(*formula, pointers, engine);
  });
  return kFine;
}

cudnnStatus_t execute(const Handle& handle, const Node& plan, const Node& pack) {
  if (architecture_of(handle.device) != plan.architecture) return refuse(kBad, "a plan for another device");
  if (plan.formula || plan.layer) return execute_graph(handle, plan, pack);
  if (plan.uids[0] == plan.uids[1] || plan.uids[0] == plan.uids[2] || plan.uids[1] == plan.uids[2])
    return refuse(kBad, "two tensors of the graph have one id");
  Work work;
  work.problem = plan.problem, work.alpha = plan.alpha, work.beta = plan.beta;
  const Engine& engine = *find_engine(plan.engine);
  work.problem.engine_math = engine_math(engine, plan.problem);
  void** pointers[] = {&work.x, &work.w, &work.y};
  for (size_t i = 0; i < 3; ++i)
    if (const cudnnStatus_t status = pointer_of(pack, plan.uids[i], plan.alignments[i], *pointers[i]); status != kFine)
      return status;
  work.workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  work.workspace_bytes = engine_workspace(engine, plan.problem);
  if (work.workspace_bytes && !work.workspace) return refuse(kBad, "the plan needs a workspace");
  enqueue(handle.stream, [work] {
    if (planted("faults")) throw Fault(cudaErrorIllegalAddress, "planted: a convolution faults");
    compute(work);
  });
  return kFine;
}

}  // namespace

std::shared_ptr<Node> find_node(cudnnBackendDescriptor_t descriptor) {
  const auto found = nodes.find(descriptor);
  return found ? *found : nullptr;
}
std::shared_ptr<Node> finalized_node(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  const std::shared_ptr<Node> node = find_node(descriptor);
  return node && node->type == type && node->finalized ? node : nullptr;
}

cudnnStatus_t finalize(Node& node) {
  if (node.finalized) return refuse(kBad, "the descriptor is finalized already");
  cudnnStatus_t status = kBad;
  if (const auto names = names_of(node.type))
    status = finalize_operation(node, *names);
  else if (is_formula_operation(node.type))
    status = finalize_step(node);
  else if (is_layer(node.type))
    status = make_layer(node, node.layer);
  else if (node.type == CUDNN_BACKEND_RESAMPLE_DESCRIPTOR)
    status = check_resample(node);
  else if (is_formula_part(node.type))
    status = kFine;
  else if (node.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    status = finalize_tensor(node);
  else if (node.type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
    status = finalize_convolution(node);
  else if (node.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    status = finalize_graph(node);
  else if (node.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    status = finalize_heuristic(node);
  else if (node.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    status = finalize_plan(node);
  else if (node.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    status = finalize_pack(node);
  else
    return refuse(kUnsupported, "engines and their configurations come from heuristics here");
  node.finalized = status == kFine;
  return status;
}

}  // namespace halfmark::kernels::software_gpu::cudnn

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cudnn;

#define HM_CALLED(name)                                                                                           \
  if (const auto failure = called(name)) return refuse(static_cast<cudnnStatus_t>(*failure), "injected failure"); \
  if (planted(name)) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "planted failure")

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  HM_CALLED("cudnnBackendCreateDescriptor");
  if (!descriptor) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the descriptor");
  if (!is_known_type(type)) return refuse(kUnsupported, "no such descriptor here");
  auto node = std::make_shared<Node>();
  node->type = type;
  *descriptor = nodes.create(node);
  return kFine;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  HM_CALLED("cudnnBackendDestroyDescriptor");
  return nodes.destroy(descriptor) ? kFine : refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "not a live descriptor");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  HM_CALLED("cudnnBackendFinalize");
  const auto node = find_node(descriptor);
  return node ? finalize(*node) : refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "not a live descriptor");
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  HM_CALLED("cudnnBackendSetAttribute");
  const auto node = find_node(descriptor);
  if (!node) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "not a live descriptor");
  return set_attribute(*node, name, type, count, from);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* into) {
  HM_CALLED("cudnnBackendGetAttribute");
  const auto node = find_node(descriptor);
  if (!node) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "not a live descriptor");
  return get_attribute(*node, name, type, wanted, count, into);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  HM_CALLED("cudnnBackendExecute");
  const auto found = find(handle);
  const auto planned = finalized_node(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  const auto packed = finalized_node(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!found || !planned || !packed) return refuse(kBad, "not a live handle, or the plan or pack is not finalized");
  return execute(*found, *planned, *packed);
}

}  // extern "C"
