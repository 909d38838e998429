// What the descriptors of cuDNN's graph API hold in the stand-in, and which attributes they have.
//
// Statuses are those that cuDNN 9.19 gives (seen without a GPU; real_libraries_test.cpp compares them). Where it does not
// check and would crash, the stand-in refuses.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_engines.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_layers.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"

namespace halfmark::kernels::software_gpu::cudnn {

struct Node {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, std::vector<std::byte>> values;  // by attribute, as set

  // Of finalized descriptors, copied from those that they were made of.
  Problem problem;                // operation, graph, and what is made of them
  std::array<int64_t, 3> uids{};  // of x, w, y
  std::array<int64_t, 3> alignments{};
  double alpha = 1, beta = 0;
  std::shared_ptr<const FormulaStep> step;  // of an operation other than a convolution
  std::shared_ptr<const Formula> formula;   // of a graph of such operations
  std::shared_ptr<const Layer> layer;       // of a norm or pooling, and of a graph of one
  int architecture = 0;                     // of the device that engines are listed for
  std::vector<int> engines;                 // of a heuristic
  int engine = -1;                          // of a configuration, an engine, a plan

  void take_problem(const Node& from) {
    problem = from.problem, uids = from.uids, alignments = from.alignments, alpha = from.alpha, beta = from.beta;
    formula = from.formula, layer = from.layer, architecture = from.architecture, engine = from.engine;
  }

  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> result(found->second.size() / sizeof(T));
    std::memcpy(result.data(), found->second.data(), result.size() * sizeof(T));
    return result;
  }
  template <class T>
  T one(int attribute, T otherwise) const {
    const auto found = values.find(attribute);
    if (found == values.end() || found->second.size() < sizeof(T)) return otherwise;
    T result;
    std::memcpy(&result, found->second.data(), sizeof result);
    return result;
  }
};
std::shared_ptr<Node> find_node(cudnnBackendDescriptor_t descriptor);  // null: not a live one
// One of these types that has been finalized, else null.
std::shared_ptr<Node> finalized_node(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type);

cudnnStatus_t set_attribute(Node& node, int attribute, cudnnBackendAttributeType_t type, int64_t count,
                            const void* from);
cudnnStatus_t get_attribute(Node& node, int attribute, cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                            void* into);
cudnnStatus_t finalize(Node& node);
bool is_known_type(cudnnBackendDescriptorType_t type);

// Of formulas.
constexpr int kNanPropagation = 2;  // an attribute of pointwise operations whose name the header marks as deprecated
bool is_formula_operation(cudnnBackendDescriptorType_t type);
bool is_formula_part(cudnnBackendDescriptorType_t type);  // how an operation computes: everything has a default
cudnnStatus_t make_step(const Node& operation, FormulaStep& step);
cudnnStatus_t tensor_of(const Node& operation, int attribute, FormulaTensor& tensor);

// Of norms and pooling.
bool is_layer(cudnnBackendDescriptorType_t type);
cudnnStatus_t make_layer(const Node& operation, std::shared_ptr<const Layer>& layer);
cudnnStatus_t make_norm(const Node& operation, std::shared_ptr<const Layer>& layer);
cudnnStatus_t make_pool(const Node& operation, std::shared_ptr<const Layer>& layer);
cudnnStatus_t check_resample(const Node& resample);  // finalising CUDNN_BACKEND_RESAMPLE_DESCRIPTOR

}  // namespace halfmark::kernels::software_gpu::cudnn
