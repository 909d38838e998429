// Networks with gradient checkpointing, for the harness `checkpointing`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "accuracy/namespaces.h"
#include "models/subject.h"

namespace halfmark::accuracy {

struct CheckpointedNetwork {
  Network network;
  size_t segments = 0;     // checkpoint layers
  double added_flops = 0;  // of the second forward
};

// The network with its layers, except the last one, in `segments` checkpoint layers of about equally many; fewer if it has
// not so many. A side branch and its join stay in one segment, so there can be fewer still. 0 segments: sqrt(layers).
CheckpointedNetwork with_checkpoints(const Subject& subject, size_t segments);

}  // namespace halfmark::accuracy
