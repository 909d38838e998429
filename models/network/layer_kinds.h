// The table of the kinds of layers that a network can be made of.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/network/layer_memory.h"
#include "models/network/layer_request.h"

namespace halfmark::models {

struct LayerKind {
  enum class Branches : uint8_t { none, one, several };

  std::string_view name, about;
  std::vector<ArgumentRow> arguments;
  LayerPtr (*make)(LayerRequest&);
  MemoryRule memory;  // what it keeps and needs in a training step
  Branches branches = Branches::none;
  bool quantised = false;  // a policy with quantised products applies to it, unless it has weight norm
};

const std::vector<LayerKind>& layer_kinds();
const LayerKind& layer_kind_named(std::string_view name);  // throws Error naming the known ones

}  // namespace halfmark::models
