// The conversion experiment: what a cast to the low dtype of a policy and back to fp32 does to numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& conversion_table() {
  static const std::vector<MetricRow> rows = {
      {"conversion.widening", "1", Better::lower, Kind::exact,
       "codes of the low dtype whose cast to fp32 and back gives another code; a NaN counts if it is no NaN"},
      {"conversion.codes", "1", Better::neither, Kind::exact, "codes of the low dtype: all"},
      {"conversion.narrowing", "1", Better::lower, Kind::bounded,
       "largest |cast(x) - x| / |x| of fp32 numbers x, log-uniform within the normal numbers of the low dtype, after "
       "the cast to the low dtype and back to fp32; with its bound, the unit roundoff of the low dtype"},
      {"conversion.changed", "1", Better::neither, Kind::bounded,
       "share of these numbers that the cast changes: widening does not bring them back"},
      {"conversion.numbers", "1", Better::neither, Kind::information, "numbers drawn for the two above"},
  };
  return rows;
}

Tensor cast_of(const Tensor& x, DType dtype) {
  Tensor out(x.device(), x.shape(), dtype);
  run(Cast{.x = x, .out = out});
  return out;
}

Findings measure_conversion(const TrialSpec& spec) {
  Device& device = *spec.device;
  const DType low = spec.policy->low;
  const Format& format = format_of(low);
  FindingsWriter out(conversion_table());
  constexpr int64_t kCodes = 65536;
  std::vector<double> all;
  all.reserve(kCodes);
  for (uint64_t code = 0; code < kCodes; ++code) all.push_back(kernels::decode(low, code));
  const Tensor codes = Tensor::from(device, {kCodes}, low, all);
  const std::vector<double> wide = cast_of(codes, DType::f32).values(),
                            again = cast_of(cast_of(codes, DType::f32), low).values();
  double wrong = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto differs = [&](double x) { return std::isnan(all[i]) ? !std::isnan(x) : x != all[i]; };
    wrong += differs(wide[i]) || differs(again[i]);
  }
  out.number("conversion.widening", "", wrong);
  out.number("conversion.codes", "", kCodes);

  constexpr int64_t kNumbers = 1 << 18;
  const RandomKey key = RandomKey(spec.seed).child("conversion");
  std::vector<double> drawn(kNumbers);
  const double span = format.max_exponent() - format.min_exponent();
  for (int64_t i = 0; i < kNumbers; ++i)
    drawn[static_cast<size_t>(i)] = std::exp2(format.min_exponent() + span * key.uniform(static_cast<uint64_t>(i)));
  const Tensor given = Tensor::from(device, {kNumbers}, DType::f32, drawn);
  const std::vector<double> exact = given.values(), back = cast_of(cast_of(given, low), DType::f32).values();
  double worst = 0, changed = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, std::fabs(back[i] - exact[i]) / exact[i]);
    changed += back[i] != exact[i];
  }
  out.number("conversion.narrowing", "", worst).bound = format.unit_roundoff();
  out.number("conversion.changed", "", changed / kNumbers);
  out.number("conversion.numbers", "", kNumbers);
  return out.take();
}

std::optional<std::string> refuses_conversion(const TrialSpec& spec) {
  if (bits_of(spec.policy->low) == 16) return {};
  return "policy " + std::string(spec.policy->name) + " has no low dtype of 16 bits";
}

}  // namespace

Harness conversion_harness() {
  return {.name = "conversion",
          .about = "what a cast to the low dtype of the policy and back to fp32 does to numbers",
          .axes = {},
          .metrics = conversion_table(),
          .refuses = refuses_conversion,
          .measure = measure_conversion};
}

}  // namespace halfmark::accuracy
