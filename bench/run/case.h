// A case: one measurement, defined by subject, device, policy, harness and the harness's axes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

struct Case {
  const Subject* subject = nullptr;
  std::string device;
  const Policy* policy = nullptr;
  const Harness* harness = nullptr;
  Axes axes;                              // those that do not have their default value
  std::shared_ptr<const DataSet> data{};  // files in place of drawn data (data_files.h); no part of the id
  std::string data_path{};                // of --data, absolute

  std::string id() const;                     // "mlp/b16_i32_h64_o8/cpu/amp-fp16/error[/key=value...]"
  std::vector<std::string> segments() const;  // the parts between the slashes
  // Writes numbers in their shortest form and removes axes that have their default value, so that each case has one id. Throws Error for an axis or a value that
  // the harness does not have.
  void settle_axes();
  TrialSpec trial(std::shared_ptr<Device> opened, uint64_t seed) const;
};

// The case with this id; it need not be in a suite. Throws Error that names the unknown part of the id.
Case case_of(const std::string& id);

}  // namespace halfmark::bench
