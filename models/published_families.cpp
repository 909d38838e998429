// The families of models that people know (published.h), and how they are trained.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/anchors.h"
#include "models/detector.h"
#include "models/families.h"
#include "models/published.h"

namespace halfmark::models {
namespace {

template <int64_t value>
Extent usually(const Sizes&) {
  return {value, value};
}
// A letter whose usual value, as text and as number, is the published one.
template <int64_t value>
SizeLetter with_usual(char letter, std::string_view about, std::string_view text, int64_t least = 1) {
  return {.letter = letter, .about = about, .usual = text, .usual_value = usually<value>, .least = least};
}

Shape colour_image(const Sizes& s, int64_t channels = 3) {
  const Extent size = s.extent('s');
  s.check_elements("the input", {s['b'], channels, size.h, size.w});
  return {s['b'], channels, size.h, size.w};
}

Settings adam(OptimizerKind kind, double rate, double weight_decay = 0) {
  Settings settings;
  settings.rate = rate, settings.momentum = 0, settings.weight_decay = weight_decay;
  settings.optimizer.kind = kind;
  return settings;
}

Subject classifier(const Shape& input, DataKind data, int64_t classes, Network network, const Settings& settings = {}) {
  Subject subject = subject_of_network(input, data, classes, std::move(network));
  subject.settings = settings;
  return subject;
}

Subject lenet5(const Sizes& s) {
  const Shape image = colour_image(s, s['c']);
  return classifier(image, DataKind::images, s['o'], published::lenet5(image[2], s['o']));
}
Subject resnet(const Sizes& s) {
  return classifier(colour_image(s), DataKind::images, s['o'], published::resnet(s['n'], s['w'], s['o']));
}
Subject resnet50(const Sizes& s) {
  const Shape image = colour_image(s);
  return classifier(image, DataKind::images, s['o'], published::resnet50(image[2], s['n'], s['w'], s['o']));
}
Subject xception(const Sizes& s) {
  s.check(s['w'] % 4 == 0,
          "w (width) is " + std::to_string(s['w']) + "; one stage has 91/4 of it, so it is a multiple of 4");
  const Shape image = colour_image(s);
  // At the rate of the others, 0.05, the small form of the suites diverges under fp32; at 0.01 its loss after 100 steps
  // depends on any rounding, that of tf32 too.
  Settings settings;
  settings.rate = 0.005;
  return classifier(image, DataKind::images, s['o'], published::xception(image[2], s['n'], s['w'], s['o']), settings);
}
Subject erfnet(const Sizes& s) {
  const Shape image = colour_image(s);
  s.check(image[2] % 8 == 0 && image[3] % 8 == 0, "the image is halved three times: its size must be a multiple of 8");
  s.check(s['w'] > 3,
          "w (width) is " + std::to_string(s['w']) + "; the first layer has w channels, more than the 3 of the image");
  // Adam with this rate and decay: Romera et al. 2018.
  Subject subject = classifier(image, DataKind::streets, s['o'], published::erfnet(s['n'], s['w'], s['o']),
                               adam(OptimizerKind::adam, 5e-4, 1e-4));
  subject.loss.ignored = kUnlabelled;
  return subject;
}
void check_heads(const Sizes& s) {
  s.check(s['d'] % s['h'] == 0,
          "h (heads) is " + std::to_string(s['h']) + ", which does not divide d (width), " + std::to_string(s['d']));
}

void check_tokens(const Sizes& s) {
  s.check(s['v'] >= kTokenKinds, "v (vocabulary) is " + std::to_string(s['v']) + ", drawn sequences need " +
                                     std::to_string(kTokenKinds) + " or more");
}

Subject gpt(const Sizes& s) {
  check_heads(s);
  // Of drawn text a larger one: the data are checked where they are known (least_drawn_classes, check_fits).
  const int64_t least = row_of(DataKind::text).least_classes;
  s.check(s['v'] >= least,
          "v (vocabulary) is " + std::to_string(s['v']) + "; it needs " + std::to_string(least) + " or more");
  return classifier({s['b'], s['t']}, DataKind::text, s['v'], published::gpt(s['t'], s['n'], s['h'], s['d'], s['v']),
                    adam(OptimizerKind::adamw, 1e-3, 0.1));
}
Subject bert(const Sizes& s) {
  check_heads(s);
  check_tokens(s);
  return classifier({s['b'], s['t']}, DataKind::tokens, s['o'],
                    published::bert(s['t'], s['n'], s['h'], s['d'], s['v'], s['o']),
                    adam(OptimizerKind::adamw, 1e-3, 0.01));
}
Subject lstm_classifier(const Sizes& s) {
  check_tokens(s);
  return classifier({s['b'], s['t']}, DataKind::tokens, s['o'],
                    published::lstm_classifier(s['n'], s['e'], s['h'], s['v'], s['o']),
                    adam(OptimizerKind::adam, 2e-3));
}
Subject speech(const Sizes& s) {
  s.check(s['t'] >= 8, "t (time) is " + std::to_string(s['t']) + "; a symbol takes at least 8 steps");
  Subject subject = classifier({s['b'], s['f'], 1, s['t']}, DataKind::speech, s['o'], published::speech(s['h'], s['o']),
                               adam(OptimizerKind::adam, 2e-3));
  subject.loss.kind = LossKind::ctc;
  return subject;
}

Subject detector(const Sizes& s) {
  const Shape image = colour_image(s);
  s.check(image[2] % kAnchorMultiple == 0 && image[3] % kAnchorMultiple == 0,
          "the image is halved five times: its size must be a multiple of 32");
  Subject subject = classifier(image, DataKind::boxes, s['o'], published::detector(s['w'], s['n'], s['o']),
                               adam(OptimizerKind::adam, 2e-3));
  subject.loss.kind = LossKind::detection;
  subject.loss.beta = 0.1;
  return subject;
}

}  // namespace

std::vector<Family> published_families() {
  const SizeLetter batch = {.letter = 'b', .about = "batch"}, heads = {.letter = 'h', .about = "heads"},
                   time = {.letter = 't', .about = "time, the length of a sequence"},
                   layers = {.letter = 'n', .about = "layers"}, features = {.letter = 'd', .about = "features"},
                   vocabulary = {.letter = 'v', .about = "vocabulary"}, hidden = {.letter = 'h', .about = "hidden"},
                   image = {.letter = 's', .about = "image size", .is_pair = true};
  const auto ten = with_usual<10>('o', "classes", "10", 2), thousand = with_usual<1000>('o', "classes", "1000", 2),
             two = with_usual<2>('o', "classes", "2", 2);
  return {
      {.name = "lenet5",
       .about = "LeNet-5 with ReLU and maximum pools; trains on drawn images",
       .letters = {batch, {.letter = 'c', .about = "channels"}, image, ten},
       .example = "b64_c1_s28",
       .make = lenet5},
      {.name = "resnet",
       .about = "a ResNet of CIFAR-10, with the usual values ResNet-20; trains on drawn images",
       .letters = {batch, image, with_usual<3>('n', "blocks in each of three stages", "3"),
                   with_usual<16>('w', "width of the first stage", "16"), ten},
       .example = "b128_s32",
       .make = resnet},
      {.name = "resnet50",
       .about = "ResNet-50 v1.5; images below 64 pixels have a 3x3 stem without pool",
       .letters = {batch, image, with_usual<0>('n', "bottlenecks in each stage; 0: 3, 4, 6, 3", "0", 0),
                   with_usual<64>('w', "width of the first stage", "64"), thousand},
       .example = "b2_s224",
       .make = resnet50},
      {.name = "xception",
       .about = "Xception; images below 64 pixels have a first convolution without stride",
       .letters = {batch, image, with_usual<8>('n', "blocks of the middle flow", "8"),
                   with_usual<32>('w', "width of the first convolution", "32"), thousand},
       .example = "b2_s299",
       .make = xception},
      {.name = "erfnet",
       .about = "ERFNet, a class for each pixel; trains on drawn street scenes",
       .letters = {batch, image, with_usual<2>('n', "depth; 2: as published, 1: few blocks", "2"),
                   with_usual<16>('w', "width of the first layer", "16"), with_usual<20>('o', "classes", "20", 2)},
       .example = "b1_s512x1024",
       .make = erfnet},
      {.name = "gpt",
       .about = "a decoder like GPT-2; trains on drawn text",
       .letters = {batch, time, layers, heads, features, vocabulary},
       .example = "b32_t64_n2_h4_d64_v64",
       .make = gpt},
      {.name = "bert",
       .about = "an encoder like BERT with a classifier; trains on drawn sequences",
       .letters = {batch, time, layers, heads, features, vocabulary, two},
       .example = "b64_t32_n2_h4_d64_v64_o4",
       .make = bert},
      {.name = "lstm_classifier",
       .about = "embedding, LSTMs, a linear layer on the last step; trains on drawn sequences",
       .letters = {batch, time, layers, {.letter = 'e', .about = "embedded features"}, hidden, vocabulary, two},
       .example = "b64_t32_n1_e32_h64_v64_o4",
       .make = lstm_classifier},
      {.name = "speech",
       .about = "convolutions, a bidirectional LSTM and CTC; trains on drawn features",
       .letters = {batch, {.letter = 'f', .about = "features"}, time, hidden, with_usual<11>('o', "classes", "11", 2)},
       .example = "b32_f16_t64_h32",
       .make = speech},
      {.name = "detector",
       .about = "a small RetinaNet over a pyramid of three levels; trains on drawn objects with boxes",
       .letters = {batch, image, with_usual<16>('w', "width of all convolutions", "16"),
                   with_usual<1>('n', "convolutions of a tower", "1"), with_usual<3>('o', "classes", "3", 3)},
       .example = "b16_s64",
       .make = detector},
  };
}

}  // namespace halfmark::models
