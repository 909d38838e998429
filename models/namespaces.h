// The level below models/, whose names are used here without qualification.
#pragma once

namespace halfmark::kernels {}

namespace halfmark::models {
using namespace kernels;
}  // namespace halfmark::models
