// The axes of the harnesses that train: optimizer, rate and storage of the parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

// "own", the default of each, is what the subject says.
std::vector<Axis> optimizer_axes();

// Puts the values of these axes into the settings of the trial. Another optimizer than the subject's starts from its
// framework's defaults.
void configure_optimizer(const Harness& harness, TrialSpec& spec);

// Why the axes cannot be as they are. `control`: the name of a training whose outcome was derived for its own optimizer and
// rate, or "none".
std::optional<std::string> refuses_optimizer(const Harness& harness, const TrialSpec& spec, const std::string& control);

}  // namespace halfmark::accuracy
