// Losses with their arguments by name, as a model file has them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/layers/loss.h"
#include "models/namespaces.h"
#include "models/network/arguments.h"

namespace halfmark::models {

std::span<const ArgumentRow> arguments_of(LossKind kind);

// Throws Error for a name or an argument that is not known, or cannot be.
LossSpec loss_from(std::string_view name, const Arguments& given);
Arguments arguments_of(const LossSpec& spec);  // those that differ from their usual value

// "cross_entropy smoothing=0.1": equal for two specifications exactly if they compute the same.
std::string text_of(const LossSpec& spec);

}  // namespace halfmark::models
