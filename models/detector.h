// A detector after RetinaNet (Lin et al. 2017, arXiv:1708.02002), and its head at any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/namespaces.h"
#include "models/network/network.h"

namespace halfmark::models::published {

// torchvision's RetinaNetHead on one level: towers of `convolutions` of 3 x 3 with ReLU for the scores and for the boxes, then
// a convolution each. [n, channels, h, w] -> [n, h w anchors, classes + 4]. Weights N(0, 0.01^2), biases 0, that of the scores
// -log(99). `first` is the suffix of the head with the weights; another suffix runs that head again.
std::vector<LayerSpec> retinanet_head(const std::string& suffix, const std::string& first, int64_t channels,
                                      int64_t convolutions, int64_t anchors, int64_t classes);

// Five convolutions of stride 2 with batch norm and ReLU, a feature pyramid over the last three, and a head shared by its
// levels; the output has the levels one after the other, the finest first.
Network detector(int64_t width, int64_t convolutions, int64_t classes);

}  // namespace halfmark::models::published
