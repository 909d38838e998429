// The layout of a batch of images, which `error` and `throughput` let the user choose and which both write.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

// The axis for Settings::images: "device", "nchw" or "nhwc". Case::trial sets it.
inline constexpr std::string_view kImagesAxis = "images";
Axis images_axis();
// The reason for which a chosen layout says nothing about this subject; nothing: it does, or none is chosen.
std::optional<std::string> refuses_images(const TrialSpec& spec);

// The metric that says which layout the loaded batch has, and writing it; it is written of images only.
MetricRow images_row();
void write_images(FindingsWriter& out, const Trial& trial);

}  // namespace halfmark::accuracy
