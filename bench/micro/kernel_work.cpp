#include "bench/micro/kernel_work.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::bench::micro {

std::optional<KernelWork> kernel_work(Device& device, const std::function<void()>& work) {
  constexpr double kSectorBytes = 32;
  const char* name = std::getenv("HALFMARK_SOFTWARE_GPU_WORK");
  if (!name) return std::nullopt;
  device.synchronize();
  std::ifstream file(name);
  file.seekg(0, std::ios::end);
  work();
  device.synchronize();
  if (!file) file.open(name);  // the first launch has made it
  KernelWork done;
  bool any = false;
  for (std::string line; std::getline(file, line); any = true) {
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');  // the kernel's name
    std::vector<double> numbers;
    while (std::getline(cells, cell, ',')) numbers.push_back(std::stod(cell));
    HM_CHECK(numbers.size() == 9, std::string(name) + ": '" + line + "' has not the columns of a launch");
    done.instructions += numbers[2];
    done.requested_bytes += kSectorBytes * (numbers[4] + numbers[7]);
    done.touched_bytes += kSectorBytes * (numbers[5] + numbers[8]);
  }
  HM_CHECK(any, std::string(name) + ": has no launch of this work; is the device the software GPU?");
  return done;
}

}  // namespace halfmark::bench::micro
