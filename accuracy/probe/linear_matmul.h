// The matmul of a linear layer as a shape that the probe examines.
#pragma once

#include "accuracy/namespaces.h"
#include "accuracy/probe/probe.h"
#include "models/subject.h"

namespace halfmark::accuracy::probe {

// forward: out[b, o] = sum over i of x[b, i] w[o, i]; m = b, n = o, k = i. Throws Error if the subject is no linear layer.
MatmulShape matmul_of(const Subject& linear);

}  // namespace halfmark::accuracy::probe
