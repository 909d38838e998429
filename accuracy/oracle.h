// The fp64 references that errors are measured against, computed once per subject, seed, settings and input rounding.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "accuracy/exponents.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// One batch, forward and backward, in fp64 throughout.
struct Reference {
  std::vector<double> output;
  double loss = 0;
  std::vector<double> input_gradient;
  std::map<std::string, std::vector<double>> gradients;  // by parameter
  std::map<std::string, Exponents> exponents;            // of every tapped tensor, by its tap name
  double input_norm = 0;                                 // root of the sum of squares of the input
  std::map<std::string, double> param_norms;             // likewise, by parameter
  std::map<std::string, Shape> param_shapes;
};

// The fp64 reference of a trial on batch 0. The last few are cached, so that the policies of one subject share them.
std::shared_ptr<const Reference> reference_of(const TrialSpec& spec, Inputs inputs);

// What makes the data of a trial others than those of its seed: the hash of its files; empty: they are drawn.
std::string text_of_data(const TrialSpec& spec);

// All settings that can change a number, as text: the key of the cache.
std::string text_of(const Settings& settings);

}  // namespace halfmark::accuracy
