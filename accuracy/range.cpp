// The range harness: per tensor of one batch, the position of its numbers between underflow and overflow of its format.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/exponents.h"
#include "accuracy/oracle.h"
#include "accuracy/reference.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& range_table() {
  static const std::vector<MetricRow> rows = with_reference_rows({
      {"range.histogram", "1", Better::neither, Kind::information,
       "x: binary exponent; y: elements with it, as stored"},
      {"range.max_exponent", "1", Better::neither, Kind::bounded,
       "largest floor(log2 |x|) as stored, loss scale included"},
      {"range.min_exponent", "1", Better::neither, Kind::bounded,
       "smallest floor(log2 |x|) among numbers other than zero"},
      {"range.headroom", "bit", Better::higher, Kind::bounded,
       "log2(max finite of the tensor's format / max |x|); from the fp64 reference where the tensor has non-finite "
       "elements, and nothing where that has, too"},
      {"range.underflow", "1", Better::lower, Kind::bounded,
       "share of the fp64 reference's elements, loss scale included, below half the least subnormal of the tensor's "
       "format but not zero"},
      {"range.subnormal", "1", Better::lower, Kind::bounded,
       "share of the fp64 reference's elements, loss scale included, below the least normal number but not "
       "underflowing"},
      {"range.cancelled", "1", Better::neither, Kind::information,
       "rms reference / largest rms reference of the gradients, where it is below 2^-44: the terms cancel, as for a "
       "bias "
       "before batch norm, and the reference is rounding noise. No range.underflow and range.subnormal is written"},
      {"range.nonfinite", "1", Better::lower, Kind::bounded, "share of elements that are infinite or NaN as stored"},
      {"range.zero", "1", Better::neither, Kind::bounded, "share of elements that are zero as stored"},
      {"range.first_nonfinite", "1", Better::lower, Kind::bounded,
       "non-finite elements of the first tensor (forward, then backward) that has any, at its name; absent when none "
       "has"},
      {"range.cast_values", "1", Better::neither, Kind::exact,
       "numbers that casts to a narrower format got in forward and backward; at: what they are of, and both dtypes"},
      {"range.cast_underflow", "1", Better::lower, Kind::bounded,
       "share of them that a cast made zero, of numbers that were not; counted by the casts, loss scale included"},
      {"range.cast_subnormal", "1", Better::lower, Kind::bounded, "share of them that a cast made subnormal numbers"},
      {"range.cast_overflow", "1", Better::lower, Kind::bounded,
       "share of them that were finite and too large for the format of the cast"},
      {"range.cast_inexact", "1", Better::neither, Kind::information, "share of them that a cast has changed"},
      {"range.format_max_exponent", "1", Better::neither, Kind::exact, "largest exponent of the policy's low format"},
      {"range.format_min_normal_exponent", "1", Better::neither, Kind::exact, "exponent of its least normal number"},
      {"range.format_min_exponent", "1", Better::neither, Kind::exact, "exponent of its least subnormal number"},
  });
  return rows;
}

struct TappedTensor {
  std::string name;
  const Format* format;
  Exponents exponents{};  // as stored
  Exponents reference{};  // of the fp64 reference, with the same loss scale
};

struct Summary {
  Exponents exponents;
  double headroom = std::numeric_limits<double>::infinity();
  double underflow = 0, subnormal = 0, reference_total = 0;
};

// Nothing if the fp64 reference is not finite either: no number says how large the others would be.
std::optional<double> headroom_of(const TappedTensor& tapped) {
  if (tapped.exponents.nonfinite == 0) return headroom(*tapped.format, tapped.exponents.largest);
  if (tapped.reference.nonfinite > 0 || tapped.reference.empty()) return std::nullopt;
  return headroom(*tapped.format, tapped.reference.largest);
}
double underflow_of(const TappedTensor& tapped) {
  return tapped.reference.share_below(tapped.format->min_subnormal_exponent() - 1);
}
double subnormal_of(const TappedTensor& tapped) {
  return tapped.reference.share_below(tapped.format->min_exponent()) - underflow_of(tapped);
}

void write(FindingsWriter& out, const std::string& at, const Exponents& exponents) {
  if (!exponents.empty()) {
    const int lowest = exponents.lowest_exponent(), highest = exponents.highest_exponent();
    std::vector<double> x, y;
    for (int e = lowest; e <= highest; ++e) {
      const auto found = exponents.counts.find(e);
      x.push_back(e), y.push_back(found == exponents.counts.end() ? 0 : found->second);
    }
    out.curve("range.histogram", at, std::move(x), std::move(y));
    out.number("range.max_exponent", at, highest);
    out.number("range.min_exponent", at, lowest);
  }
  out.number("range.zero", at, exponents.total > 0 ? exponents.zero / exponents.total : 0);
  out.number("range.nonfinite", at, exponents.total > 0 ? exponents.nonfinite / exponents.total : 0);
}

