// Tests that need a GPU: skipped with the printed reason if there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/devices.h"

namespace halfmark::kernels {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceRow& row : known_devices()) {
      if (row.name != "cuda:0") continue;
      if (!row.absent.empty()) GTEST_SKIP() << "cuda:0 is absent: " << row.absent;
      gpu_ = open_device(row.name);
      gpu_->memory().reset_peak();
      return;
    }
    GTEST_SKIP() << "this build has no device cuda:0";
  }
  Device& gpu() { return *gpu_; }
  // 90 for an H100 or H200
  int architecture() {
    for (const auto& [key, value] : gpu_->describe())
      if (key == "architecture") return std::stoi(value.substr(3));
    return 0;
  }

 private:
  std::shared_ptr<Device> gpu_;
};

}  // namespace halfmark::kernels
