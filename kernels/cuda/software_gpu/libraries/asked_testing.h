// Calls of cuDNN's graph API, to NVIDIA's library or to the stand-in, whose answers are kept.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/real_library_testing.h"

namespace halfmark::kernels::software_gpu {

using Node = cudnnBackendDescriptor_t;

// Each call's status is an answer.
class Asked {
 public:
  explicit Asked(const Library& library) : library_(library) {}
  Answers answers;

  void note(auto value) { answers.push_back(static_cast<int64_t>(value)); }
  Node make(cudnnBackendDescriptorType_t type) {
    Node node = nullptr;
    note(HM_FUNCTION(library_, cudnnBackendCreateDescriptor)(type, &node));
    return node;
  }
  template <class T>
  void set(Node node, int name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    set(node, name, type, static_cast<int64_t>(values.size()), values.data());
  }
  void set(Node node, int name, cudnnBackendAttributeType_t type, int64_t count, const void* from) {
    note(HM_FUNCTION(library_, cudnnBackendSetAttribute)(node, static_cast<cudnnBackendAttributeName_t>(name), type,
                                                         count, from));
  }
  void numbers(Node node, int name, const std::vector<int64_t>& values) { set(node, name, CUDNN_TYPE_INT64, values); }
  void part(Node node, int name, Node other) { set(node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{other}); }
  Node finalized(Node node) {
    note(HM_FUNCTION(library_, cudnnBackendFinalize)(node));
    return node;
  }
  void get(Node node, int name, cudnnBackendAttributeType_t type, int64_t wanted) {
    std::vector<int64_t> values(16);
    int64_t count = -1;
    const cudnnStatus_t status = HM_FUNCTION(library_, cudnnBackendGetAttribute)(
        node, static_cast<cudnnBackendAttributeName_t>(name), type, wanted, &count, values.data());
    note(status);
    if (status != CUDNN_STATUS_SUCCESS) return;
    note(count);
    for (const int64_t value : values) note(value);
  }
  void destroy(Node node) { note(HM_FUNCTION(library_, cudnnBackendDestroyDescriptor)(node)); }

 private:
  const Library& library_;
};

}  // namespace halfmark::kernels::software_gpu
