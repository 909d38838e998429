// The interface between the program and the CUDA plugin: one C function that returns a table. C++ types cross the
// boundary, so program and plugin must come from the same build; the stamp tells whether they do.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/all_reduce.h"
#include "kernels/tensor/device.h"

namespace halfmark::kernels {

struct DeviceRow {
  std::string name;    // "cpu", "sim:hopper", "cuda:0"
  std::string about;   // one line for `halfmark list`
  std::string absent;  // empty if it can be opened, else why not and what to do
};

struct Plugin {
  const char* stamp;  // compiler and a hash of the public headers (kernels/CMakeLists.txt); must equal HALFMARK_STAMP
  // A row for each GPU, or a single row cuda:0 that says why there is none. Makes no context on any GPU, which would
  // take memory and block a GPU in exclusive mode.
  std::vector<DeviceRow> (*list)();
  // Throws Error with one line if this build cannot use the GPU.
  std::unique_ptr<Device> (*open)(const std::string& name);
  // Versions of driver, runtime and libraries for the report; works without a GPU.
  std::vector<std::pair<std::string, std::string>> (*versions)();
  // For sums across these devices, which `open` has made: at least two, each once. Throws Unsupported, with one line, if
  // there is no library for it or the library refuses.
  std::unique_ptr<AllReduceGroup> (*all_reduce_group)(std::span<Device* const> devices);
};

inline constexpr const char* kPluginEntry = "halfmark_plugin";  // extern "C" const Plugin* halfmark_plugin()
using PluginEntry = const Plugin* (*)();

}  // namespace halfmark::kernels
