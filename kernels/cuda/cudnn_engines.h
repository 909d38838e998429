// The engines of cuDNN that may compute a graph. The heuristics list them, each with numerical notes; those whose notes
// say that they compute otherwise than Math are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_backend.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels::cuda {

enum class TensorCores : uint8_t {
  allowed,  // operands are in a half type: products are exact
  needed,   // TF32
  excluded  // FP32: tensor cores would round operands to TF32
};

// What an engine with these notes would compute otherwise; empty: nothing. Winograd and FFT transform the operands first
// and lose digits there; other engines convert operands down, keep partial sums in a narrow format or add in a random
// order. A note that is not known here counts as one of these.
std::string unwanted_note(TensorCores tensor_cores, std::span<const cudnnBackendNumericalNote_t> notes);

cudnnDataType_t cudnn_type(DType dtype);  // of f64, f32, f16 and bf16; else throws Error

// What plans are for: the GPU of a handle, or one that is only described (from cuDNN 9.8 on; tests without a GPU).
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;  // instead of a handle
};

struct CudnnGraph {
  std::vector<CudnnDescriptor> parts, operations;  // which the graph refers to
  CudnnDescriptor graph;
};
CudnnDescriptor cudnn_graph(const CudnnTarget& target, std::span<const CudnnDescriptor> operations);

// The engines that the heuristics list, each as a configuration, and their notes.
std::vector<CudnnDescriptor> cudnn_configurations(const CudnnTarget& target, const CudnnDescriptor& graph,
                                                  cudnnBackendHeurMode_t mode);
std::vector<CudnnDescriptor> engines_of(const CudnnDescriptor& configuration);  // one, or none
std::vector<cudnnBackendNumericalNote_t> notes_of(const CudnnDescriptor& engine);

struct CudnnCandidate {
  CudnnDescriptor configuration, plan;
  size_t workspace = 0;
  int64_t engine = 0;
  bool tensor_cores = false;
  int place = 0;  // in the library's order, from 1
};
struct CudnnCandidates {
  std::vector<CudnnCandidate> found;  // that keep to Math, in the library's order, eight at most
  int listed = 0;
  std::string refusal;  // why the last one was left out
  std::string failed;   // plans that failed for a reason other than that they are not supported: "; another ..."
};
// With the fallback engines, because the heuristics name few engines for some graphs. `most_workspace`: bytes.
CudnnCandidates cudnn_candidates(const CudnnTarget& target, const CudnnDescriptor& graph, TensorCores tensor_cores,
                                 size_t most_workspace);

// Pointers of tensors by their ids; of a scalar that is passed by value, its place on the host.
struct CudnnOperands {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  void add(int64_t id, const void* pointer) { ids.push_back(id), pointers.push_back(const_cast<void*>(pointer)); }
};
cudnnStatus_t execute_plan(cudnnHandle_t handle, const CudnnDescriptor& plan, const CudnnOperands& operands,
                           void* workspace);

}  // namespace halfmark::kernels::cuda
