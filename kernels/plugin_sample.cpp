// A plugin for devices_test.cpp, built three times: from this build, from another build, and with a missing library as
// a dependency.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/plugin.h"

#ifdef HALFMARK_SAMPLE_NEEDS
extern "C" int halfmark_sample_dependency();
#endif

namespace {

std::vector<halfmark::kernels::DeviceRow> list() {
  std::string reason = "no NVIDIA driver";
#ifdef HALFMARK_SAMPLE_NEEDS
  reason += std::to_string(halfmark_sample_dependency());
#endif
  return {{"cuda:0", "NVIDIA GPU", reason}};
}

std::unique_ptr<halfmark::kernels::Device> open(const std::string&) { return nullptr; }

std::vector<std::pair<std::string, std::string>> versions() { return {{"sample", "1"}}; }

std::unique_ptr<halfmark::kernels::AllReduceGroup> all_reduce_group(std::span<halfmark::kernels::Device* const>) {
  return nullptr;
}

constexpr halfmark::kernels::Plugin kPlugin{HALFMARK_STAMP, list, open, versions, all_reduce_group};

}  // namespace

extern "C" const halfmark::kernels::Plugin* halfmark_plugin() { return &kPlugin; }
