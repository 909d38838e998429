// The loss of a detector: focal loss of the classes and smooth L1 loss of the boxes of all anchors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/layers/loss_layer.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Output [n, anchors, classes + 4]: scores before a sigmoid, then the four numbers of a box (anchors.h). Targets
// [n, anchors, 2 (classes + 4)]: what the output is compared with, then the weight of each number in the sum, which
// detection_targets() fills as torchvision's RetinaNet: both losses of an image are divided by max(1, anchors that stand for
// an object), images by their number; anchors between background and object do not count, nor boxes of the background.
std::unique_ptr<Loss> make_detection_loss(double beta, double alpha, double gamma);

// `labels`: of data boxes, for images of rows x columns.
std::vector<double> detection_targets(const std::vector<double>& labels, int64_t samples, int64_t classes, int64_t rows,
                                      int64_t columns);

}  // namespace halfmark::models
