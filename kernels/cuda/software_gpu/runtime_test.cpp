// Streams, events, memory, devices, images, injected failures.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"
#include "kernels/cuda/software_gpu/streams.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

class Runtime : public SoftwareGpu {};

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  return stream;
}

TEST_F(Runtime, WorkIsDoneWhenSomethingWaitsForIt) {
  const cudaStream_t first = new_stream(), second = new_stream();
  std::string order;
  enqueue(first, [&] { order += "a"; });
  enqueue(second, [&] { order += "b"; });
  enqueue(first, [&] { order += "c"; });
  EXPECT_EQ(order, "");
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(order, "b");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(order, "bac");
}

// The answer is that of the time before the work which is done between two questions.
TEST_F(Runtime, AStreamGoesOnWhileItIsAsked) {
  const cudaStream_t stream = new_stream();
  std::string order;
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  enqueue(stream, [&] { order += "a"; });
  enqueue(stream, [&] { order += "b"; });
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(order, "a");
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  enqueue(stream, [] { throw Fault(cudaErrorIllegalAddress, "no address"); });
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
}

TEST_F(Runtime, WorkThatWaitsStaysEnqueuedAndIsNotWaitedForForEver) {
  const cudaStream_t stream = new_stream();
  std::string order;
  bool waits = true;
  enqueue(stream, [&] {
    if (waits) throw StillWaits("for another device");
    order += "a";
  });
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(order, "");
  waits = false;
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(order, "a");
  waits = true;
  enqueue(stream, [&] {
    if (waits) throw StillWaits("for another device");
  });
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchTimeout);
}

TEST_F(Runtime, EventsOrderStreams) {
  const cudaStream_t first = new_stream(), second = new_stream();
  cudaEvent_t event = nullptr, start = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  std::string order;
  EXPECT_EQ(cudaEventRecord(start, first), cudaSuccess);
  enqueue(first, [&] { order += "a"; });
  EXPECT_EQ(cudaEventRecord(event, first), cudaSuccess);
  enqueue(first, [&] { order += "x"; });
  EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  enqueue(second, [&] { order += "b"; });
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, event), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, first), cudaErrorInvalidResourceHandle);
}

TEST_F(Runtime, TheDefaultStreamAndBlockingStreamsWaitForEachOther) {
  const cudaStream_t blocking = new_stream(cudaStreamDefault), free = new_stream();
  std::string order;
  enqueue(nullptr, [&] { order += "a"; });
  enqueue(blocking, [&] { order += "b"; });
  enqueue(free, [&] { order += "f"; });
  enqueue(nullptr, [&] { order += "c"; });
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(order, "abc");
}

TEST_F(Runtime, CapturedWorkRunsWhenItsGraphIsLaunched) {
  const cudaStream_t stream = new_stream();
  std::string order;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  enqueue(stream, [&] { order += "a"; });
  enqueue(stream, [&] { order += "b"; });
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(order, "") << "a capture runs nothing";
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  enqueue(stream, [&] { order += "x"; });
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(order, "");
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(order, "abxab");
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
}

