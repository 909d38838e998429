// The attributes of descriptors: types, numbers of elements, who sets them. Source: the comments of cudnn_graph_v9.h and
// the backend API reference, "cudnnBackendAttributeName_t"; answers to misuse as cuDNN 9.19 gives them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

constexpr int kMostDimensions = 12;  // more than a tensor has; the real limit of attributes that are lists of numbers

struct Attribute {
  cudnnBackendDescriptorType_t descriptor;
  int name;
  cudnnBackendAttributeType_t type;
  int most = 1;
  bool given = true;  // by the program; else only read
};
constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR, kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
               kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
               kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
               kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
               kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR, kReduction = CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
               kMatmul = CUDNN_BACKEND_MATMUL_DESCRIPTOR, kPointwiseStep = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
               kReductionStep = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
               kMatmulStep = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
               kReshapeStep = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
               kNormForward = CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
               kNormBackward = CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
               kResample = CUDNN_BACKEND_RESAMPLE_DESCRIPTOR,
               kResampleForward = CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
               kResampleBackward = CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR,
               kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, kHeuristic = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
               kConfiguration = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR,
               kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr auto kInt64 = CUDNN_TYPE_INT64, kNode = CUDNN_TYPE_BACKEND_DESCRIPTOR, kData_ = CUDNN_TYPE_DATA_TYPE,
               kPointer = CUDNN_TYPE_VOID_PTR, kHandle = CUDNN_TYPE_HANDLE, kDouble = CUDNN_TYPE_DOUBLE,
               kBoolean = CUDNN_TYPE_BOOLEAN;
constexpr int kGraphHandle = 800, kPlanHandle = 400;  // names that the header marks as deprecated

constexpr Attribute kAttributes[] = {
    {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kInt64},
    {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, kData_},
    {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, kInt64, kMostDimensions},
    {kTensor, CUDNN_ATTR_TENSOR_STRIDES, kInt64, kMostDimensions},
    {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt64},
    {kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, kBoolean},
    {kTensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, kBoolean},
    {kPointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
    {kPointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, kData_},
    {kPointwise, CUDNN_ATTR_POINTWISE_AXIS, kInt64},
    {kPointwise, kNanPropagation, CUDNN_TYPE_NAN_PROPOGATION},
    {kReduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
    {kReduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, kData_},
    {kMatmul, CUDNN_ATTR_MATMUL_COMP_TYPE, kData_},
    {kPointwiseStep, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kNode},
    {kPointwiseStep, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kNode},
    {kPointwiseStep, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kNode},
    {kPointwiseStep, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kNode},
    {kPointwiseStep, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kNode},
    {kReductionStep, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kNode},
    {kReductionStep, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kNode},
    {kReductionStep, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kNode},
    {kMatmulStep, CUDNN_ATTR_OPERATION_MATMUL_DESC, kNode},
    {kMatmulStep, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kNode},
    {kMatmulStep, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kNode},
    {kMatmulStep, CUDNN_ATTR_OPERATION_MATMUL_CDESC, kNode},
    {kReshapeStep, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kNode},
    {kReshapeStep, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kNode},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, kData_},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, kInt64, kMostDimensions},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, kInt64, kMostDimensions},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, kInt64, kMostDimensions},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, kInt64, kMostDimensions},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kInt64},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, kDouble},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, kDouble},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kNode},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kNode},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kNode},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kNode},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, kDouble},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, kDouble},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kNode},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kNode},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kNode},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kNode},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, kDouble},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, kDouble},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kNode},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kNode},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kNode},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, kNode},
    {kNormForward, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, kNode},
    {kNormBackward, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, kNode},
    {kResample, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE},
    {kResample, CUDNN_ATTR_RESAMPLE_COMP_TYPE, kData_},
    {kResample, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION},
    {kResample, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE},
    {kResample, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, kInt64},
    {kResample, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, kInt64, kMostDimensions},
    {kResample, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, kInt64, kMostDimensions},
    {kResample, CUDNN_ATTR_RESAMPLE_STRIDES, kInt64, kMostDimensions},
    {kResample, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, kInt64, kMostDimensions},
    {kResampleForward, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, kNode},
    {kResampleForward, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, kNode},
    {kResampleForward, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, kNode},
    {kResampleForward, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, kNode},
    {kResampleBackward, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, kNode},
    {kResampleBackward, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, kNode},
    {kResampleBackward, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, kNode},
    {kResampleBackward, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, kNode},
    {kGraph, kGraphHandle, kHandle},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kNode, 64},
    {kHeuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    {kHeuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kNode},
    {kHeuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, kNode, 1 << 20, false},
    {kConfiguration, CUDNN_ATTR_ENGINECFG_ENGINE, kNode, 1, false},
    {kConfiguration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, kInt64, 1, false},
    {kEngine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, kInt64, 1, false},
    {kEngine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, false},
    {kPlan, kPlanHandle, kHandle},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kNode},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, kInt64, 1, false},
    {kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kInt64, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, kPointer, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, kPointer},
};

