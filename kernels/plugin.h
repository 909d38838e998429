// The interface between the program and the CUDA plugin: one C function that returns a table. C++ types cross the
// boundary, so program and plugin must come from the same build; the stamp tells whether they do.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/device.h"

namespace halfmark::kernels {

struct Plugin {
  const char* stamp;  // compiler and a hash of the public headers (kernels/CMakeLists.txt); must equal HALFMARK_STAMP
  // The usable devices, and one line per unusable device that says why.
  void (*find)(std::vector<std::unique_ptr<Device>>& devices, std::vector<std::string>& absent);
  // Versions of driver, runtime and libraries for the report; works without a GPU.
  std::vector<std::pair<std::string, std::string>> (*versions)();
};

inline constexpr const char* kPluginEntry = "halfmark_plugin";  // extern "C" const Plugin* halfmark_plugin()
using PluginEntry = const Plugin* (*)();

}  // namespace halfmark::kernels
