// The devices of this machine by name, and the absent ones with the reason.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/plugin.h"
#include "kernels/tensor/all_reduce.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels {

// Every device this build knows, present or absent. The CUDA plugin is searched for once, on the first call.
const std::vector<DeviceRow>& known_devices();

// A new device with its own memory ledger. Throws Error with one line if the name is
// unknown (lists the known names) or the device is absent (gives the reason). A CUDA
// device is opened by the first call and shared by all callers, because there is only one piece of hardware.
std::shared_ptr<Device> open_device(const std::string& name);

// The group of these devices, in the order of their ranks, for sums across them. Throws Error with one line if there are
// fewer than two or one is named twice; Unsupported if they are not all GPUs of the plugin, or if its library is missing or
// refuses.
std::unique_ptr<AllReduceGroup> all_reduce_group(std::span<const std::shared_ptr<Device>> devices);

// The simulated device that stands for GPUs of this architecture: "sim:hopper" for "sm_90". Empty if there is none.
std::string simulated_device(std::string_view architecture);

// The device that runs the fp64 oracles for `device`: fast fp64 rows and its own memory ledger.
std::shared_ptr<Device> oracle_device(const Device& device);

// cuda:0 if it can be opened, which this does, else cpu. `why_not`: why a GPU that is present cannot be opened, else empty; the
// list of devices then says so too. `absent`: why no GPU can be used, else empty.
struct BestDevice {
  std::string name, why_not, absent;
};
BestDevice best_device();

// Versions of the libraries in use (oneDNN, OpenBLAS, CUDA, ...), for the report's environment.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace halfmark::kernels
