// What the tensors of a failed pass say about the layer that may have to run in fp32.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "accuracy/experiments/layer_errors.h"
#include "accuracy/experiments/minimal_set.h"
#include "models/network/network.h"

namespace halfmark::accuracy {

// The layers whose results each layer reads; those of a sum or a concatenation are the last ones of its branches.
std::map<std::string, std::vector<std::string>> producers_of(const Network& network);

class PlanHints {
 public:
  PlanHints(const Network& network, std::vector<std::string> layers, double tolerance);
  // The first tensor, training before evaluation, whose error is above the tolerance: its layer, or, if that is in fp32
  // already, a layer before it that is not. If four layers before it change nothing, it is left alone and the next one counts.
  std::optional<size_t> next(const ItemSet& in_fp32, const PassErrors& errors);

 private:
  std::optional<size_t> before(const std::string& layer, const ItemSet& in_fp32) const;

  std::map<std::string, std::vector<std::string>> producers_;
  std::map<std::string, size_t> place_;
  double tolerance_;
  std::map<std::string, int> tried_;  // by tensor: layers before it
  std::set<std::string> left_alone_;
};

}  // namespace halfmark::accuracy
