// Losses alone: the input is the output of a model that is not there, with a random label for each place.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/family_parts.h"

namespace halfmark::models {

using namespace family_parts;

namespace {

const SizeLetter kPixels = {.letter = 's',
                            .about = "image size, with a label for each pixel; 0: one label",
                            .is_pair = true,
                            .usual = "0",
                            .usual_value = none,
                            .least = 0};

SizeLetter setting(char letter, std::string_view about, int64_t most) {
  return {.letter = letter, .about = about, .usual = "0", .usual_value = none, .least = 0, .most = most};
}

Subject loss_alone(const Sizes& s, LossSpec loss, std::vector<LayerSpec> before = {}) {
  const Extent size = s.extent('s');
  s.check((size.h > 0) == (size.w > 0), "an image has rows and columns, or neither");
  s.check_elements("the input", {s['b'], s['o'], std::max<int64_t>(size.h, 1), std::max<int64_t>(size.w, 1)});
  const Shape input = size.h ? Shape{s['b'], s['o'], size.h, size.w} : Shape{s['b'], s['o']};
  Subject subject = subject_of_network(input, DataKind::logits, s['o'], {std::move(before)});
  subject.loss = std::move(loss);
  return subject;
}

Subject cross_entropy_alone(const Sizes& s) {
  LossSpec loss{.smoothing = static_cast<double>(s['e']) / 100};
  if (s['i'] == 1) loss.ignored = 0;
  for (int64_t c = 0; c < s['o'] && s['w'] == 1; ++c) loss.class_weights.push_back(static_cast<double>(1 + c % 4));
  return loss_alone(s, std::move(loss));
}

template <LossKind kind>
Subject plain_loss(const Sizes& s) {
  return loss_alone(s, {.kind = kind});
}
Subject probabilities_loss(const Sizes& s) {
  return loss_alone(s, {.kind = LossKind::binary_cross_entropy}, {{"sigmoid", "sigmoid"}});
}
Subject positive_loss(const Sizes& s) {
  LossSpec loss{.kind = LossKind::binary_cross_entropy_with_logits};
  if (s['w'] > 0) loss.pos_weight = static_cast<double>(s['w']);
  return loss_alone(s, std::move(loss));
}
Subject smooth_l1_alone(const Sizes& s) {
  return loss_alone(s, {.kind = LossKind::smooth_l1, .beta = 1 - static_cast<double>(s['e']) / 100});
}

Subject ctc_alone(const Sizes& s) {
  s.check(s['t'] >= 16, "t (time) is " + std::to_string(s['t']) + "; the symbols need 16 steps or more");
  s.check_elements("the input", {s['b'], s['o'], s['t']});
  Subject subject =
      subject_of_network({s['b'], s['o'], 1, s['t']}, DataKind::speech, s['o'], {{{"to_sequence", "sequence"}}});
  subject.loss.kind = LossKind::ctc;
  return subject;
}

}  // namespace

std::vector<Family> loss_families() {
  return {
      {.name = "cross_entropy",
       .about = "softmax and cross-entropy of labels alone",
       .letters = {kBatch, kClasses, kPixels, setting('e', "smoothing in percent", 100),
                   setting('i', "1: places with label 0 do not count", 1),
                   setting('w', "1: weights 1, 2, 3, 4, 1, ... of the classes", 1)},
       .example = "b512_o1000",
       .make = cross_entropy_alone},
      {.name = "binary_cross_entropy_with_logits",
       .about = "sigmoid and binary cross-entropy alone; the target is 1 for the class of the label",
       .letters = {kBatch, kClasses, kPixels, setting('w', "weight of the targets 1; 0: 1", 1000)},
       .example = "b512_o1000",
       .make = positive_loss},
      {.name = "binary_cross_entropy",
       .about = "binary cross-entropy of probabilities, behind a sigmoid; autocast refuses it",
       .letters = {kBatch, kClasses, kPixels},
       .example = "b512_o1000",
       .make = probabilities_loss},
      {.name = "mse",
       .about = "mean squared error alone; the target is 1 for the class of the label",
       .letters = {kBatch, kClasses, kPixels},
       .example = "b512_o1000",
       .make = plain_loss<LossKind::mse>},
      {.name = "smooth_l1",
       .about = "smooth L1 loss alone; the target is 1 for the class of the label",
       .letters = {kBatch, kClasses, kPixels,
                   setting('e', "percent by which the square ends before 1; 100: absolute differences", 100)},
       .example = "b512_o1000",
       .make = smooth_l1_alone},
      {.name = "focal",
       .about = "focal loss alone; the target is 1 for the class of the label",
       .letters = {kBatch, kClasses, kPixels},
       .example = "b512_o100",
       .make = plain_loss<LossKind::focal>},
      {.name = "ctc",
       .about = "connectionist temporal classification alone, of the features of drawn speech",
       .letters = {kBatch, {.letter = 't', .about = "time, the length of a sequence"}, kClasses},
       .example = "b32_t64_o32",
       .make = ctc_alone},
  };
}

}  // namespace halfmark::models
