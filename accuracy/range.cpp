// The range harness: where the numbers of one batch lie between underflow and overflow of their format, tensor by
// tensor.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "accuracy/accuracy.h"
#include "accuracy/exponents.h"
#include "accuracy/oracle.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& range_table() {
  static const std::vector<MetricRow> rows = {
      {"range.histogram", "1", Better::neither, Kind::information,
       "x: binary exponent; y: elements with it, as stored"},
      {"range.max_exponent", "1", Better::neither, Kind::bounded,
       "largest floor(log2 |x|) as stored, loss scale included"},
      {"range.min_exponent", "1", Better::neither, Kind::bounded,
       "smallest floor(log2 |x|) among numbers other than zero"},
      {"range.headroom", "bit", Better::higher, Kind::bounded,
       "log2(max finite of the tensor's format / max |x|); from the fp64 twin where the tensor has non-finite "
       "elements"},
      {"range.underflow", "1", Better::lower, Kind::bounded,
       "share of the fp64 twin's elements, loss scale included, below half the least subnormal of the tensor's format "
       "but not zero"},
      {"range.subnormal", "1", Better::lower, Kind::bounded,
       "share of the fp64 twin's elements, loss scale included, below the least normal number but no underflow"},
      {"range.nonfinite", "1", Better::lower, Kind::bounded, "share of elements that are infinite or NaN as stored"},
      {"range.zero", "1", Better::neither, Kind::bounded, "share of elements that are zero as stored"},
      {"range.first_nonfinite", "1", Better::lower, Kind::bounded,
       "non-finite elements of the first tensor (forward, then backward) that has any, at its name; absent when none "
       "has"},
      {"range.format_max_exponent", "1", Better::neither, Kind::exact, "largest exponent of the policy's low format"},
      {"range.format_min_normal_exponent", "1", Better::neither, Kind::exact, "exponent of its least normal number"},
      {"range.format_min_exponent", "1", Better::neither, Kind::exact, "exponent of its least subnormal number"},
  };
  return rows;
}

struct Passed {
  std::string name;
  const Format* format;
  Exponents exponents{};  // as stored
  Exponents twin{};       // of the fp64 twin, which carries the same loss scale
};

struct Summary {
  Exponents exponents;
  double headroom = std::numeric_limits<double>::infinity();
  double underflow = 0, subnormal = 0, twin_total = 0;
};

double headroom_of(const Passed& passed) {
  return headroom(*passed.format, passed.exponents.nonfinite > 0 ? passed.twin.largest : passed.exponents.largest);
}
double underflow_of(const Passed& passed) {
  return passed.twin.share_below(passed.format->min_subnormal_exponent() - 1);
}
double subnormal_of(const Passed& passed) {
  return passed.twin.share_below(passed.format->min_exponent()) - underflow_of(passed);
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

std::string group_of(const Passed& passed, const std::set<std::string>& params) {
  if (passed.name.starts_with("activation/")) return "activations";
  return params.contains(passed.name.substr(passed.name.find('/') + 1)) ? "weight_gradients" : "gradients";
}

Findings measure_range(const TrialSpec& spec) {
  const auto reference = reference_of(spec, Inputs::drawn);
  std::vector<Passed> passed;
  std::set<std::string> params;
  {
    Trial trial(spec);
    trial.set_tap([&](const std::string& name, const Tensor& tensor) {
      auto seen = std::find_if(passed.begin(), passed.end(), [&](const Passed& p) { return p.name == name; });
      if (seen == passed.end()) seen = passed.insert(passed.end(), {name, &format_of(tensor.dtype())});
      seen->exponents.add(tensor.values());
    });
    trial.load_batch(0);
    trial.forward();
    trial.backward();
    for (const Param* param : trial.params()) params.insert(param->name);
  }

  FindingsWriter out(range_table());
  const Format& low = format_of(spec.policy->low);
  out.number("range.format_max_exponent", "", low.max_exponent());
  out.number("range.format_min_normal_exponent", "", low.min_exponent());
  out.number("range.format_min_exponent", "", low.min_subnormal_exponent());

  std::map<std::string, Summary> groups;
  const Passed* first_nonfinite = nullptr;
  for (Passed& tensor : passed) {
    if (const auto twin = reference->exponents.find(tensor.name); twin != reference->exponents.end())
      tensor.twin = twin->second;
    if (!first_nonfinite && tensor.exponents.nonfinite > 0) first_nonfinite = &tensor;
    write(out, tensor.name, tensor.exponents);
    out.number("range.headroom", tensor.name, headroom_of(tensor));
    out.number("range.underflow", tensor.name, underflow_of(tensor));
    out.number("range.subnormal", tensor.name, subnormal_of(tensor));
    Summary& group = groups[group_of(tensor, params)];
    group.exponents.add(tensor.exponents);
    group.headroom = std::min(group.headroom, headroom_of(tensor));
    group.underflow += underflow_of(tensor) * tensor.twin.total;
    group.subnormal += subnormal_of(tensor) * tensor.twin.total;
    group.twin_total += tensor.twin.total;
  }
  for (const auto& [at, group] : groups) {
    write(out, at, group.exponents);
    out.number("range.headroom", at, group.headroom);  // of the tensor with the least
    out.number("range.underflow", at, group.twin_total > 0 ? group.underflow / group.twin_total : 0);
    out.number("range.subnormal", at, group.twin_total > 0 ? group.subnormal / group.twin_total : 0);
  }
  if (first_nonfinite) out.number("range.first_nonfinite", first_nonfinite->name, first_nonfinite->exponents.nonfinite);
  return out.take();
}

}  // namespace

Harness range_harness() {
  return {.name = "range",
          .about =
              "exponents of activations and gradients beside the format's range: headroom, underflow, first non-finite "
              "tensor",
          .axes = {},
          .metrics = range_table(),
          .refuses = [](const TrialSpec&) { return std::optional<std::string>(); },
          .measure = measure_range};
}

}  // namespace halfmark::accuracy
