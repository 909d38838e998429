#include "kernels/ops/cases/cases.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/ops/cases/operands.h"

namespace halfmark::kernels::ops_cases {

void CaseResult::expect_close(const Tensor& actual, const std::vector<double>& expected,
                              const std::vector<double>& slack, const std::string& what, ZeroSigns zero_signs) {
  const std::vector<double> values = actual.values();
  if (values.size() != expected.size())
    return add(what + ": " + std::to_string(values.size()) + " values, not " + std::to_string(expected.size()));
  const Format& format = format_of(actual.dtype());
  int shown = 0;
  for (size_t i = 0; i < values.size() && shown < 3; ++i) {
    if (!std::isfinite(slack[i])) return add("error in the test: the bound of " + what + " allows every value");
    const double rounded = round_to(format, expected[i]);
    const bool sign_differs = zero_signs == ZeroSigns::compared && values[i] == 0 && rounded == 0 &&
                              std::signbit(values[i]) != std::signbit(rounded);
    if ((values[i] == rounded && !sign_differs) || (std::isnan(values[i]) && std::isnan(rounded))) continue;
    const bool flushed = flushes_ && std::fabs(rounded) < std::ldexp(1.0, format.min_exponent()) && values[i] == 0;
    if (flushed && std::signbit(values[i]) == std::signbit(rounded)) continue;
    const double bound = slack[i] + format.unit_roundoff() * (std::fabs(expected[i]) + slack[i]) + smallest(format) / 2;
    if (slack[i] != 0 && std::fabs(values[i] - expected[i]) <= bound) continue;
    ++shown;
    std::ostringstream text;
    text.precision(17);
    text << what << (what.empty() ? "" : ": ") << "element " << i << " of " << actual.shape().text() << " "
         << name_of(actual.dtype()) << " is " << without_sign_of_nan(values[i]) << ", fp64 says "
         << without_sign_of_nan(expected[i]) << " within " << slack[i];
    add(text.str());
  }
}

}  // namespace halfmark::kernels::ops_cases
