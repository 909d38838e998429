// A model as data: layers in sequence, and layers that join branches. The built-in subjects are written in this form, and
// a model file is this form as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "models/layer.h"
#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/settings.h"

namespace halfmark::models {

struct LayerSpec {
  std::string kind;  // a name of layer_kinds()
  std::string name;  // unique in the network; parameters are called NAME.weight and so on
  Arguments arguments = {};
  std::vector<std::vector<LayerSpec>> branches = {};  // an empty one is the input itself
  size_t line = 0;                                    // of the file that it comes from, for messages; 0: of none
};

struct Network {
  std::vector<LayerSpec> layers;
};

// A layer that cannot be: "layer conv1 (conv2d): kernel is 0, not in 1 ... 1024".
class LayerError : public Error {
 public:
  LayerError(const LayerSpec& spec, const std::string& what)
      : Error("layer " + spec.name + " (" + spec.kind + "): " + what), line_(spec.line) {}
  size_t line() const { return line_; }  // of the file that the layer comes from; 0: of none

 private:
  size_t line_;
};

// Checks every layer and its shapes. Throws LayerError.
// Needs no memory for the parameters, however large they are.
Shape output_shape(const Network& network, const Shape& input);

struct LayerFacts {
  const LayerSpec* layer;  // of the network
  int depth;               // of branches around it
  Shape output;
  int64_t parameters = 0;    // without those of its branches
  double forward_flops = 0;  // likewise; multiply-adds count two
};
// Of every layer, in the order in which they run: branches before the layer that joins them. Throws likewise.
std::vector<LayerFacts> layer_facts(const Network& network, const Shape& input);

LayerPtr build(const Network& network, const std::string& name, const Shape& input, const Init& init,
               const Settings& settings);

// Names of the layers that Policy::layers can give a policy of their own, in the order in which they run, then "loss".
std::vector<std::string> layers_with_policy(const Network& network);
// Of these the layers whose products a recipe quantises.
std::vector<std::string> quantised_layers(const Network& network);

// One line that two networks share exactly if they compute the same: the basis of a hash.
std::string text_of(const Network& network);

}  // namespace halfmark::models