TEST_F(Runtime, NodesOfAGraphHaveTheTypeOfTheirWork) {
  const cudaStream_t stream = new_stream();
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 64, stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(memory, static_cast<std::byte*>(memory) + 32, 32, cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  enqueue(stream, [] {});
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  size_t count = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  ASSERT_EQ(count, 3u) << "an event is no node";
  cudaGraphNode_t nodes[3] = {};
  ASSERT_EQ(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
  std::vector<cudaGraphNodeType> types(3);
  for (size_t n = 0; n < 3; ++n) EXPECT_EQ(cudaGraphNodeGetType(nodes[n], &types[n]), cudaSuccess);
  EXPECT_EQ(types, (std::vector{cudaGraphNodeTypeMemset, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeKernel}));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphNodeGetType(nodes[0], &types[0]), cudaErrorInvalidValue);
}

TEST_F(Runtime, ACaptureThatIsWaitedForGivesNoGraph) {
  const auto waits = {+[](cudaStream_t stream) { return cudaStreamSynchronize(stream); },
                      +[](cudaStream_t stream) { return cudaStreamQuery(stream); },
                      +[](cudaStream_t) { return cudaDeviceSynchronize(); }};
  for (const auto wait : waits) {
    const cudaStream_t stream = new_stream();
    std::string order;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    enqueue(stream, [&] { order += "a"; });
    EXPECT_EQ(wait(stream), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(order, "");
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(new_stream(), &graph), cudaErrorIllegalState);
}

TEST_F(Runtime, CopiesAreCheckedAndStageTheirSource) {
  std::vector<uint32_t> host{1, 2, 3, 4}, back(4);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory, host.data(), 16, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  host[0] = 9;  // pageable memory has been read
  ASSERT_EQ(cudaMemcpyAsync(back.data(), memory, 16, cudaMemcpyDeviceToHost, nullptr), cudaSuccess);
  EXPECT_EQ(back[0], 0u) << "nothing has waited";
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(back[0], 1u);
  EXPECT_EQ(cudaMemcpy(memory, host.data(), 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory, host.data(), 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), back.data(), 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(memory, 0, 17), cudaErrorInvalidValue);
}

TEST_F(Runtime, BytesThatNothingWroteDoNotReachTheHost) {
  void *memory = nullptr, *copy = nullptr;
  uint32_t back = 0;
  ASSERT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&copy, 8), cudaSuccess);
  ASSERT_EQ(cudaMemset(memory, 1, 4), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(copy, memory, 8, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&back, copy, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(back, 0x01010101u);
  EXPECT_EQ(cudaMemcpy(&back, static_cast<std::byte*>(copy) + 4, 4, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
}

TEST_F(Runtime, MemoryIsLimitedAndCounted) {
  size_t available = 0, total = 0;
  void *memory = nullptr, *more = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, kTestMemory / 2), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(total, kTestMemory);
  EXPECT_EQ(available, kTestMemory / 2);
  EXPECT_EQ(cudaMalloc(&more, kTestMemory / 2 + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(static_cast<std::byte*>(memory) + 256), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorInvalidValue)).find("freed a second time"), std::string::npos);
  EXPECT_EQ(cudaMalloc(&more, kTestMemory), cudaSuccess);
}

TEST_F(Runtime, ChecksAccessForLibraries) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  EXPECT_EQ(bytes_at(static_cast<std::byte*>(memory) + 60), 4u);
  EXPECT_EQ(bytes_at(static_cast<std::byte*>(memory) + 64), 0u);
  enqueue(nullptr, [=] { check_access(memory, 32, Access::write)[31] = std::byte{7}; });
  enqueue(nullptr, [=] { EXPECT_EQ(check_access(memory, 32, Access::read)[31], std::byte{7}); });
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  enqueue(nullptr, [=] { check_access(memory, 33, Access::read); });
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  SetUp();
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  enqueue(nullptr, [=] { check_access(memory, 65, Access::write); });
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST_F(Runtime, SeveralDevicesAreApart) {
  start({90, 75});
  int count = 0, major = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1), cudaSuccess);
  EXPECT_EQ(major, 7);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaDeviceProp properties{};
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "software GPU (sm_75), not a GPU");
  // Memory of the first, read by a kernel on the second.
  uint32_t* first = on_device(std::vector<uint32_t>(32));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  expect_fault(run_kernel(module_of_body("ld.global.u32 %r20, [%rd1];"), nullptr, first, 0, dim3(1), dim3(1)),
               cudaErrorIllegalAddress, "memory of device 0");
  // The fault is the second's alone.
  EXPECT_EQ(cudaSetDevice(1), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(from_device(first, 1)[0], 0u);
}

TEST_F(Runtime, ADeviceTakesTheNewestPtxThatItRuns) {
  const auto image = [](const char* target, int number) {
    return module_of_body("st.global.u32 [%rd0], " + std::to_string(number) + ";", target);
  };
  const struct {
    int gpu;
    std::vector<std::pair<const char*, int>> images;
    int taken;  // 0: none
  } rows[] = {
      {90, {{"sm_75", 1}, {"sm_80", 2}, {"sm_90a", 3}, {"sm_100a", 4}}, 3},
      {100, {{"sm_75", 1}, {"sm_90a", 3}, {"sm_120a", 4}}, 1},
      {121, {{"sm_75", 1}, {"sm_120f", 2}, {"sm_120a", 3}}, 2},
      {121, {{"sm_120a", 3}}, 0},
      {120, {{"sm_120f", 2}, {"sm_120a", 3}, {"sm_120", 1}}, 3},
      {75, {{"sm_80", 1}}, 0},
      {89, {{"sm_80", 1}, {"sm_75", 2}, {"sm_90", 3}}, 1},
  };
  for (const auto& row : rows) {
    start({row.gpu});
    uint32_t* out = on_device(std::vector<uint32_t>(1));
    const void* in = nullptr;
    uint32_t number = 0;
    std::vector<std::string> texts;
    for (const auto& [target, value] : row.images) texts.push_back(image(target, value));
    void* arguments[] = {&out, &in, &number};
    const cudaError_t status =
        cudaLaunchKernel(kernel_handle(register_ptx(texts), "k"), dim3(1), dim3(1), arguments, 0, nullptr);
    EXPECT_EQ(status, row.taken ? cudaSuccess : cudaErrorNoKernelImageForDevice) << row.gpu;
    if (row.taken) {
      EXPECT_EQ(from_device(out, 1)[0], static_cast<uint32_t>(row.taken)) << row.gpu;
    }
  }
}

TEST_F(Runtime, TheNthCallFailsIfATestAsksForIt) {
  void* memory = nullptr;
  fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorMemoryAllocation);
  EXPECT_NE(
      std::string(cudaGetErrorString(cudaErrorMemoryAllocation)).find("cudaMalloc fails because a test asks for it"),
      std::string::npos);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  const auto calls = counted_calls();
  EXPECT_TRUE(std::any_of(calls.begin(), calls.end(),
                          [](const auto& call) { return call.first == "cudaMalloc" && call.second >= 3; }));
}

TEST(SoftwareArchitectures, AreNamed) {
  EXPECT_EQ(architectures_named("sm_90,sm_75"), (std::vector<int>{90, 75}));
  EXPECT_THROW(architectures_named("sm_91"), Error);
  EXPECT_THROW(architectures_named(""), Error);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
