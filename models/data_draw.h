// One sample of each kind of drawn data, for data.cpp. `key` is that of the sample.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor/random.h"
#include "kernels/tensor/shape.h"
#include "models/data_kinds.h"
#include "models/namespaces.h"

namespace halfmark::models::data_draw {

void image(const Shape& shape, int64_t label, RandomKey key, double* pixels);                     // [c, h, w]
void street(const Shape& shape, int64_t classes, RandomKey key, double* pixels, double* labels);  // and [h, w]
void point(int64_t width, int64_t label, RandomKey key, double* x);
// x [elements], and a label below `classes` for each of `places`.
void logits(int64_t elements, int64_t places, int64_t classes, RandomKey key, double* x, double* labels);
void indices(int64_t length, int64_t count, RandomKey key, double* x);
void boxes(const Shape& shape, int64_t classes, RandomKey key, double* pixels, double* labels);  // target_shape
void tokens(int64_t length, int64_t label, RandomKey key, double* x);
void text(int64_t length, RandomKey key, double* x, double* next);  // `next`: the character after each of x
// x [features, length]; target: 0 for the steps of the output, the number of symbols, then as many as may be.
void speech(int64_t features, int64_t length, int64_t classes, RandomKey key, double* x, double* target);

}  // namespace halfmark::models::data_draw
