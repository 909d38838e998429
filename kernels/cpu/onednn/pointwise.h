// Convolutions of one pixel, stride 1 and one group, as products of the matrix of all pixels [n h w, channels] and the filter
// as it is stored. oneDNN's own code for them wants the filter in blocks, and a filter that changes in every step takes as long
// to reorder as to multiply where the images are small; for bf16 it multiplies without AMX.
#pragma once

#include "kernels/cpu/onednn/plan.h"

namespace halfmark::kernels::onednn {

// Whether the row computes it in this way.
bool is_product(const Conv2d& op);
bool is_product(const Conv2dBackwardData& op);
bool is_product(const Conv2dBackwardWeights& op);

// For operations that are products.
Plan make_product_plan(const Conv2d& op, bool biased = false);
Plan make_product_plan(const Conv2dBackwardData& op);
Plan make_product_plan(const Conv2dBackwardWeights& op);
void run_product(Device& device, const Plan& plan, const Conv2d& op, const Tensor& bias = {});
void run_product(Device& device, const Plan& plan, const Conv2dBackwardData& op);
void run_product(Device& device, const Plan& plan, const Conv2dBackwardWeights& op);

}  // namespace halfmark::kernels::onednn
