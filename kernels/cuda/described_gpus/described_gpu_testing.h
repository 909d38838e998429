// GPUs that are not there, described to cuDNN (from 9.8 on), whose heuristics then list engines for them.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_engines.h"
#include "kernels/devices.h"

namespace halfmark::kernels::cuda {

struct DescribedGpu {
  int capability;  // 900 for 9.0
  const char* name;
  int multiprocessors, shared_memory;
};
inline constexpr DescribedGpu kDescribedGpus[] = {{750, "Tesla T4", 40, 65536},
                                                  {800, "NVIDIA A100-SXM4-80GB", 108, 166912},
                                                  {900, "NVIDIA H100 80GB HBM3", 132, 232448},
                                                  {1000, "NVIDIA B200", 148, 232448},
                                                  {1200, "NVIDIA GeForce RTX 5090", 170, 101376}};

// The names are those that cuDNN 9.19 asks for.
inline std::string json_of(const DescribedGpu& gpu) {
  return "{\"deviceVer\":" + std::to_string(gpu.capability) + ",\"deviceName\":\"" + gpu.name +
         "\",\"multiProcessorCount\":" + std::to_string(gpu.multiprocessors) +
         ",\"maxSharedMemoryPerBlockOptin\":" + std::to_string(gpu.shared_memory) +
         ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
         "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"
         "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
         "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1900000,"
         "\"memClockRateKHz\":2600000,\"l2CacheSize\":50000000,\"totalGlobalMem\":80000000000,\"driverVer\":13000,"
         "\"cudaDeviceId\":0}";
}

// How many engines have no unwanted note, and how many have one.
inline std::pair<size_t, size_t> usable_engines(const CudnnTarget& target, const CudnnGraph& graph,
                                                TensorCores tensor_cores) {
  std::pair<size_t, size_t> counts{0, 0};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const CudnnDescriptor& one : cudnn_configurations(target, graph.graph, mode))
      for (const CudnnDescriptor& engine : engines_of(one))
        ++(unwanted_note(tensor_cores, notes_of(engine)).empty() ? counts.first : counts.second);
  return counts;
}

class SlowDescribedGpus : public testing::Test {
 protected:
  void SetUp() override {
    // On a machine with an H200 cuDNN 9.19 ends the process in such a look-up. There the rows ask it about the GPU itself.
    for (const DeviceRow& row : known_devices())
      if (row.name.starts_with("cuda:") && row.absent.empty())
        GTEST_SKIP() << "cuDNN is asked about GPUs that are described only where there is no GPU";
    if (!properties_of(kDescribedGpus[0])) GTEST_SKIP() << "this cuDNN does not know devices that are only described";
    // Some engines compile code and load it; NVIDIA's stub of the driver's library has the functions, which fail.
    static constexpr std::string_view kStub = HALFMARK_CUDA_STUB;  // of an empty name dlopen() gives the program itself
    static const bool has_stub = !kStub.empty() && dlopen(HALFMARK_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL) != nullptr;
    has_stub_ = has_stub;
  }
  bool has_stub() const { return has_stub_; }

  static std::optional<CudnnDescriptor> properties_of(const DescribedGpu& gpu) {
    const std::string json = json_of(gpu);
    std::vector<char> text(json.begin(), json.end());
    text.push_back(0);
    try {
      CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(text));
      properties.finalize();
      return properties;
    } catch (const Error&) {
      return {};
    }
  }

 private:
  bool has_stub_ = false;
};

}  // namespace halfmark::kernels::cuda
