// Batch norm folded into the convolution before it, for evaluation: the convolution with the weight w s and the bias
// (b - mean) s + shift, where s = scale / sqrt(variance + epsilon), of each output channel.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/namespaces.h"
#include "models/network/network.h"

namespace halfmark::models {

struct FoldedPair {
  std::string convolution, batchnorm;  // names of layers
  double epsilon;
};

struct FoldedNetwork {
  Network network;                // with a bias in each of these convolutions, and without these batch norms
  std::vector<FoldedPair> pairs;  // in the order of the layers
};

// Of every batchnorm2d that follows a conv2d without weight norm directly, in branches too. Other batch norms remain.
FoldedNetwork fold_batchnorm(const Network& network);

// By name: "conv1.weight", "bn1.running_mean".
using NamedValues = std::map<std::string, std::vector<double>, std::less<>>;

// The parameters and states of the folded network from those of the network, computed in fp64. Throws Error if one of a
// pair is missing.
NamedValues folded_values(const std::vector<FoldedPair>& pairs, NamedValues values);

}  // namespace halfmark::models
