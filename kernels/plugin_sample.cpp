// A plugin for devices_test.cpp, built three times: from this build,
// from another build, and with a missing library as a dependency.
#include "kernels/plugin.h"

#ifdef HALFMARK_SAMPLE_NEEDS
extern "C" int halfmark_sample_dependency();
#endif

namespace {

void find(std::vector<std::unique_ptr<halfmark::kernels::Device>>&, std::vector<std::string>& absent) {
#ifdef HALFMARK_SAMPLE_NEEDS
  absent.push_back(std::to_string(halfmark_sample_dependency()));
#endif
  absent.push_back("no NVIDIA driver");
}

std::vector<std::pair<std::string, std::string>> versions() { return {{"sample", "1"}}; }

constexpr halfmark::kernels::Plugin kPlugin{HALFMARK_STAMP, find, versions};

}  // namespace

extern "C" const halfmark::kernels::Plugin* halfmark_plugin() { return &kPlugin; }