const Attribute* find_attribute(const Node& node, int name) {
  for (const Attribute& one : kAttributes)
    if (one.descriptor == node.type && one.name == name) return &one;
  return nullptr;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  if (type == kInt64) return sizeof(int64_t);
  if (type == kDouble) return sizeof(double);
  if (type == kBoolean) return sizeof(bool);
  if (type == kNode || type == kPointer || type == kHandle) return sizeof(void*);
  return sizeof(int);  // enumerations
}

// alpha and beta of operations are of type double or float.
bool may_be(const Attribute& attribute, cudnnBackendAttributeType_t type) {
  return attribute.type == type || (attribute.type == kDouble && type == CUDNN_TYPE_FLOAT);
}

template <class T>
cudnnStatus_t give(const std::vector<T>& values, int64_t wanted, int64_t* count, void* into) {
  const auto all = static_cast<int64_t>(values.size());
  const int64_t written = into ? std::min(wanted, all) : all;
  if (into) std::memcpy(into, values.data(), static_cast<size_t>(written) * sizeof(T));
  if (count) *count = into ? written : all;
  return kFine;
}

// Into descriptors of the right type that the program has made.
cudnnStatus_t give_nodes(const Node& from, cudnnBackendDescriptorType_t type, const std::vector<int>& engines,
                         int64_t wanted, int64_t* count, void* into) {
  if (!into) {
    if (count) *count = static_cast<int64_t>(engines.size());
    return kFine;
  }
  auto* descriptors = static_cast<cudnnBackendDescriptor_t*>(into);
  const int64_t written = std::min(wanted, static_cast<int64_t>(engines.size()));
  for (int64_t i = 0; i < written; ++i) {
    const std::shared_ptr<Node> node = find_node(descriptors[i]);
    if (!node || node->type != type) return refuse(kBad, "the place for a result is not a descriptor of its type");
    node->finalized = true, node->take_problem(from), node->engine = engines[static_cast<size_t>(i)];
  }
  if (count) *count = written;
  return kFine;
}

}  // namespace

bool is_known_type(cudnnBackendDescriptorType_t type) {
  return std::any_of(std::begin(kAttributes), std::end(kAttributes),
                     [&](const Attribute& one) { return one.descriptor == type; });
}

cudnnStatus_t set_attribute(Node& node, int name, cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  const Attribute* attribute = find_attribute(node, name);
  if (node.finalized || !attribute || !attribute->given || !from)
    return refuse(kBad, "not an attribute to be set in this descriptor now, or null");
  if (!may_be(*attribute, type)) return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
  if (count < 1 || count > attribute->most) return refuse(kBad, "another number of elements");
  std::vector<std::byte> bytes(static_cast<size_t>(count) * bytes_of(type));
  std::memcpy(bytes.data(), from, bytes.size());
  if (type == CUDNN_TYPE_FLOAT) {
    float narrow = 0;
    std::memcpy(&narrow, from, sizeof narrow);
    const auto wide = static_cast<double>(narrow);
    bytes.resize(sizeof wide);
    std::memcpy(bytes.data(), &wide, sizeof wide);
  }
  if (type == kHandle) {
    cudnnHandle_t handle = nullptr;
    std::memcpy(&handle, from, sizeof handle);
    if (!find(handle)) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "not a live handle");
  }
  if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
    for (int64_t i = 0; i < count; ++i) {
      const std::shared_ptr<Node> operation = find_node(static_cast<const cudnnBackendDescriptor_t*>(from)[i]);
      if (!operation || !operation->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation is not finalized");
    }
  node.values[name] = std::move(bytes);
  return kFine;
}

cudnnStatus_t get_attribute(Node& node, int name, cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                            void* into) {
  if (!node.finalized) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
  const Attribute* attribute = find_attribute(node, name);
  if (!attribute) return refuse(kBad, "not an attribute of this descriptor");
  if (!may_be(*attribute, type)) return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
  if (wanted < 0) return refuse(kBad, "a negative number of elements");
  const Engine* engine = find_engine(node.engine);
  const auto workspace = [&] {
    if (node.layer) return std::vector{static_cast<int64_t>(node.layer->workspace())};
    const size_t bytes = node.formula ? attention_workspace(*node.formula) : engine_workspace(*engine, node.problem);
    return std::vector{static_cast<int64_t>(bytes)};
  };
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) return give_nodes(node, kConfiguration, node.engines, wanted, count, into);
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) return give_nodes(node, kEngine, {node.engine}, wanted, count, into);
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) return give<int64_t>({node.engine}, wanted, count, into);
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) return give(engine->notes, wanted, count, into);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)
    return give(workspace(), wanted, count, into);
  const auto found = node.values.find(name);
  if (found == node.values.end()) return refuse(kBad, "the attribute has not been set");
  const size_t size = bytes_of(attribute->type);
  const auto all = static_cast<int64_t>(found->second.size() / size);
  const int64_t written = into ? std::min(wanted, all) : all;
  if (into) std::memcpy(into, found->second.data(), static_cast<size_t>(written) * size);
  if (count) *count = written;
  return kFine;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