std::string group_of(const TappedTensor& tapped, const std::set<std::string>& params) {
  if (tapped.name.starts_with("activation/")) return "activations";
  return params.contains(tapped.name.substr(tapped.name.find('/') + 1)) ? "weight_gradients" : "gradients";
}

// Only of casts that can change a number.
void write_casts(FindingsWriter& out, const CastCounts& counts) {
  for (const CastCounts::Row& row : counts.rows()) {
    if (wider(row.from, row.to) == row.to) continue;
    const std::string at = "casts/" + std::string(name_of(row.kind)) + "/" + std::string(name_of(row.from)) + "-" +
                           std::string(name_of(row.to));
    out.number("range.cast_values", at, row.values);
    out.number("range.cast_underflow", at, row.underflow / row.values);
    out.number("range.cast_subnormal", at, row.subnormal / row.values);
    out.number("range.cast_overflow", at, row.overflow / row.values);
    out.number("range.cast_inexact", at, row.inexact / row.values);
  }
}

Findings measure_range(const TrialSpec& spec) {
  const auto reference = reference_of(spec, Inputs::drawn);
  CastCounts casts;
  std::vector<TappedTensor> tapped;
  std::set<std::string> params;
  {
    Trial trial(spec);
    begin_scaling(trial);
    trial.set_tap([&](const std::string& name, const Tensor& tensor) {
      auto seen = std::find_if(tapped.begin(), tapped.end(), [&](const TappedTensor& p) { return p.name == name; });
      if (seen == tapped.end()) seen = tapped.insert(tapped.end(), {name, &format_of(tensor.dtype())});
      seen->exponents.add(tensor.values());
    });
    trial.load_batch(0);
    trial.set_cast_counts(&casts);
    trial.forward();
    trial.backward();
    for (const Param* param : trial.params()) params.insert(param->name);
  }

  FindingsWriter out(range_table());
  const Format& low = format_of(spec.policy->low);
  out.number("range.format_max_exponent", "", low.max_exponent());
  out.number("range.format_min_normal_exponent", "", low.min_exponent());
  out.number("range.format_min_exponent", "", low.min_subnormal_exponent());

  const std::map<std::string, double> cancelled = cancelled_gradients(*reference);
  std::map<std::string, Summary> groups;
  const TappedTensor* first_nonfinite = nullptr;
  for (TappedTensor& tensor : tapped) {
    if (const auto exact = reference->exponents.find(tensor.name); exact != reference->exponents.end())
      tensor.reference = exact->second;
    if (!first_nonfinite && tensor.exponents.nonfinite > 0) first_nonfinite = &tensor;
    write(out, tensor.name, tensor.exponents);
    const std::optional<double> left = headroom_of(tensor);
    if (left) out.number("range.headroom", tensor.name, *left);
    Summary& group = groups[group_of(tensor, params)];
    group.exponents.add(tensor.exponents);
    if (left) group.headroom = std::min(group.headroom, *left);
    if (const auto noise = cancelled.find(tensor.name); noise != cancelled.end()) {
      out.number("range.cancelled", tensor.name, noise->second);
      continue;
    }
    out.number("range.underflow", tensor.name, underflow_of(tensor));
    out.number("range.subnormal", tensor.name, subnormal_of(tensor));
    group.underflow += underflow_of(tensor) * tensor.reference.total;
    group.subnormal += subnormal_of(tensor) * tensor.reference.total;
    group.reference_total += tensor.reference.total;
  }
  for (const auto& [at, group] : groups) {
    write(out, at, group.exponents);
    out.number("range.headroom", at, group.headroom);  // of the tensor with the least
    out.number("range.underflow", at, group.reference_total > 0 ? group.underflow / group.reference_total : 0);
    out.number("range.subnormal", at, group.reference_total > 0 ? group.subnormal / group.reference_total : 0);
  }
  write_casts(out, casts);
  if (first_nonfinite) out.number("range.first_nonfinite", first_nonfinite->name, first_nonfinite->exponents.nonfinite);
  step_numbers(spec)->add_summary_to(out);
  return out.take();
}

}  // namespace

Harness range_harness() {
  return {.name = "range",
          .about =
              "exponents of activations and gradients within the format's range: headroom, underflow, what casts lose, "
              "first non-finite "
              "tensor",
          .axes = {},
          .metrics = range_table(),
          .measure = measure_range};
}

}  // namespace halfmark::accuracy
