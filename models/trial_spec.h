// What a trial is of: subject, device, policy, seed, settings and data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/files/data_set.h"
#include "models/namespaces.h"
#include "models/settings.h"
#include "models/zoo.h"

namespace halfmark::models {

using Axes = std::map<std::string, std::string>;

// The inputs of the fp64 reference.
enum class Inputs : uint8_t {
  drawn,    // the drawn numbers
  rounded,  // the drawn numbers rounded to the policy's low format
};

struct TrialSpec {
  const Subject* subject = nullptr;
  std::shared_ptr<Device> device;
  const Policy* policy = nullptr;
  Axes axes;  // values of the harness's axes, for the id of the case; `settings` holds their effect
  uint64_t seed = 0;
  Settings settings;
  std::shared_ptr<const DataSet> data{};  // of files that fit the subject; null: drawn
  // x and parameters are rounded to this format before anything else; set by oracle().
  const Format* round_first = nullptr;

  TrialSpec under(const Policy& other) const;
  TrialSpec oracle(Inputs inputs) const;  // the fp64 reference, on a separate device
};

}  // namespace halfmark::models
