// The subjects: single layers and models. A row holds everything that a trial needs to build one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/data.h"
#include "models/layer.h"
#include "models/namespaces.h"
#include "models/settings.h"

namespace halfmark::models {

struct Subject {
  std::string name;   // "linear", "conv2d", "batchnorm2d", "mlp", "convnet", ...
  std::string sizes;  // "b16_i32_h64_o8"
  Shape input;        // with the batch first
  DataKind data;
  int64_t classes;  // 0: no labels; the loss is the inner product of the output with fixed N(0, 1) / elements numbers
  std::function<LayerPtr(const Init&, const Settings&)> make;
  bool built_in = false;  // of a family, not added by a program of another project
  std::string id() const { return name + "/" + sizes; }
};

// Those that suites and globs choose from. Any other size is read from its id.
const std::vector<Subject>& subjects();
// The subject's model. Throws Error naming the subject if its `make` fails or returns nothing, or if two parameters or
// two states have the same name: gradients and statistics are identified by it.
LayerPtr make_model(const Subject& subject, const Init& init, const Settings& settings);

// Adds rows at the end. References and pointers to earlier rows become invalid.
void add_subjects(const std::vector<Subject>& more);
// One of the list, or that of a family at these sizes; it lives as long as the program. Throws Error that names the
// nearest known ones, or says what is wrong with the sizes. Call from one thread.
const Subject& subject_named(const std::string& id);
// The place in subjects(); those at other sizes follow in the order in which they were named.
size_t place_of(const Subject& subject);

}  // namespace halfmark::models
