// The mask harness: what a softmax makes of masked scores, for each constant that implementations add to a masked score, for two
// masks added, and for a row in which everything is masked.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

// Scores of masked places in the second row, which is masked altogether. fp16: -65504 - 16 is half way to -65536, so
// -65504 - 20 is infinite.
constexpr double kLowScore = -20;

const std::vector<MetricRow>& mask_table() {
  static const std::vector<MetricRow> rows = {
      {"mask.value", "1", Better::neither, Kind::information, "at MASK: the constant as the mask's dtype stores it"},
      {"mask.nan", "1", Better::lower, Kind::bounded,
       "share of the probabilities that are NaN. At MASK/one: a mask added once; at MASK/two: two such masks added one "
       "after "
       "the other. MASK is -1e4, -1e9, lowest (the lowest finite number of the mask's dtype), -inf, boolean"},
      {"mask.nan_partial_rows", "1", Better::lower, Kind::bounded,
       "likewise: share of the rows with an unmasked place that have a NaN"},
      {"mask.leaked", "1", Better::lower, Kind::bounded,
       "likewise: largest sum of the probabilities of masked places over the rows with an unmasked place; NaN if one "
       "is"},
      {"mask.full_row", "1", Better::neither, Kind::information,
       "likewise: sum of the probabilities of the first row, in which every place is masked: 1 it attends to masked "
       "places, 0 "
       "to nothing, NaN"},
      {"mask.full_low_row", "1", Better::neither, Kind::information,
       "likewise for the second row, all of whose places are masked and have the score -20"},
      {"mask.error", "1", Better::lower, Kind::bounded,
       "likewise: root of the nmse of the rows with an unmasked place against a softmax in fp64 over their unmasked "
       "places"},
      {"mask.rows", "1", Better::neither, Kind::information, "rows with an unmasked place"},
      {"mask.unsupported", "1", Better::lower, Kind::information, "1: the device has no row for the operation"},
  };
  return rows;
}

// A constant that stands for "masked". boolean: a mask of bytes, and a softmax that gives 0 to a row without places.
struct Masking {
  std::string_view name;
  double value;  // as drawn; lowest is replaced by that of the dtype
  bool is_lowest = false, is_boolean = false;
};
constexpr std::array<Masking, 5> kMaskings = {
    {{"-1e4", -1e4}, {"-1e9", -1e9}, {"lowest", 0, true}, {"-inf", -HUGE_VAL}, {"boolean", -HUGE_VAL, false, true}}};

struct MaskedScores {
  int64_t rows = 0, places = 0;
  std::vector<double> scores;  // as the low dtype stores them
  bool is_masked(int64_t row, int64_t place) const { return row < 2 || place >= places / 2; }
};

// Normal scores. Rows 0 and 1 are masked altogether, and the second half of every other row.
MaskedScores draw_scores(const TrialSpec& spec) {
  const double size = std::stod(axis_value(mask_harness(), spec, "scores"));
  const RandomKey key = RandomKey(spec.seed).child("mask");
  MaskedScores drawn{.rows = spec.subject->input[0], .places = spec.subject->input[1], .scores = {}};
  std::vector<double> all(static_cast<size_t>(drawn.rows * drawn.places));
  for (size_t i = 0; i < all.size(); ++i) all[i] = size * key.normal(i);
  std::fill_n(all.begin() + drawn.places, drawn.places, kLowScore);
  drawn.scores = stored_as(*spec.device, spec.policy->low, all);
  return drawn;
}

// Scores in the low dtype, as a product of matrices gives them; the mask in the dtype of the parameters, as models make
// it; their sum in the wider of both, as type promotion has it.
std::vector<double> masked_softmax(const TrialSpec& spec, const MaskedScores& drawn, const Masking& masking, int times,
                                   double constant) {
  Device& device = *spec.device;
  const Shape shape{1, drawn.rows, drawn.places};
  const DType low = spec.policy->low, sum = masking.is_boolean ? low : wider(low, spec.policy->param);
  std::vector<double> values(drawn.scores.size());
  for (int64_t r = 0; r < drawn.rows; ++r)
    for (int64_t p = 0; p < drawn.places; ++p) {
      const bool masked = drawn.is_masked(r, p);
      values[static_cast<size_t>(r * drawn.places + p)] = masking.is_boolean ? !masked : masked ? constant : 0;
    }
  const Tensor mask = Tensor::from(device, shape, masking.is_boolean ? DType::u8 : spec.policy->param, values);
  Tensor scores = Tensor::from(device, shape, low, drawn.scores);
  for (int i = 0; i < times; ++i) {
    Tensor added(device, shape, sum);
    run(MaskScores{.scores = scores, .mask = mask, .out = added});
    scores = added;
  }
  Tensor out(device, shape, is_in_fp32(*spec.policy, "softmax") ? DType::f32 : low);
  run(Softmax{.x = scores, .out = out, .masked = masking.is_boolean});
  return out.values();
}

