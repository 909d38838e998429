// A software GPU whose libraries give wrong answers on request (software_gpu/libraries/planted_answers.h), and what becomes
// of a product on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels {

// While it exists, the stand-ins give these wrong answers.
class Planted {
 public:
  explicit Planted(const char* words) { setenv("HALFMARK_SOFTWARE_LIBRARIES", words, 1); }
  ~Planted() { unsetenv("HALFMARK_SOFTWARE_LIBRARIES"); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

class LibraryRows : public testing::Test {
 protected:
  // A software GPU with this number, or none.
  static std::shared_ptr<Device> device(const std::string& name) {
    for (const DeviceRow& row : known_devices())
      if (row.name == name && row.absent.empty()) {
        auto opened = open_device(name);
        return opened->numerics().empty() ? nullptr : opened;
      }
    return nullptr;
  }
  void SetUp() override {
    gpu_ = device("cuda:0");
    if (!gpu_) GTEST_SKIP() << "no software GPU";
  }
  Device& gpu() { return *gpu_; }
  std::string architecture() {  // "sm_90"
    for (const auto& [key, value] : gpu().describe())
      if (key == "architecture") return value;
    return {};
  }

 private:
  std::shared_ptr<Device> gpu_;
};

struct Ran {
  std::string row;
  std::vector<std::string> refusals, choices;
  std::vector<double> values;
  std::string choice() const { return choices.empty() ? "none" : choices[0]; }
  std::string all_refusals() const {
    std::string text;
    for (const std::string& one : refusals) text += one + "\n";
    return text;
  }
};

inline Ran multiply(Device& device, int64_t n, DType dtype, const Math& math, double a, double b) {
  const auto filled = [&](double value) {
    return Tensor::from(device, {n, n}, dtype, std::vector<double>(static_cast<size_t>(n * n), value));
  };
  const Tensor left = filled(a), right = filled(b);
  Tensor out(device, {n, n}, dtype);
  KernelLog log;
  run(Matmul{.a = left, .b = right, .out = out, .math = math});
  const LoggedKernel entry = log.entries().at(0);
  return {entry.row, entry.refusals, entry.choices, out.values()};
}

}  // namespace halfmark::kernels
