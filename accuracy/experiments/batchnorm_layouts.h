// Private to the batchnorm_statistics harness: forward and backward of a batch norm in both layouts.
#pragma once

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

// The operations of batch norm take images: other ranks are images of the same channels.
Shape batchnorm_image(const Shape& shape);
bool is_frozen_batchnorm(const Subject& subject);

// Output and gradients of the device's batch norm in the layouts plain and nhwc against plain fp64 loops.
void measure_batchnorm_layouts(const TrialSpec& spec, FindingsWriter& out);

}  // namespace halfmark::accuracy
