// Networks drawn from a seed, with planted layers that a policy in half cannot run: what `fp32_plan` must find is known from
// the construction alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/tensor/random.h"
#include "models/subject.h"

namespace halfmark::accuracy {

struct PlantedNetwork {
  Subject subject;
  std::string policy;
  // In running order. A tensor beyond fp16 plants two layers: the one that computes it, and the one that reads it.
  std::vector<std::string> planted;
  std::vector<std::string> causes;  // one for each
};

enum class Fault : uint8_t { exp_overflow, square_overflow, sum_overflow, mask, variance, long_sum, cancellation };

struct PlantedRequest {
  uint64_t seed = 0;
  size_t layers = 30;                      // at least this many
  std::vector<Fault> faults;               // in the order in which they are planted
  bool at_first = false, at_last = false;  // the first fault is the first layer, the last one is the last layer
  int64_t sum_terms = 16384;               // of long_sum
};

class PlantedNetworkMaker {
 public:
  explicit PlantedNetworkMaker(const PlantedRequest& request) : request_(request), key_(request.seed) {}

  PlantedNetwork make() {
    for (const Fault fault : request_.faults) is_sequence_ = is_sequence_ || fault == Fault::mask;
    for (const Fault fault : request_.faults)
      if (fault == Fault::long_sum) made_.policy = "fp16-sum16";
    const bool is_wide = made_.policy == "fp16-sum16";  // too many channels for each pixel of an image
    if (made_.policy.empty()) made_.policy = "fp16";
    if (!is_sequence_ && !is_wide && !request_.at_first && draw(2) == 0) is_image_ = true;
    std::vector<Fault> inside = request_.faults;
    Settings settings;
    Shape input = is_image_      ? Shape{kBatch, kFeatures, 4, 4}
                  : is_sequence_ ? Shape{kBatch / 2, kSteps, kFeatures}
                                 : Shape{kBatch, kFeatures};
    if (request_.at_first) first_fault(inside.front(), input, settings), inside.erase(inside.begin());
    Fault at_end{};
    if (request_.at_last) at_end = inside.back(), inside.pop_back();
    const size_t blocks = inside.size() + 1;
    for (size_t i = 0; i < blocks; ++i) {
      const size_t until = request_.layers * (i + 1) / blocks;
      do benign(layers_);
      while (count_ < until);
      if (i < inside.size()) residual(inside[i]);
    }
    if (is_image_) {
      add(layers_, "global_avg_pool2d"), add(layers_, "flatten");
      is_image_ = false;
    }
    const bool is_labelled = !request_.at_last && !is_sequence_ && !request_.at_first && draw(2) == 0;
    if (request_.at_last)
      normal_form(layers_), plant(layers_, at_end, true);
    else
      linear(layers_, kFeatures);
    made_.subject = subject_of_network(input, is_labelled && input.rank() == 2 ? DataKind::points : DataKind::normal,
                                       is_labelled && input.rank() == 2 ? kFeatures : 0, Network{std::move(layers_)});
    made_.subject.name = "planted", made_.subject.sizes = "b" + std::to_string(request_.seed);
    made_.subject.settings = settings;
    return std::move(made_);
  }

 private:
  using Specs = std::vector<LayerSpec>;
  static constexpr int64_t kBatch = 16, kFeatures = 16, kSteps = 4;

  uint64_t draw(uint64_t below) { return static_cast<uint64_t>(key_.uniform(drawn_++) * static_cast<double>(below)); }

  std::string add(Specs& to, const std::string& kind, Arguments arguments = {}) {
    const std::string name = kind + "_" + std::to_string(++count_);
    to.push_back({.kind = kind, .name = name, .arguments = std::move(arguments)});
    return name;
  }
  void planted(const std::string& name, const char* cause) {
    made_.planted.push_back(name), made_.causes.emplace_back(cause);
  }

  // Normal weights that give outputs of `size` for `inputs` inputs of size 1.
  std::string linear(Specs& to, int64_t out, double size = 1.2, double inputs = kFeatures, double bias = 0) {
    const Arguments start = {
        {"start", std::string("normal")}, {"deviation", size / std::sqrt(inputs)}, {"bias_start", bias}};
    Arguments arguments = start;
    arguments["out"] = out;
    if (!is_image_) return add(to, "linear", arguments);
    arguments["kernel"] = int64_t{1};
    return add(to, "conv2d", arguments);
  }
  std::string normal_form(Specs& to) {
    if (is_image_) return draw(2) ? add(to, "batchnorm2d") : add(to, "group_norm", {{"groups", int64_t{1}}});
    if (is_sequence_) return add(to, draw(2) ? "layer_norm" : "rms_norm");
    return add(to, draw(2) ? "batchnorm1d" : "layer_norm");
  }

  void benign(Specs& to) {
    constexpr const char* kActivations[] = {"relu", "gelu", "silu", "tanh", "leaky_relu"};
    const auto activation = [&](Specs& specs) { add(specs, kActivations[draw(5)]); };
    switch (draw(4)) {
      case 0:
        linear(to, kFeatures), normal_form(to), activation(to);
        break;
      case 1:
        linear(to, kFeatures), activation(to);
        normal_form(to);
        break;
      case 2: {  // a residual block
        Specs branch;
        normal_form(branch), linear(branch, kFeatures), activation(branch), linear(branch, kFeatures, 0.7);
        to.push_back({.kind = "add", .name = "sum_" + std::to_string(++sums_), .branches = {branch, {}}});
        break;
      }
      default:
        if (is_sequence_) {
          Specs branch;
          add(branch, "layer_norm"), linear(branch, 3 * kFeatures);
          add(branch, "self_attention", {{"heads", int64_t{2}}, {"fused", draw(2) == 0}});
          linear(branch, kFeatures);
          to.push_back({.kind = "add", .name = "sum_" + std::to_string(++sums_), .branches = {branch, {}}});
        } else {
          linear(to, kFeatures), normal_form(to);
        }
    }
  }

