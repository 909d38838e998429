#include "kernels/plugin_file.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

constexpr const char* kFileName = "halfmark_cuda.so";

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

LoadedPlugin load_plugin(const std::string& path) {
  const std::string file = std::filesystem::path(path).filename();
  // RTLD_NOW: a missing symbol is reported here and not in the middle of a run. RTLD_LOCAL: the symbols of the plugin's
  // libraries stay private.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return {nullptr, file + " cannot be loaded: " + one_line(reason ? reason : "no reason given") +
                         " (install the CUDA 13 runtime libraries and cuDNN 9, or set LD_LIBRARY_PATH)"};
  }
  const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (!entry) return {nullptr, file + " has no entry " + kPluginEntry + ": it is not a halfmark plugin; rebuild it"};
  const Plugin* plugin = entry();
  if (std::string(plugin->stamp) != HALFMARK_STAMP)
    return {nullptr, file + " is from another build (" + plugin->stamp + ", this program is " + HALFMARK_STAMP +
                         "): build the program and the plugin together"};
  return {plugin, ""};
}

std::string plugin_path() {
  std::vector<std::filesystem::path> folders;
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(&philox), &where) && where.dli_fname)
    folders.push_back(std::filesystem::path(where.dli_fname).parent_path());
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path());
  for (const auto& folder : folders)
    if (const auto path = folder / kFileName; std::filesystem::exists(path, error)) return path;
  return {};
}

LoadedPlugin find_plugin() {
  if (const std::string path = plugin_path(); !path.empty()) return load_plugin(path);
#ifdef HALFMARK_PLUGIN_BUILT
  return {nullptr,
          std::string(kFileName) +
              " not found beside the program; with an NVIDIA GPU, build the target halfmark_cuda or unpack it there"};
#else
  return {nullptr, std::string(kFileName) +
                       " not found: this build has no CUDA (configure on a machine with the CUDA toolkit and cuDNN)"};
#endif
}

}  // namespace halfmark::kernels
