// Shapes of matmuls on the command line.
#pragma once

#include <string>

#include "accuracy/probe/probe.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

probe::MatmulShape matmul_shape_named(const std::string& text);  // "32x32x64"; throws Error naming --shape

}  // namespace halfmark::bench
