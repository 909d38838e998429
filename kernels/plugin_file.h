// Finds and loads the plugin. Separate from devices.cpp so that tests cover each way in which it can be absent.
#pragma once

#include <string>
#include <vector>

#include "kernels/plugin.h"

namespace halfmark::kernels {

struct LoadedPlugin {
  const Plugin* plugin = nullptr;  // null: `absent` says why
  std::string absent;              // one line: what is missing and what to do
};

// Loads the plugin at this path and compares its stamp. A library that was opened is never closed.
LoadedPlugin load_plugin(const std::string& path);

// halfmark_cuda.so beside libhalfmark_kernels.so or beside the program, whichever exists first; empty if neither does.
std::string plugin_path();
LoadedPlugin find_plugin();

}  // namespace halfmark::kernels
