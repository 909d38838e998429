#include "accuracy/images.h"

#include <optional>
#include <string>

namespace halfmark::accuracy {
namespace {

constexpr std::string_view kChannelsLast = "images.channels_last";

}  // namespace

Axis images_axis() {
  return {.name = kImagesAxis,
          .values = {"device", "nchw", "nhwc"},
          .about = "layout of the images; device: the one that suits it"};
}

std::optional<std::string> refuses_images(const TrialSpec& spec) {
  const bool has_images = spec.subject->input.rank() == 4 && !row_of(spec.subject->data).has_indices;
  if (!spec.settings.images || has_images) return {};
  return "images=" + std::string(spec.settings.images == Layout::nhwc ? "nhwc" : "nchw") + ": the input of " +
         spec.subject->id() + " is not a batch of images";
}

MetricRow images_row() {
  return {kChannelsLast, "1", Better::neither, Kind::information,
          "1: the images of the batch are in NHWC; 0: in NCHW. Layers may choose another layout"};
}

void write_images(FindingsWriter& out, const Trial& trial) {
  const Tensor images = trial.input();
  if (images.shape().rank() != 4 || !is_floating(images.dtype())) return;
  out.number(kChannelsLast, "", images.layout() == Layout::nhwc ? 1 : 0);
}

}  // namespace halfmark::accuracy
