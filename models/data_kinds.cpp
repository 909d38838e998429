#include "models/data_kinds.h"

#include <string>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/anchors.h"

namespace halfmark::models {
namespace {

constexpr int64_t kMostClasses = int64_t{1} << 24;

constexpr DataRow kData[] = {
    {.kind = DataKind::normal, .name = "normal", .about = "N(0, 1) numbers, without labels", .from_layer = true},
    {.kind = DataKind::images,
     .name = "images",
     .about = "images of shapes of ten classes",
     .rank = 4,
     .least_classes = 2,
     .drawn_classes = 10},
    {.kind = DataKind::points,
     .name = "points",
     .about = "vectors of ten classes that no linear model separates",
     .rank = 2,
     .least_classes = 2,
     .drawn_classes = 10},
    {.kind = DataKind::streets,
     .name = "streets",
     .about = "street scenes with a class for each pixel: road, building, sky, car, pole, person; 255 is no label",
     .rank = 4,
     .least_classes = 2,
     .drawn_classes = 6},
    {.kind = DataKind::tokens,
     .name = "tokens",
     .about = "sequences of tokens 0 ... 63, of four classes that differ in which token follows which",
     .rank = 2,
     .least_classes = 2,
     .drawn_classes = 4,
     .has_indices = true},
    {.kind = DataKind::text,
     .name = "text",
     .about = "characters 0 ... 26 of drawn words; the label of each is the next one",
     .rank = 2,
     .least_classes = 2,
     .drawn_classes = 27,
     .draws_all = true,
     .has_indices = true},
    {.kind = DataKind::speech,
     .name = "speech",
     .about =
         "features [channels, 1, time] of drawn symbols, and the symbols without their times; class 0 is no symbol",
     .rank = 4,
     .least_classes = 2,
     .drawn_classes = 11},
    {.kind = DataKind::indices,
     .name = "indices",
     .about = "random whole numbers below the number of classes, without labels",
     .rank = 2,
     .least_classes = 1,
     .drawn_classes = kMostClasses,
     .has_indices = true},
    {.kind = DataKind::boxes,
     .name = "boxes",
     .about = "images of one to three objects of three classes (disc, frame, triangle), with a box around each",
     .rank = 4,
     .least_classes = 3,
     .drawn_classes = 3},
    {.kind = DataKind::logits,
     .name = "logits",
     .about = "N(0, 1) numbers and a random label for each place: a loss alone, whose \"layers\" may be empty",
     .least_classes = 2,
     .drawn_classes = kMostClasses,
     .from_layer = true},
};

}  // namespace

std::span<const DataRow> data_rows() { return kData; }
const DataRow& data_named(std::string_view name) { return named("data", kData, name); }
const DataRow& row_of(DataKind kind) {
  for (const DataRow& row : kData)
    if (row.kind == kind) return row;
  throw Error("a kind of data has no row");
}

int64_t least_drawn_classes(DataKind kind) {
  const DataRow& row = row_of(kind);
  return row.draws_all ? row.drawn_classes : row.least_classes;
}

Shape target_shape(DataKind kind, const Shape& input) {
  switch (kind) {
    case DataKind::normal:
    case DataKind::indices:
      return {};
    case DataKind::boxes:
      return {input[0], kMostObjects, kNumbersOfObject};
    case DataKind::logits:
      if (input.rank() == 3) return {input[0], input[1]};
      if (input.rank() == 4) return {input[0], input[2], input[3]};
      return {input[0]};
    case DataKind::images:
    case DataKind::points:
    case DataKind::tokens:
      return {input[0]};
    case DataKind::streets:
      return {input[0], input[2], input[3]};
    case DataKind::text:
      return input;
    case DataKind::speech:
      return {input[0], 2 + most_symbols(input[3])};
  }
  throw Error("unknown kind of data");
}

void check_output(DataKind kind, const Shape& input, int64_t classes, const Shape& output) {
  Shape wanted;
  bool fits = false;
  switch (kind) {
    case DataKind::normal:
    case DataKind::indices:
      return;
    case DataKind::boxes:
      wanted = {input[0], static_cast<int64_t>(anchors_of(input[2], input[3]).size()), classes + 4};
      break;
    case DataKind::logits:
      wanted = input;
      fits = false;
      HM_CHECK(input.rank() >= 2 && input.rank() <= 4 && input[input.rank() == 4 ? 1 : input.rank() - 1] == classes,
               "logits have the shape [n, classes], [n, t, classes] or [n, classes, h, w], not " + input.text());
      break;
    case DataKind::images:
    case DataKind::points:
    case DataKind::tokens:
      wanted = {input[0], classes};
      break;
    case DataKind::streets:
      wanted = {input[0], classes, input[2], input[3]};
      break;
    case DataKind::text:
      wanted = {input[0], input[1], classes};
      break;
    case DataKind::speech: {
      // A repeated symbol needs a step between its two.
      const int64_t least = 2 * most_symbols(input[3]) - 1;
      wanted = {input[0], least, classes};
      fits = output.rank() == 3 && output[0] == input[0] && output[1] >= least && output[2] == classes;
      break;
    }
  }
  HM_CHECK(fits || output == wanted, "the last layer gives " + output.text() + ", the loss needs " + wanted.text() +
                                         (kind == DataKind::speech ? " or more steps" : "") + " for " +
                                         std::to_string(classes) + " classes");
}

int64_t most_symbols(int64_t length) { return length / 8; }

}  // namespace halfmark::models
