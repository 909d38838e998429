// Host memory with a tensor core in front of the reference rows: "sim:hopper".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark {

class SimDevice : public HostDevice {
 public:
  explicit SimDevice(const Architecture& architecture);
  std::string name() const override { return "sim:" + std::string(architecture_.name); }
  std::vector<std::pair<std::string, std::string>> describe() const override;
  const KernelTable& kernels() const override { return kernels_; }
  std::string numerics() const override { return "instruction-exact"; }
  const Architecture& architecture() const { return architecture_; }

 private:
  const Architecture& architecture_;
  KernelTable kernels_;
};

std::vector<std::string> sim_device_names();
std::shared_ptr<Device> open_sim_device(const std::string& name);  // throws Error for a name that is not in the table

}  // namespace halfmark
