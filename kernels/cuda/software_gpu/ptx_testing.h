// Kernels written in PTX, run through the runtime of the software GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/images.h"

namespace halfmark::kernels::software_gpu {

inline constexpr uint64_t kTestMemory = uint64_t{1} << 28;

// Each test starts with fresh devices.
class SoftwareGpu : public testing::Test {
 protected:
  void SetUp() override { start({90}); }
  void TearDown() override {
    fail_no_call();
    set_devices({90}, kTestMemory);
  }
  static void start(const std::vector<int>& architectures) { set_devices(architectures, kTestMemory); }
};

// A module of one kernel, "k": parameters `out` and `in` (addresses, in %rd0 and %rd1) and the number in %r0; %r1 is the
// thread's number in the grid. `shared`: bytes of the array `tile`.
inline std::string module_of_body(const std::string& body, const std::string& target = "sm_75", int shared = 0) {
  std::string text = ".version 9.0\n.target " + target +
                     "\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 number)\n{\n"
                     ".reg .pred %p<16>;\n.reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .f32 %f<32>;\n"
                     ".reg .b64 %rd<32>;\n.reg .f64 %d<32>;\n";
  if (shared) text += ".shared .align 16 .b8 tile[" + std::to_string(shared) + "];\n";
  text +=
      "ld.param.u64 %rd0, [out];\nld.param.u64 %rd1, [in];\nld.param.u32 %r0, [number];\n"
      "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.s32 %r1, %r2, %r3, %r4;\n";
  return text + body + "\nret;\n}\n";
}

// Device memory with these bytes.
template <class T>
T* on_device(const std::vector<T>& values) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return static_cast<T*>(memory);
}
template <class T>
std::vector<T> from_device(const T* memory, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess)
      << cudaGetErrorString(cudaPeekAtLastError());
  return values;
}

struct KernelRun {
  cudaError_t launch = cudaSuccess, wait = cudaSuccess;
  std::string text;  // of the error
  cudaError_t status() const { return launch != cudaSuccess ? launch : wait; }
};

// Runs "k" and waits.
inline KernelRun run_kernel(const std::string& module, const void* out, const void* in, uint32_t number, dim3 grid,
                            dim3 block, size_t shared = 0) {
  const void* kernel = kernel_handle(register_ptx({module}), "k");
  void* arguments[] = {&out, &in, &number};
  KernelRun run;
  run.launch = cudaLaunchKernel(kernel, grid, block, arguments, shared, nullptr);
  if (run.launch == cudaSuccess) run.wait = cudaDeviceSynchronize();
  if (run.status() != cudaSuccess) run.text = cudaGetErrorString(run.status());
  return run;
}

inline void expect_fault(const KernelRun& run, cudaError_t code, const std::string& words) {
  EXPECT_EQ(run.wait, code) << run.text;
  EXPECT_NE(run.text.find(words), std::string::npos) << run.text;
}

}  // namespace halfmark::kernels::software_gpu
