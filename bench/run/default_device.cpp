#include "bench/run/default_device.h"

#include <fmt/format.h>

#include "bench/namespaces.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"

namespace halfmark::bench {

std::string default_device() {
  const kernels::BestDevice best = kernels::best_device();
  static bool said = false;
  if (!best.why_not.empty() && !said) complain(fmt::format("{}; using the device {}", best.why_not, best.name));
  said = true;
  return best.name;
}

}  // namespace halfmark::bench
