// The devices of this machine by name, and those it lacks with the reason.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/device.h"

namespace halfmark::kernels {

struct DeviceRow {
  std::string name;    // "cpu", "sim:hopper", "cuda:0"
  std::string about;   // one line for `halfmark list`
  std::string absent;  // empty when it can be opened, else why not and what to do
};

// Everything that this build knows, present or absent. The CUDA plugin is looked for once, on the first call.
const std::vector<DeviceRow>& known_devices();

// A new device of its own memory ledger. Throws Error with one line when the name is unknown (naming the known ones) or
// the device is absent (naming the reason). A CUDA device is shared by all callers, hardware being one.
std::shared_ptr<Device> open_device(const std::string& name);

// The device the fp64 oracles run on beside `device`: fast fp64 rows, a memory ledger of its own.
std::shared_ptr<Device> oracle_device(const Device& device);

// The first of cuda:0, cpu that is present.
std::string best_device();

// Versions of the libraries in use (oneDNN, OpenBLAS, CUDA, ...), for the report's environment.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace halfmark::kernels
