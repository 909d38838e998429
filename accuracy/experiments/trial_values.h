// The values of a model apart from its trial: checkpoints, and comparisons bit by bit. Subjects at another batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// Of all parameters and running statistics, in the order of Trial::params() and states().
struct ModelValues {
  std::vector<std::vector<double>> params, states;
};
ModelValues values_of(Trial& trial);  // exact; of a parameter with a master copy, that copy
// Into a trial of the same subject under any policy. Each value is rounded once to the dtypes of that policy.
void put_values(Trial& trial, const ModelValues& values);
// The same values rounded to the format, as model.half() stores them.
ModelValues rounded_values(ModelValues values, const Format& format);

// The share of values that are bit-equal; two NaN are equal, 0 and -0 are not.
double share_of_equal_values(const std::vector<double>& a, const std::vector<double>& b);

// ||a - b|| / ||b||; 0 if both are 0.
double relative_distance(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> all_params(const ModelValues& values);
std::vector<double> all_values(const ModelValues& values);  // parameters, then running statistics

// The same network with another input shape. Its parameters start from the same numbers. Throws Error if only a
// function of a program knows the network.
Subject with_input(const Subject& subject, const Shape& input);
Subject with_network(const Subject& subject, Network network, const std::string& suffix);
Shape with_batch(const Shape& input, int64_t batch);

}  // namespace halfmark::accuracy
