// Norms and pooling in the stand-in of cuDNN: graphs of one operation. They are computed by their definitions in fp64, and
// each result is rounded once, to the type of its tensor.
//
// Sources: backend API reference of cuDNN 9, "CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR", "..._NORM_BACKWARD_...",
// "CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR", "..._BWD_...". What finalising checks was seen without a GPU
// (cuDNN 9.19; real_layers_test.cpp compares it), and so was what has engines, for devices that are only described
// (../../described_gpus compares it). Not documented, and chosen here: the running variance is unbiased, and of several NaN
// in a window the last one has the index. Stricter than cuDNN: an operation whose result nothing could read is refused, as
// batch norm without the running statistics that its momentum is for.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"

namespace halfmark::kernels::software_gpu::cudnn {

class Layer {
 public:
  virtual ~Layer() = default;
  virtual cudnnStatus_t check_graph() const = 0;           // what finalising a graph of it checks
  virtual std::vector<FormulaTensor> tensors() const = 0;  // each with memory or a value once
  virtual std::vector<int> engines(int architecture, cudnnBackendHeurMode_t mode) const = 0;
  virtual size_t workspace() const { return 0; }  // bytes
  // As enqueued work; throws Fault. `pointers`: of tensors(), by id.
  virtual void compute(const std::map<int64_t, void*>& pointers) const = 0;
};

// The values of an operand in the order of the axes, and the result of a tensor.
using LayerValues = std::vector<double>;
inline LayerValues layer_operand(const FormulaTensor& tensor, const std::map<int64_t, void*>& pointers) {
  return read_tensor(tensor, pointers.at(tensor.id));
}
inline void layer_result(const FormulaTensor& tensor, const std::map<int64_t, void*>& pointers,
                         const LayerValues& values) {
  write_tensor(tensor, pointers.at(tensor.id), values);
}

}  // namespace halfmark::kernels::software_gpu::cudnn
