#include "kernels/cuda/cudnn_pool_graph.h"

#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

CudnnDescriptor pool_image(const PoolProblem& p, int64_t id, const CudnnExtents& extents, cudnnDataType_t type) {
  return describe({.id = id, .type = type, .extents = extents, .strides = packed_strides(extents, p.last)});
}

CudnnDescriptor resample(const PoolProblem& p) {
  const Window& window = p.window;
  CudnnDescriptor made(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
  // Padding counts as zeros in an average, and never wins a maximum.
  made.set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE,
           p.average ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING : CUDNN_RESAMPLE_MAXPOOL);
  made.set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, p.average ? CUDNN_ZERO_PAD : CUDNN_NEG_INF_PAD);
  made.set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
  made.set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
           p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  made.set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, {2});
  for (const int padding : {CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_ATTR_RESAMPLE_POST_PADDINGS})
    made.set(padding, {window.pad_h, window.pad_w});
  made.set(CUDNN_ATTR_RESAMPLE_STRIDES, {window.stride_h, window.stride_w});
  made.set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, {p.kernel_h, p.kernel_w});
  made.finalize();
  return made;
}

struct PoolNames {  // of the attributes of an operation
  cudnnBackendDescriptorType_t operation;
  int x, y, indices, how;
};
constexpr PoolNames kPoolForward{CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC,
                                 CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC},
    kPoolBackward{CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC,
                  CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC,
                  CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC};

}  // namespace

CudnnGraph pool_graph(const CudnnTarget& target, const PoolProblem& p) {
  const PoolNames& names = p.backward ? kPoolBackward : kPoolForward;
  std::vector<CudnnDescriptor> parts, operations;
  parts.push_back(resample(p));
  parts.push_back(pool_image(p, pool_ids::kX, p.x, cudnn_type(p.dtype)));
  parts.push_back(pool_image(p, pool_ids::kY, p.y, cudnn_type(p.dtype)));
  CudnnDescriptor operation(names.operation);
  operation.set(names.how, parts[0]), operation.set(names.x, parts[1]), operation.set(names.y, parts[2]);
  if (p.has_indices) {
    // Bytes, of which only places up to 127 are used: the same as signed and as unsigned numbers.
    parts.push_back(pool_image(p, pool_ids::kIndices, p.y, CUDNN_DATA_INT8));
    operation.set(names.indices, parts[3]);
  }
  operation.finalize();
  operations.push_back(std::move(operation));
  CudnnDescriptor graph = cudnn_graph(target, operations);
  return {std::move(parts), std::move(operations), std::move(graph)};
}

}  // namespace halfmark::kernels::cuda