  // x + fault(norm(x)), so that errors of what is before it are not multiplied.
  void residual(Fault fault) {
    Specs branch;
    normal_form(branch);
    plant(branch, fault, false);
    to_residual(branch);
  }
  void to_residual(Specs& branch) {
    layers_.push_back({.kind = "add", .name = "sum_" + std::to_string(++sums_), .branches = {branch, {}}});
  }

  // `is_last`: nothing reads the result, which may stay beyond fp16.
  void plant(Specs& to, Fault fault, bool is_last) {
    switch (fault) {
      case Fault::exp_overflow:  // exp(12 +- 0.5) is 1.6e5
        linear(to, kFeatures, 0.5, kFeatures, 12);
        planted(add(to, "exp"), "range");
        if (is_last) return;
        planted(normal_form(to), "range");
        linear(to, kFeatures, 0.5);
        return;
      case Fault::square_overflow:  // the square of 250
        linear(to, kFeatures, 250);
        planted(add(to, "square"), "range");
        if (!is_last) planted(linear(to, kFeatures, 0.6 / 62500), "range");
        return;
      case Fault::sum_overflow: {  // squares of 20, then a sum with weights of 100: 2.8e5
        linear(to, kFeatures, 20);
        add(to, "square");
        planted(linear(to, kFeatures, 400), "range");
        if (is_last) return;
        planted(normal_form(to), "range");
        linear(to, kFeatures, 0.5);
        return;
      }
      case Fault::mask:  // scores of 1e-3, so that fp32 may lose them beside -1e9
        linear(to, 3 * kFeatures, 0.05);
        planted(masked_attention(to), "range");
        if (!is_last) linear(to, kFeatures, 20);
        return;
      case Fault::variance:  // 390^2 in one step with momentum 1
        linear(to, kFeatures, 390);
        planted(add(to, is_image_ ? "batchnorm2d" : "batchnorm1d", {{"momentum", 1.0}}), "range");
        if (!is_last) linear(to, kFeatures, 1);
        return;
      case Fault::long_sum:  // the mean of many positive numbers: the sum grows until its ulp is twice a term
        linear(to, 2), linear(to, request_.sum_terms, 1.2, 2);
        add(to, "relu");
        planted(mean(to), "accumulation");
        if (!is_last) linear(to, kFeatures, 2, 1);
        return;
      case Fault::
          cancellation:  // 1000 +- 1, where fp16 has steps of 1/2, and then the mean of each sample is subtracted
        planted(linear(to, kFeatures, 1, kFeatures, 1000), "cancellation");
        planted(centred(to), "cancellation");
        if (!is_last) linear(to, kFeatures, 1);
        return;
    }
  }
  // Subtracts the mean of each sample, in evaluation too.
  std::string centred(Specs& to) {
    return is_image_ ? add(to, "group_norm", {{"groups", int64_t{1}}}) : add(to, "layer_norm");
  }
  std::string masked_attention(Specs& to) {
    return add(to, "self_attention",
               {{"heads", int64_t{2}},
                {"fused", draw(2) == 0},
                {"lengths", std::vector<double>{4, 0, 2}},
                {"mask_value", -1e9}});
  }
  std::string mean(Specs& to) {
    return add(to, "linear", {{"out", int64_t{1}}, {"start", std::string("mean")}, {"bias", false}});
  }

  // The data themselves are what the fault needs.
  void first_fault(Fault fault, Shape& input, Settings& settings) {
    switch (fault) {
      case Fault::exp_overflow:
        settings.input_scale = 0.5, settings.input_offset = 12;
        planted(add(layers_, "exp"), "range");
        planted(normal_form(layers_), "range");
        return;
      case Fault::square_overflow:
        settings.input_scale = 250;
        planted(add(layers_, "square"), "range");
        planted(linear(layers_, kFeatures, 1.0 / 62500), "range");
        return;
      case Fault::sum_overflow:
        settings.input_scale = 2e4;
        planted(linear(layers_, kFeatures, 10), "range");
        planted(normal_form(layers_), "range");
        return;
      case Fault::mask:
        settings.input_scale = 0.05;
        input = Shape{kBatch / 2, kSteps, 3 * kFeatures};
        planted(masked_attention(layers_), "range");
        linear(layers_, kFeatures, 20);
        return;
      case Fault::variance:
        settings.input_scale = 700;
        planted(add(layers_, "batchnorm1d", {{"momentum", 1.0}}), "range");
        return;
      case Fault::long_sum:
        settings.input_scale = 0.1, settings.input_offset = 0.5;
        input = Shape{kBatch, request_.sum_terms};
        planted(mean(layers_), "accumulation");
        linear(layers_, kFeatures, 2, 1);
        return;
      case Fault::cancellation:
        settings.input_offset = 1000;
        planted(centred(layers_), "cancellation");
        return;
    }
  }

  PlantedRequest request_;
  RandomKey key_;
  uint64_t drawn_ = 0;
  size_t count_ = 0, sums_ = 0;
  bool is_sequence_ = false, is_image_ = false;
  Specs layers_;
  PlantedNetwork made_;
};

}  // namespace halfmark::accuracy
