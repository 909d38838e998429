// What the cases of softmax, attention and operations on sequences share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/ops/cases/contraction.h"

namespace halfmark::kernels::ops_cases {

inline bool has_infinity(DType dtype) { return std::isinf(round_to(format_of(dtype), HUGE_VAL)); }

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

// f(dtype) for the types that these operations compute in.
inline void each_sequence_type(const CaseRequest& request, auto&& f) {
  for (const DType dtype : request.axes.dtypes) f(dtype, std::string(name_of(dtype)));
}

// An exponential within a few units, of an argument that has the rounding of one subtraction.
inline double exp_error(double argument, const Format& format) { return gamma(6, format) * (1 + std::fabs(argument)); }

}  // namespace halfmark::kernels::ops_cases