// The softmax over the places that are not masked, in fp64.
std::vector<double> exact_softmax(const MaskedScores& drawn) {
  std::vector<double> all(drawn.scores.size());
  for (int64_t r = 0; r < drawn.rows; ++r) {
    double largest = -HUGE_VAL, sum = 0;
    const auto each = [&](auto&& visit) {
      for (int64_t p = 0; p < drawn.places; ++p)
        if (!drawn.is_masked(r, p)) visit(static_cast<size_t>(r * drawn.places + p));
    };
    each([&](size_t i) { largest = std::max(largest, drawn.scores[i]); });
    each([&](size_t i) { sum += std::exp(drawn.scores[i] - largest); });
    each([&](size_t i) { all[i] = std::exp(drawn.scores[i] - largest) / sum; });
  }
  return all;
}

void write_masked(FindingsWriter& out, const std::string& at, const MaskedScores& drawn,
                  const std::vector<double>& found) {
  const std::vector<double> exact = exact_softmax(drawn);
  double nan = 0, nan_rows = 0, leaked = 0, off = 0, size = 0;
  for (const double p : found) nan += std::isnan(p);
  for (int64_t r = 2; r < drawn.rows; ++r) {
    double masked = 0;
    for (int64_t p = 0; p < drawn.places; ++p) {
      const auto i = static_cast<size_t>(r * drawn.places + p);
      if (drawn.is_masked(r, p)) masked += found[i];
      off += (found[i] - exact[i]) * (found[i] - exact[i]), size += exact[i] * exact[i];
    }
    nan_rows += std::isnan(masked);
    leaked = std::isnan(leaked) || std::isnan(masked) ? NAN : std::max(leaked, masked);
  }
  const auto row_sum = [&](int64_t row) {
    double sum = 0;
    for (int64_t p = 0; p < drawn.places; ++p) sum += found[static_cast<size_t>(row * drawn.places + p)];
    return sum;
  };
  const auto rows = static_cast<double>(drawn.rows - 2);
  out.number("mask.nan", at, nan / static_cast<double>(found.size()));
  out.number("mask.nan_partial_rows", at, nan_rows / rows);
  out.number("mask.leaked", at, leaked);
  out.number("mask.full_row", at, row_sum(0)), out.number("mask.full_low_row", at, row_sum(1));
  out.number("mask.error", at, std::sqrt(off / size));
}

Findings measure_mask(const TrialSpec& spec) {
  const MaskedScores drawn = draw_scores(spec);
  FindingsWriter out(mask_table());
  out.number("mask.rows", "", static_cast<double>(drawn.rows - 2));
  for (const Masking& masking : kMaskings) {
    const DType dtype = spec.policy->param;
    const double constant =
        masking.is_lowest ? -format_of(dtype).max_finite() : stored_as(*spec.device, dtype, masking.value);
    out.number("mask.value", std::string(masking.name), constant);
    for (const int times : {1, 2}) {
      const std::string at = std::string(masking.name) + (times == 1 ? "/one" : "/two");
      where_supported(out, "mask.unsupported", at,
                      [&] { write_masked(out, at, drawn, masked_softmax(spec, drawn, masking, times, constant)); });
    }
  }
  return out.take();
}

std::optional<std::string> refuses_mask(const TrialSpec& spec) {
  if (spec.subject->name != "softmax") return "masks the scores of a softmax, which " + spec.subject->id() + " is not";
  if (spec.subject->input[0] < 3 || spec.subject->input[1] < 2)
    return "two rows are masked altogether and half of every other row: it needs 3 rows of 2 places";
  return refusal_of_fp64(spec);
}

// The lowest number of fp16 and a score of -20 give -infinity in all places of the second row, which becomes NaN. In fp32 and
// bf16 the lowest number absorbs the score.
std::optional<Expect> expected_mask(const TrialSpec& spec) {
  const bool half = wider(spec.policy->low, spec.policy->param) == DType::f16;
  return Expect{"mask.nan", "lowest/one", half ? ">" : "==", 0};
}

}  // namespace

Harness mask_harness() {
  return {.name = "mask",
          .about =
              "softmax of masked scores: NaN and leaked probability by the constant of the mask, for two masks and for "
              "rows that are masked altogether",
          .axes = {{"scores", {"4"}, AxisNumbers{1e-3, 1e4, false}, "standard deviation of the scores"}},
          .metrics = mask_table(),
          .refuses = refuses_mask,
          .measure = measure_mask,
          .expects = expected_mask};
}

}  // namespace halfmark::accuracy
