// The table of the kinds of layers that a network can be made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/network/layer_memory.h"
#include "models/settings.h"

namespace halfmark::models {

// What a kind makes a layer of. The arguments have been checked against the kind's rows.
struct LayerRequest {
  const Init& init;
  const Settings& settings;
  const std::string& name;
  Shape input;  // of this layer, with the batch first
  std::vector<LayerPtr> branches = {};
  const std::map<std::string, Layer*>* earlier = nullptr;  // layers by name, for one that shares a weight
  std::vector<Shape> branch_outputs = {};

  GivenArguments given = {};

  bool has(std::string_view argument) const { return given.has(argument); }
  int64_t count(std::string_view argument) const { return given.count(argument); }
  Size2d extent(std::string_view argument) const;
  double number(std::string_view argument) const { return given.number(argument); }
  bool flag(std::string_view argument) const { return given.flag(argument); }
  const std::string& word(std::string_view argument) const { return given.word(argument); }

  // Each throws Error with the words.
  void check(bool holds, const std::string& what) const;
  void need_rank(int rank, std::string_view form) const;  // form: "[batch, channels, height, width]"
};

struct LayerKind {
  enum class Branches : uint8_t { none, one, several };

  std::string_view name, about;
  std::vector<ArgumentRow> arguments;
  LayerPtr (*make)(LayerRequest&);
  MemoryRule memory;  // what it keeps and needs in a training step
  Branches branches = Branches::none;
};

const std::vector<LayerKind>& layer_kinds();
const LayerKind& layer_kind_named(std::string_view name);  // throws Error naming the known ones

}  // namespace halfmark::models
