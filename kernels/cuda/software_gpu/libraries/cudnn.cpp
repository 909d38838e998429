// cuDNN's handles, versions and texts.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/cuda/software_gpu/libraries/cudnn_objects.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

Handles<cudnnHandle_t, Handle> cudnn_handles;

struct StatusName {
  cudnnStatus_t status;
  const char* text;
};
#define HM_STATUS(name) \
  StatusName { name, #name }
constexpr StatusName kStatusNames[] = {
    HM_STATUS(CUDNN_STATUS_SUCCESS),
    HM_STATUS(CUDNN_STATUS_NOT_INITIALIZED),
    HM_STATUS(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH),
    HM_STATUS(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED),
    HM_STATUS(CUDNN_STATUS_BAD_PARAM),
    HM_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
    HM_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER),
    HM_STATUS(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT),
    HM_STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH),
    HM_STATUS(CUDNN_STATUS_NOT_SUPPORTED),
    HM_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE),
    HM_STATUS(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE),
    HM_STATUS(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT),
    HM_STATUS(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH),
    HM_STATUS(CUDNN_STATUS_INTERNAL_ERROR),
    HM_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
    HM_STATUS(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
    HM_STATUS(CUDNN_STATUS_EXECUTION_FAILED),
    HM_STATUS(CUDNN_STATUS_EXECUTION_FAILED_CUDART),
};
#undef HM_STATUS

}  // namespace

std::optional<Handle> find(cudnnHandle_t handle) { return cudnn_handles.find(handle); }

}  // namespace halfmark::kernels::software_gpu::cudnn

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cudnn;

#define HM_CALLED(name)                                                                                           \
  if (const auto failure = called(name)) return refuse(static_cast<cudnnStatus_t>(*failure), "injected failure"); \
  if (planted(name)) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "planted failure")

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  HM_CALLED("cudnnGetProperty");
  if (!value || (type != MAJOR_VERSION && type != MINOR_VERSION && type != PATCH_LEVEL))
    return refuse(kBad, "no such property, or no place for it");
  *value = type == MAJOR_VERSION ? CUDNN_MAJOR : type == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return kFine;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  for (const StatusName& row : kStatusNames)
    if (row.status == status) return row.text;
  return "CUDNN_UNKNOWN_STATUS";
}

// The text of the thread's last refusal, once.
void cudnnGetLastErrorString(char* message, size_t size) {
  if (!message || size == 0) return;
  const std::string text = take_last_error();
  const size_t length = std::min(size - 1, text.size());
  std::memcpy(message, text.data(), length);
  message[length] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  HM_CALLED("cudnnCreate");
  if (!handle) return refuse(kBad, "the place for the handle is null");
  *handle = cudnn_handles.create({current_device(), nullptr});
  return kFine;
}
// Null is accepted, as by the real library.
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  HM_CALLED("cudnnDestroy");
  return !handle || cudnn_handles.destroy(handle) ? kFine : refuse(kBad, "not a live handle");
}
// API reference: "the stream must be on the device of the handle".
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  HM_CALLED("cudnnSetStream");
  auto found = find(handle);
  if (!found) return refuse(kBad, "not a live handle");
  if (stream && device_of(stream) != found->device) return refuse(kBad, "a stream of another device");
  found->stream = stream;
  cudnn_handles.replace(handle, *found);
  return kFine;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  HM_CALLED("cudnnGetStream");
  const auto found = find(handle);
  if (!found || !stream) return refuse(kBad, "not a live handle, or no place for the stream");
  *stream = found->stream;
  return kFine;
}

}  // extern "C"
