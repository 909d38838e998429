// Numbers of tensors that the linter compares.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accuracy/lint_observation.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

bool is_finite(std::span<const double> values);
double norm_of(std::span<const double> values);
double median_of_values(std::vector<double> values);
double distance_over_norm(const std::vector<double>& a, const std::vector<double>& b);  // |a - b| / |b|
// Of a - c and b - c; 0 if one of them is 0.
double cosine_of_differences(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& c);
// Nothing if all elements are finite.
std::optional<NonFiniteTensor> nonfinite_in(const std::string& name, const Tensor& tensor);

}  // namespace halfmark::accuracy
