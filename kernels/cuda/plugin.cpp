// The plugin's entry point: present devices, absent ones with the reason, and the versions of the loaded libraries.
#include "kernels/plugin.h"

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_device.h"

namespace halfmark::kernels::cuda {
namespace {

void find(std::vector<std::unique_ptr<Device>>& devices, std::vector<std::string>& absent) {
  int count = 0;  // not written if the call fails
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    absent.push_back(absence(status, driver));
    return;
  }
  for (int i = 0; i < count; ++i) {
    try {
      devices.push_back(std::make_unique<CudaDevice>(i));
    } catch (const std::exception& error) {
      absent.push_back("cuda:" + std::to_string(i) + ": " + error.what());
    }
  }
}

constexpr Plugin kPlugin{HALFMARK_STAMP, find, library_versions};

}  // namespace
}  // namespace halfmark::kernels::cuda

extern "C" __attribute__((visibility("default"))) const halfmark::kernels::Plugin* halfmark_plugin() {
  return &halfmark::kernels::cuda::kPlugin;
}
