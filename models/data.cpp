// Procedural data: batches of independent samples.
#include "models/data.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "models/data_draw.h"
#include "models/draw.h"

namespace halfmark::models {
Batch draw_batch(DataKind kind, const Shape& shape, int64_t classes, RandomKey key, int64_t step) {
  const RandomKey stream = key.child(static_cast<uint64_t>(step));
  Batch batch;
  if (kind == DataKind::normal) {
    batch.x = draw_numbers(shape.elements(), [&](size_t i) { return stream.normal(i); });
    return batch;
  }
  const DataRow& row = row_of(kind);
  const int64_t least = least_drawn_classes(kind);
  HM_CHECK(classes >= least, "data " + std::string(row.name) + " need at least " + std::to_string(least) +
                                 " classes; " + std::to_string(classes) + " were requested");
  classes = std::min(classes, row.drawn_classes);
  HM_CHECK(row.rank == 0 || shape.rank() == row.rank, "cannot generate data of shape " + shape.text() + ": " +
                                                          std::string(row.name) + " need rank " +
                                                          std::to_string(row.rank));
  HM_CHECK(kind != DataKind::speech || (shape[2] == 1 && shape[3] >= 8),
           "cannot generate data of shape " + shape.text() + ": speech needs [n, features, 1, at least 8 steps]");
  const Shape labels = target_shape(kind, shape);
  const int64_t sample = shape[0] ? shape.elements() / shape[0] : 0,
                targets = shape[0] && row.has_labels() ? labels.elements() / shape[0] : 0;
  batch.x.resize(static_cast<size_t>(shape.elements()));
  batch.labels.resize(static_cast<size_t>(targets * shape[0]));
  parallel_for(shape[0], std::max<int64_t>(1, kDrawnAtATime / std::max<int64_t>(1, sample)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t n = begin; n < end; ++n) {
                   const RandomKey own = stream.child(static_cast<uint64_t>(n));
                   double *x = batch.x.data() + n * sample, *y = batch.labels.data() + n * targets;
                   const auto label =
                       static_cast<int64_t>(stream.below(static_cast<uint64_t>(n), static_cast<uint64_t>(classes)));
                   if (labels.rank() == 1) *y = static_cast<double>(label);
                   switch (kind) {
                     case DataKind::images:
                       data_draw::image(shape, label, own, x);
                       break;
                     case DataKind::points:
                       data_draw::point(sample, label, own, x);
                       break;
                     case DataKind::tokens:
                       data_draw::tokens(sample, label, own, x);
                       break;
                     case DataKind::streets:
                       data_draw::street(shape, classes, own, x, y);
                       break;
                     case DataKind::text:
                       data_draw::text(sample, own, x, y);
                       break;
                     case DataKind::speech:
                       data_draw::speech(shape[1], shape[3], classes, own, x, y);
                       break;
                     case DataKind::indices:
                       data_draw::indices(sample, classes, own, x);
                       break;
                     case DataKind::boxes:
                       data_draw::boxes(shape, classes, own, x, y);
                       break;
                     case DataKind::logits:
                       data_draw::logits(sample, labels.rank() == 1 ? 0 : targets, classes, own, x, y);
                       break;
                     case DataKind::normal:
                       break;
                   }
                 }
               });
  return batch;
}

}  // namespace halfmark::models
