// What a kind of layer is given to make one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/settings.h"

namespace halfmark::models {

// A layer before the one that is made.
struct EarlierLayer {
  Layer* layer;
  std::string kind;
  Shape input;
  Shape branch_output;     // of the first branch, if it has one
  bool is_joined = false;  // of a side branch
};

// What a kind makes a layer of. The arguments have been checked against the kind's rows.
struct LayerRequest {
  const Init& init;
  const Settings& settings;
  const std::string& name;
  Shape input;  // of this layer, with the batch first
  std::vector<LayerPtr> branches = {};
  std::map<std::string, EarlierLayer>* earlier = nullptr;  // by name, for a layer that refers to one
  std::vector<Shape> branch_outputs = {};

  GivenArguments given = {};

  bool has(std::string_view argument) const { return given.has(argument); }
  int64_t count(std::string_view argument) const { return given.count(argument); }
  Size2d extent(std::string_view argument) const;
  double number(std::string_view argument) const { return given.number(argument); }
  bool flag(std::string_view argument) const { return given.flag(argument); }
  const std::string& word(std::string_view argument) const { return given.word(argument); }
  const std::vector<double>& numbers(std::string_view argument) const { return given.numbers(argument); }
  EarlierLayer& earlier_layer(const std::string& wanted) const;  // throws Error with the names that there are

  // Each throws Error with the words.
  void check(bool holds, const std::string& what) const;
  void need_rank(int rank, std::string_view form) const;  // form: "[batch, channels, height, width]"
};

}  // namespace halfmark::models
