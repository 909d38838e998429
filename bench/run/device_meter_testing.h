// The CPU with the states of a GPU, for tests.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "bench/namespaces.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/tensor/device_state.h"

namespace halfmark::bench {

class CpuWithState : public kernels::CpuDevice {
 public:
  // The state of each reading, counted from 0.
  explicit CpuWithState(std::function<std::optional<DeviceState>(int)> states) : states_(std::move(states)) {}
  std::optional<DeviceState> state() override { return states_(readings_++); }
  int readings() const { return readings_; }

 private:
  std::function<std::optional<DeviceState>(int)> states_;
  int readings_ = 0;
};

inline DeviceState slowed_by(const std::string& reason) {
  DeviceState state;
  state.slowed_by = {reason};
  return state;
}

}  // namespace halfmark::bench
