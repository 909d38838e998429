// How a subject is trained, by name, as a model file has it: optimizer, rate and the rest of what Settings has for it.
#pragma once

#include <span>
#include <string>

#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/settings.h"

namespace halfmark::models {

std::span<const ArgumentRow> training_arguments();

// Throws Error for an argument that is not known, or cannot be, or that the optimizer does not read; 0 and false are taken.
Settings training_from(const Arguments& given);
// The training with these arguments changed. Of another optimizer it keeps what that one reads.
Settings training_with(const Settings& before, const Arguments& changed);
Arguments arguments_of_training(const Settings& settings);  // those that differ from their usual value

std::string text_of_training(const Settings& settings);  // "optimizer=adamw rate=0.001"

}  // namespace halfmark::models
