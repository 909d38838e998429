// Shared by the files of families: letters of sizes, and what a single layer needs to be a subject.
#pragma once

#include <utility>

#include "models/sizes.h"
#include "models/subject.h"

namespace halfmark::models::family_parts {

inline Extent one(const Sizes&) { return {1, 1}; }
inline Extent none(const Sizes&) { return {0, 0}; }

inline const SizeLetter kBatch = {.letter = 'b', .about = "batch"};
inline const SizeLetter kChannels = {.letter = 'c', .about = "channels"};
inline const SizeLetter kClasses = {.letter = 'o', .about = "classes", .least = 2};
inline const SizeLetter kFeatures = {.letter = 'd', .about = "features"};
inline const SizeLetter kImage = {.letter = 's', .about = "image size", .is_pair = true};
inline const SizeLetter kTime = {.letter = 't', .about = "time, the length of a sequence"};
inline const SizeLetter kTokens = {.letter = 'b', .about = "tokens, batch times length"};

inline Shape image_of(const Sizes& s) {
  const Extent size = s.extent('s');
  s.check_elements("the input", {s['b'], s['c'], size.h, size.w});
  return {s['b'], s['c'], size.h, size.w};
}

// Without labels: a single layer.
inline Subject alone(const Shape& input, LayerSpec layer) {
  return subject_of_network(input, DataKind::normal, 0, {{std::move(layer)}});
}

}  // namespace halfmark::models::family_parts
