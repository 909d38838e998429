// Descriptors of cuDNN's graph API, destroyed with their owner. Every call is checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda.h"

namespace halfmark::kernels::cuda {

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    HM_CUDNN(cudnnBackendCreateDescriptor(type, &handle_));
  }
  ~CudnnDescriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  template <class T>
  void set(int name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    HM_CUDNN(cudnnBackendSetAttribute(handle_, static_cast<cudnnBackendAttributeName_t>(name), type,
                                      static_cast<int64_t>(values.size()), values.data()));
  }
  template <class T>
  void set(int name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set(int name, std::initializer_list<int64_t> values) {
    set(name, CUDNN_TYPE_INT64, std::span<const int64_t>(values.begin(), values.size()));
  }
  void set(int name, const CudnnDescriptor& part) { set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part.handle_); }
  void set(int name, std::span<const CudnnDescriptor> parts) {
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const CudnnDescriptor& part : parts) handles.push_back(part.handle_);
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::span<const cudnnBackendDescriptor_t>(handles));
  }

  void finalize() { HM_CUDNN(cudnnBackendFinalize(handle_)); }
  cudnnStatus_t try_to_finalize() { return cudnnBackendFinalize(handle_); }

  // At most `most` values.
  template <class T>
  std::vector<T> get(int name, cudnnBackendAttributeType_t type, size_t most) const {
    std::vector<T> values(most);
    int64_t count = 0;
    HM_CUDNN(cudnnBackendGetAttribute(handle_, static_cast<cudnnBackendAttributeName_t>(name), type,
                                      static_cast<int64_t>(most), &count, values.data()));
    values.resize(static_cast<size_t>(count));
    return values;
  }
  int64_t number(int name) const {
    const auto found = get<int64_t>(name, CUDNN_TYPE_INT64, 1);
    return found.empty() ? 0 : found[0];
  }
  size_t count(int name, cudnnBackendAttributeType_t type) const {
    int64_t count = 0;
    HM_CUDNN(
        cudnnBackendGetAttribute(handle_, static_cast<cudnnBackendAttributeName_t>(name), type, 0, &count, nullptr));
    return static_cast<size_t>(count);
  }
  // The library fills descriptors of this type that exist already.
  std::vector<CudnnDescriptor> parts(int name, cudnnBackendDescriptorType_t type, size_t most) const {
    std::vector<CudnnDescriptor> made;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (size_t i = 0; i < most; ++i) made.emplace_back(type), handles.push_back(made.back().handle_);
    int64_t written = 0;
    HM_CUDNN(cudnnBackendGetAttribute(handle_, static_cast<cudnnBackendAttributeName_t>(name),
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(most), &written,
                                      handles.data()));
    made.erase(made.begin() + written, made.end());
    return made;
  }
  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace halfmark::kernels::cuda
