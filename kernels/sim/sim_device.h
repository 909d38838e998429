// Host memory with a tensor core's rows before the reference rows: "sim:hopper".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {

class SimDevice : public HostDevice {
 public:
  // With the rows of the table, or with others that the caller keeps alive: tests of the probe use hypothetical rows.
  explicit SimDevice(const Architecture& architecture, std::span<const TensorCore> cores = tensor_cores());
  std::string name() const override { return "sim:" + std::string(architecture_.name); }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }
  std::string numerics() const override { return "instruction-exact"; }
  const Architecture& architecture() const { return architecture_; }
  std::span<const TensorCore> cores() const { return cores_; }

 private:
  const Architecture& architecture_;
  std::span<const TensorCore> cores_;
  KernelTable kernels_;
};

std::vector<std::string> sim_device_names();
std::shared_ptr<Device> open_sim_device(const std::string& name);  // throws Error for a name that is not in the table

}  // namespace halfmark::kernels
