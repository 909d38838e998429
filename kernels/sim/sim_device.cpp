#include "kernels/sim/sim_device.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "kernels/ops/batched.h"
#include "kernels/ops/norm_add.h"
#include "kernels/ops/packed_attention.h"
#include "kernels/sim/dot_rows.h"
#include "kernels/sim/tensor_core_rows.h"

namespace halfmark::kernels {

SimDevice::SimDevice(const Architecture& architecture, std::span<const TensorCore> cores)
    : architecture_(architecture), cores_(cores) {
  add_tensor_core_rows(kernels_);
  add_dot_rows(kernels_);
  const auto has = [&](const auto& which) {
    return std::ranges::any_of(
        cores_, [&](const TensorCore& core) { return core.architecture == architecture_.name && which(core); });
  };
  if (has([](const TensorCore& core) { return core.operands == Operands::fp64; })) add_fp64_rows(kernels_);
  if (has([](const TensorCore& core) { return core.scaling.block > 0 || core.operands == Operands::fp8; }))
    add_scaled_rows(kernels_);
  add_half_fma_rows(kernels_);
  add_fused_rows(kernels_), add_fused_convolution_rows(kernels_);
  add_reference_rows(kernels_);
  add_batched_rows(kernels_), add_packed_attention_rows(kernels_), add_norm_add_rows(kernels_);
}

std::vector<std::pair<std::string, std::string>> SimDevice::describe() const {
  std::vector<std::pair<std::string, std::string>> facts{{"stands_for", std::string(architecture_.about)},
                                                         {"threads", std::to_string(host_threads())}};
  for (const TensorCore& core : cores_)
    if (core.architecture == architecture_.name)
      facts.push_back({std::string(name_of(core.instruction)), text_of(core)});
  return facts;
}

std::vector<std::string> sim_device_names() {
  std::vector<std::string> names;
  for (const Architecture& architecture : architectures()) names.push_back("sim:" + std::string(architecture.name));
  return names;
}

std::shared_ptr<Device> open_sim_device(const std::string& name) {
  for (const Architecture& architecture : architectures())
    if (name == "sim:" + std::string(architecture.name)) return std::make_shared<SimDevice>(architecture);
  throw Error("no simulated device is called '" + name + "'");
}

}  // namespace halfmark::kernels
