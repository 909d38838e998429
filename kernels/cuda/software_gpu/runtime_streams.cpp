// Streams and events. Work is done when something waits for it, or asks whether it is done: a host that reads a result
// without waiting sees the old bytes.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ratio>

#include "kernels/cuda/software_gpu/devices.h"

namespace halfmark::kernels::software_gpu {
namespace {

// With HALFMARK_SOFTWARE_GPU_TIMES from each event to the next so many milliseconds, whatever lies between.
double now() {
  static const char* const step = std::getenv("HALFMARK_SOFTWARE_GPU_TIMES");
  static double at = 0;
  if (step) return at += std::strtod(step, nullptr);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaStream_t new_stream(bool blocking) {
  SoftwareDevice& device = working_device();
  auto made = std::make_unique<CUstream_st>();
  made->device = device.index, made->blocking = blocking;
  device.streams.insert(made.get());
  return made.release();
}

void destroy_stream(cudaStream_t handle) {
  const cudaStream_t stream = stream_of(handle);
  SoftwareDevice& device = devices()[static_cast<size_t>(stream->device)];
  if (!device.streams.contains(stream))
    throw CallError{cudaErrorInvalidResourceHandle, "the default stream cannot be destroyed"};
  // The stream's work is still done; events refer to it no longer.
  run_until(stream, stream->enqueued);
  for (SoftwareDevice& other : devices())
    for (const cudaEvent_t event : other.events)
      if (event->stream == stream) event->stream = nullptr;
  device.streams.erase(stream);
  const std::unique_ptr<CUstream_st> owner(stream);
}

cudaEvent_t event_of(cudaEvent_t handle) {
  for (SoftwareDevice& device : devices())
    if (device.events.contains(handle)) return handle;
  throw CallError{cudaErrorInvalidResourceHandle, "no such event"};
}

cudaEvent_t new_event(unsigned flags) {
  auto made = std::make_unique<CUevent_st>();
  made->device = working_device().index;
  made->timed = !(flags & cudaEventDisableTiming);
  working_device().events.insert(made.get());
  return made.release();
}

bool is_complete(const CUevent_st& event) { return !event.stream || event.stream->executed >= event.position; }

void record(cudaEvent_t handle, cudaStream_t stream_handle) {
  const cudaEvent_t event = event_of(handle);
  const cudaStream_t stream = stream_of(stream_handle);
  if (event->device != stream->device)
    throw CallError{cudaErrorInvalidResourceHandle, "event and stream are of two devices"};
  enqueue(
      stream, [event] { event->milliseconds = now(); }, NodeKind::none);
  event->stream = stream, event->position = stream->enqueued;
}

void wait_for_event(cudaStream_t stream, cudaEvent_t handle) {
  const cudaEvent_t event = event_of(handle);
  const cudaStream_t other = event->stream;
  if (!other) return;
  const uint64_t position = event->position;
  enqueue(
      stream, [=] { run_until(other, position); }, NodeKind::none);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu

using namespace halfmark::kernels::software_gpu;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return runtime_call("cudaStreamCreateWithFlags", true, [&] {
    if (flags & ~static_cast<unsigned>(cudaStreamNonBlocking))
      throw CallError{cudaErrorInvalidValue, "unknown flags of a stream"};
    *stream = new_stream(!(flags & cudaStreamNonBlocking));
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return runtime_call("cudaStreamCreate", true, [&] { *stream = new_stream(true); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return runtime_call("cudaStreamDestroy", true, [&] { destroy_stream(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return runtime_call("cudaStreamSynchronize", true, [&] {
    const cudaStream_t stream = stream_of(handle);
    run_until(stream, stream->enqueued);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return runtime_call("cudaStreamQuery", true, [&] {
    const cudaStream_t stream = stream_of(handle);
    run_until(stream, 0);  // not while it is captured
    if (stream->executed >= stream->enqueued) return;
    // A GPU goes on while the host asks again and again; here one piece of work is done after each answer.
    try {
      run_until(stream, stream->executed + 1);
    } catch (const StillWaits&) {
    }
    throw CallError{cudaErrorNotReady, "work is still to be done"};
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return runtime_call("cudaStreamWaitEvent", true, [&] { wait_for_event(stream, event); });
}
cudaError_t cudaDeviceSynchronize() {
  return runtime_call("cudaDeviceSynchronize", true, [&] { run_all(working_device()); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return runtime_call("cudaEventCreate", true, [&] { *event = new_event(0); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return runtime_call("cudaEventCreateWithFlags", true, [&] { *event = new_event(flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return runtime_call("cudaEventDestroy", true, [&] {
    const std::unique_ptr<CUevent_st> owner(event_of(handle));
    if (handle->stream && !is_complete(*handle)) run_until(handle->stream, handle->position);
    for (SoftwareDevice& device : devices()) device.events.erase(handle);
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return runtime_call("cudaEventRecord", true, [&] { record(event, stream); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return runtime_call("cudaEventSynchronize", true, [&] {
    const cudaEvent_t event = event_of(handle);
    if (event->stream) run_until(event->stream, event->position);
  });
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return runtime_call("cudaEventQuery", true, [&] {
    if (!is_complete(*event_of(handle)))
      throw CallError{cudaErrorNotReady, "work before the event is still to be done"};
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  return runtime_call("cudaEventElapsedTime", true, [&] {
    for (const cudaEvent_t handle : {first, second}) {
      const cudaEvent_t event = event_of(handle);
      if (!event->timed || event->position == 0)
        throw CallError{cudaErrorInvalidResourceHandle, "an event that was not recorded or does not measure time"};
      if (!is_complete(*event)) throw CallError{cudaErrorNotReady, "an event that nothing has waited for"};
    }
    *milliseconds = static_cast<float>(second->milliseconds - first->milliseconds);
  });
}

}  // extern "C"
