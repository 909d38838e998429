#include "bench/run/default_device.h"

#include <fmt/format.h>

#include "bench/namespaces.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"

namespace halfmark::bench {

namespace {
std::string no_gpu;
}  // namespace

std::string no_gpu_text() { return no_gpu; }

std::string default_device() {
  const kernels::BestDevice best = kernels::best_device();
  static bool said = false;
  if (!best.why_not.empty() && !said) complain(fmt::format("{}; using the device {}", best.why_not, best.name));
  said = true;
  if (!best.absent.empty()) no_gpu = fmt::format("{}; using the device {}", best.absent, best.name);
  return best.name;
}

std::string substitute_text(const Device& device) {
  const bool is_simulation = device.name().starts_with("sim:");  // as its name says
  return is_simulation || device.numerics().empty() ? "" : "not hardware: " + device.numerics();
}

}  // namespace halfmark::bench
