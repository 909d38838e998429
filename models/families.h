// The families of subjects: what a name such as "conv2d" builds at any sizes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/sizes.h"
#include "models/subject.h"

namespace halfmark::models {

struct Family {
  std::string_view name, about;
  std::vector<SizeLetter> letters;
  std::string_view example;       // sizes
  Subject (*make)(const Sizes&);  // all but name and sizes; throws Error for sizes that cannot be
};

const std::vector<Family>& families();
std::vector<Family> layer_families();               // the part of them that is of single layers of images and vectors
std::vector<Family> sequence_families();            // of single layers of sequences
std::vector<Family> loss_families();                // that of losses alone
std::vector<Family> published_families();           // that of models people know
const Family* family_named(std::string_view name);  // null: there is none

// Throws Error that says what is wrong with the sizes.
Subject subject_of(const Family& family, std::string_view sizes);

}  // namespace halfmark::models
