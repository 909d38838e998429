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

// Delayed scaling begins with the scale 1, which says nothing about later steps. Before one step is measured, this makes a
// forward and a backward of batch 1 under such a policy, without an update of the parameters.
void begin_scaling(Trial& trial);

// Gradients whose terms cancel, by place ("gradient/conv.bias"): rms / largest rms of a gradient, where it is below 2^-44.
// What is left of them is rounding noise, so no share of their elements and no error relative to them says anything.
// The rounding of n terms in fp64 is about sqrt(n) 2^-53 of their size, and their size is that of other gradients: 2^-44
// for n = 2^18. In the subjects of the full suite these are at most 1.1e-15 of the largest gradient, and the least other
// gradient is 2.4e-11 of it.
std::map<std::string, double> cancelled_gradients(const Reference& reference);

// What makes the data of a trial others than those of its seed: the hash of its files; empty: they are drawn.
std::string text_of_data(const TrialSpec& spec);

// All settings that can change a number, as text: the key of the cache.
std::string text_of(const Settings& settings);

}  // namespace halfmark::accuracy
