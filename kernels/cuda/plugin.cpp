// The plugin's entry point: present devices, absent ones with the reason, and the versions of the loaded libraries.
#include "kernels/plugin.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/all_reduce.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/hardware.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr std::string_view kPrefix = "cuda:";

// Only queries that make no context.
DeviceRow row_of(int index) {
  DeviceRow row{std::string(kPrefix) + std::to_string(index), "NVIDIA GPU", ""};
  cudaDeviceProp properties;
  int mode = cudaComputeModeDefault;
  cudaError_t status = cudaGetDeviceProperties(&properties, index);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    row.absent = std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
    return row;
  }
  row.about = properties.name;
  if (mode == cudaComputeModeProhibited) row.absent = "its compute mode is prohibited: nvidia-smi --compute-mode=0";
  return row;
}

std::vector<DeviceRow> list() {
  int count = 0;  // not written if the call fails
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    return {{std::string(kPrefix) + "0", "NVIDIA GPU", absence(status, driver)}};
  }
  std::vector<DeviceRow> rows;
  for (int i = 0; i < count; ++i) rows.push_back(row_of(i));
  return rows;
}

std::unique_ptr<Device> open(const std::string& name) {
  return std::make_unique<CudaDevice>(std::stoi(name.substr(kPrefix.size())));
}

std::unique_ptr<AllReduceGroup> all_reduce_group(std::span<Device* const> devices) {
  std::vector<CudaDevice*> gpus;
  for (Device* device : devices) gpus.push_back(static_cast<CudaDevice*>(device));
  return std::make_unique<NcclGroup>(std::move(gpus), NcclLibrary(nccl_function));
}

constexpr Plugin kPlugin{HALFMARK_STAMP, list, open, library_versions, all_reduce_group};

}  // namespace
}  // namespace halfmark::kernels::cuda

extern "C" __attribute__((visibility("default"))) const halfmark::kernels::Plugin* halfmark_plugin() {
  return &halfmark::kernels::cuda::kPlugin;
}
