// What the checks of all operations use. Each throws Error that begins with the name of the operation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/number/error.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels::operation_checks {

inline void need(bool condition, std::string_view operation, const std::string& what) {
  HM_CHECK(condition, std::string(operation) + ": " + what);
}

inline void vector_of(std::string_view operation, std::string_view which, const Tensor& tensor, int64_t extent) {
  need(tensor.shape() == Shape{extent}, operation,
       std::string(which) + " must be of shape [" + std::to_string(extent) + "], not " + tensor.shape().text());
}

inline void rank(std::string_view operation, std::string_view which, const Tensor& tensor, int rank) {
  need(tensor.shape().rank() == rank, operation,
       std::string(which) + " must have rank " + std::to_string(rank) + ", not shape " + tensor.shape().text());
}

}  // namespace halfmark::kernels::operation_checks
