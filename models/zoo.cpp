// The list of subjects, and those at other sizes.
#include "models/zoo.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/families.h"
#include "models/settings.h"

namespace halfmark::models {
namespace {

constexpr std::string_view kListed[] = {
    // Small enough for reference and simulated devices.
    "linear/b4_i16_o8",
    "linear/b8_i32_o16",
    "linear/b4_i16_o8_w1",
    "conv2d/b2_c4_o6_s6_k3",
    "conv2d/b2_c4_o8_s5_k1",
    "conv2d/b2_c4_o4_s7_k3_t2",
    "conv2d/b2_c4_o8_s6_k3_g2",
    "conv2d/b1_c3_o4_s8_k3_d2",
    "conv2d/b2_c4_o6_s6_k3_w1",
    "batchnorm2d/b4_c3_s4",
    "batchnorm2d/b4_c3_s4_m1",
    "batchnorm2d/b4_c3_s4_a0",
    "batchnorm1d/b8_c6",
    "batchnorm1d/b4_c3_t5",
    "batchnorm3d/b2_c3_d3_s4",
    "layernorm/b6_d12",
    "rmsnorm/b6_d12",
    "groupnorm/b3_c6_s4_g2",
    "relu/b2_c4_s5",
    "leaky_relu/b2_c4_s5",
    "sigmoid/b2_c4_s5",
    "tanh/b2_c4_s5",
    "silu/b2_c4_s5",
    "gelu/b2_c4_s5",
    "gelu_tanh/b2_c4_s5",
    "exp/b2_c4_s5",
    "square/b2_c4_s5",
    "maxpool/b2_c4_s6_k2",
    "maxpool/b2_c4_s7_k3_t2",  // windows overlap
    "avgpool/b2_c4_s6_k2",
    "globalpool/b2_c4_s5",
    "mlp/b8_i16_h24_o10",
    "logistic/b4_c1_s8",
    "convnet/b4_c1_s8_w4",
    "convtranspose2d/b2_c4_o3_s4_k3_t2",
    "upsample/b2_c3_s4_f2",
    "adaptivepool/b2_c3_s7_o3",
    "channelshuffle/b2_c6_s4_g2",
    "softmax/b6_d12",
    "attention/b2_h2_t6_d4",
    "attention/b2_h2_t6_d4_m2",
    "lstm/b3_t4_i5_h6",
    "lstm_cell/b3_i5_h6",
    "upsample_nearest/b2_c3_s4_f2",
    "to_anchors/b2_c6_s4_a3",
    "dropout/b2_c4_s5",
    "embedding/b4_t6_v40_d5",
    "position_embedding/b3_t4_d5",
    "take_step/b3_t4_d5",
    "to_sequence/b2_c4_s5",
    "flatten/b2_c4_s5",
    "add/b2_c4_s5",
    "concat/b2_c4_s5",
    "checkpoint/b6_d8_h12",
    "cross_entropy/b8_o10",
    "cross_entropy/b2_o5_s3x4_e10_i1_w1",
    "binary_cross_entropy_with_logits/b8_o10_w3",
    "mse/b8_o10",
    "smooth_l1/b8_o10_e50",
    "focal/b8_o10",
    "ctc/b2_t24_o12",
    "lenet5/b2_c1_s28",
    "resnet/b2_s8_n1_w4",
    "resnet50/b2_s16_n1_w2_o10",
    "xception/b2_s16_n1_w4_o10",
    "erfnet/b2_s16x24_n1_w4_o4",
    "gpt/b2_t8_n1_h2_d8_v27",
    "bert/b3_t6_n1_h2_d8_v64_o4",
    "lstm_classifier/b3_t5_n1_e6_h5_v64_o4",
    "speech/b2_f4_t16_h6",
    "detector/b2_s32_w4",

    // Models that learn in seconds.
    "lenet5/b64_c1_s28",
    "resnet/b64_s16_n1_w8",
    "resnet50/b16_s16_n1_w8_o10",
    "xception/b16_s16_n2_w4_o10",
    "erfnet/b8_s64x128_n1_w8_o4",
    "gpt/b32_t64_n2_h4_d64_v64",
    "bert/b64_t32_n2_h4_d64_v64_o4",
    "lstm_classifier/b64_t32_n1_e32_h64_v64_o4",
    "speech/b32_f16_t64_h32",
    "detector/b16_s64",
    "mlp/b32_i64_h128_o10",
    "logistic/b16_c3_s16",
    "convnet/b16_c3_s16_w16",

    // Large enough to measure throughput.
    "linear/b64_i1024_o1024",
    "linear/b512_i1024_o1024",
    "conv2d/b16_c64_o64_s28_k3",
    "conv2d/b16_c64_o64_s28_k1",
    "conv2d/b16_c64_o128_s28_k3_t2",
    "conv2d/b16_c64_o64_s28_k3_g64",
    "batchnorm2d/b16_c64_s28",
    "layernorm/b512_d768",
    "rmsnorm/b512_d768",
    "groupnorm/b16_c64_s28_g8",
    "relu/b16_c64_s28",
    "gelu/b16_c64_s28",
    "silu/b16_c64_s28",
    "maxpool/b16_c64_s28_k2",
    "avgpool/b16_c64_s28_k2",
    "globalpool/b16_c64_s28",
    "convtranspose2d/b16_c64_o32_s14_k3_t2",
    "softmax/b512_d1024",
    "attention/b8_h8_t128_d32",
    "lstm/b32_t32_i128_h128",
    "mlp/b128_i256_h1024_o10",
    "convnet/b32_c3_s32_w32",
};

std::vector<Subject> listed_subjects() {
  std::vector<Subject> all;
  for (const std::string_view id : kListed) {
    const size_t slash = id.find('/');
    const Family* family = family_named(id.substr(0, slash));
    HM_CHECK(family, "the list names '" + std::string(id) + "', which is of no family");
    all.push_back(subject_of(*family, id.substr(slash + 1)));
    HM_CHECK(all.back().id() == id, "the list names '" + std::string(id) + "', which is called " + all.back().id());
  }
  return all;
}

std::vector<Subject>& rows() {
  static std::vector<Subject> all = listed_subjects();
  return all;
}

// Subjects at sizes that are not in the list, in the order in which they were named.
std::deque<Subject>& others() {
  static std::deque<Subject> all;
  return all;
}

// The models that were added, at the batch that they came with.
std::deque<Subject>& models() {
  static std::deque<Subject> all;
  return all;
}

const Subject* model_named(std::string_view name) {
  const auto found =
      std::find_if(models().begin(), models().end(), [&](const Subject& one) { return one.name == name; });
  return found == models().end() ? nullptr : &*found;
}

Subject model_at(const Subject& model, std::string_view text) {
  static const SizeLetter kBatchOfModel = {.letter = 'b', .about = "batch"};
  const Sizes sizes(model.name, {&kBatchOfModel, 1}, text);
  std::vector<int64_t> extents(model.input.extents().begin(), model.input.extents().end());
  extents[0] = sizes['b'];
  Subject made = subject_of_network(Shape(extents), model.data, model.classes, *model.network);
  sizes.check_elements("the input", {made.input.elements()});
  made.loss = model.loss, made.settings = model.settings;
  made.name = model.name, made.sizes = sizes.text();
  return made;
}

}  // namespace

const std::vector<Subject>& subjects() { return rows(); }

void add_subjects(const std::vector<Subject>& more) { rows().insert(rows().end(), more.begin(), more.end()); }

void add_model(const Subject& model) {
  models().push_back(model);
  add_subjects({model});
}

namespace {

// Whether each layer can have the shape that it gets. A subject that only a function of a program knows is not checked.
void check_shapes(const Subject& subject) {
  if (!subject.network) return;
  try {
    (void)output_shape(*subject.network, subject.input);
  } catch (const Error& error) {
    throw Error(subject.id() + ": " + error.what());
  }
}

}  // namespace

bool has_sizes(std::string_view name) { return family_named(name) || model_named(name); }

const Subject& subject_named(const std::string& id) {
  const size_t slash = std::min(id.find('/'), id.size());
  std::vector<std::string> names, of_name;
  for (const Subject& subject : subjects()) {
    if (subject.id() == id) return subject;
    if (std::find(names.begin(), names.end(), subject.name) == names.end()) names.push_back(subject.name);
    if (subject.name == id.substr(0, slash)) of_name.push_back(subject.id());
  }
  const std::string name = id.substr(0, slash);
  if (slash == id.size() && has_sizes(name)) {
    const Family* family = family_named(name);
    throw Error(family ? name + " needs sizes, as " + name + "/" + std::string(family->example) +
                             "; its letters: " + letters_text(family->letters)
                       : name + " needs a batch, as " + model_named(name)->id());
  }
  if (slash == id.size() || (!has_sizes(name) && !of_name.empty()))
    throw_unknown_name("subject", id, of_name.empty() ? names : of_name);
  if (!has_sizes(name)) throw_unknown_name("subject", name, names);
  const Family* family = family_named(name);
  const std::string sizes = id.substr(slash + 1);
  Subject made = family ? subject_of(*family, sizes) : model_at(*model_named(name), sizes);
  if (made.id() != id) return subject_named(made.id());
  for (const Subject& other : others())
    if (other.id() == id) return other;
  check_shapes(made);
  return others().emplace_back(std::move(made));
}

size_t place_of(const Subject& subject) {
  const std::vector<Subject>& listed = subjects();
  if (!std::less<>()(&subject, listed.data()) && std::less<>()(&subject, listed.data() + listed.size()))
    return static_cast<size_t>(&subject - listed.data());
  const auto other =
      std::find_if(others().begin(), others().end(), [&](const Subject& one) { return &one == &subject; });
  return listed.size() + static_cast<size_t>(other - others().begin());
}

}  // namespace halfmark::models
