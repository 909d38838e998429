// Sums across several devices of one process, as data-parallel training makes them of its gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

enum class ReduceOp : uint8_t { sum, average };

// Devices that a library adds up across. The place of a device in the group is its rank. Destroyed before its devices.
// After a call that has thrown it is not used again.
class AllReduceGroup {
 public:
  virtual ~AllReduceGroup() = default;
  AllReduceGroup() = default;
  AllReduceGroup(const AllReduceGroup&) = delete;
  AllReduceGroup& operator=(const AllReduceGroup&) = delete;

  virtual std::string library() const = 0;  // "NCCL 2.28.9"
  // Variables of the environment that choose how it adds, with their values.
  virtual std::vector<std::pair<std::string, std::string>> settings() const = 0;

  // Every out[i] becomes the sum, or the average, of all in[j] element by element; in[i] and out[i] are plain tensors of
  // device i, all of one dtype and one number of elements. Enqueued after the work of each device; does not wait.
  // Throws Unsupported, with the call, where the library refuses or fails; Error if a device is lost.
  virtual void run(std::span<const Tensor> in, std::span<Tensor> out, ReduceOp op) = 0;
  // For all work of all devices. Throws as run does, with the rank, also for what the library found out only later and for
  // sums that do not end within a limit; what is still to be done is given up then.
  virtual void wait() = 0;
  // Seconds of the work of the first device, as Device::time_after_pause, and waits as wait() does. Nothing if the pause
  // does not cover the launches, or there is no clock.
  virtual std::optional<double> time_after_pause(double /*pause*/, const std::function<void()>& /*work*/) { return {}; }
};

}  // namespace halfmark::kernels
