// Descriptions of operations: operands with known values, the result in fp64, and the allowed error of a row. One
// description serves the tests of every row, the guard bytes and the micro benchmarks.
//
// Tolerances are derived, never tuned. Let u be the unit roundoff of a format, n the number of rounded steps and S the
// sum of the magnitudes of the inputs. A computed sum differs from the exact one by at most gamma(n) S in any order,
// with gamma(n) = n 2u / (1 - n 2u) (Higham, Accuracy and Stability, 2002, lemma 3.1). 2u replaces u because tensor
// cores truncate where others round. Underflow adds n smallest subnormals. Storing adds the unit roundoff of the
// output's format and half its smallest subnormal.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/ops_cases_axes.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels::ops_cases {

struct CaseRequest {
  Device& device;
  const Axes& axes;
  // Whether a row does exactly what Math says, as halfmark's own rows do. Hardware may, for example, truncate fp32
  // operands to tf32 where Math says that they are rounded.
  bool strict = true;
  bool filled = true;           // else the values do not matter: only whether a row supports the case
  bool rounds_between = false;  // as Kernel::rounds_between
};

inline double gamma(double steps, const Format& format) {
  const double nu = steps * 2 * format.unit_roundoff();
  return nu < 1 ? nu / (1 - nu) : HUGE_VAL;
}
inline double smallest(const Format& format) { return std::ldexp(1.0, format.min_subnormal_exponent()); }

// The format that operations other than sums of products compute in.
inline const Format& wide_format(DType dtype) { return dtype == DType::f64 ? kFp64 : kFp32; }
inline DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

enum class ZeroSigns : uint8_t { ignored, compared };

// The result of a run. A description compares it with fp64 and collects the errors as sentences.
class CaseResult {
 public:
  // `before`: the values that outputs had before the run, by id of their memory. `flushes`: as Kernel::flushes_subnormals.
  CaseResult(std::map<uint64_t, std::vector<double>> before, bool flushes)
      : before_(std::move(before)), flushes_(flushes) {}

  // The values of an operand before the run, even if the result was written over it.
  std::vector<double> before(const Tensor& tensor) const {
    const auto found = before_.find(tensor.id());
    return found == before_.end() ? tensor.values() : found->second;
  }

  // Passes if |actual - expected| <= slack plus the rounding of storage, or if actual is the correctly rounded value.
  // If slack is exactly 0, only the correctly rounded value passes.
  void expect_close(const Tensor& actual, const std::vector<double>& expected, const std::vector<double>& slack,
                    const std::string& what = "", ZeroSigns zero_signs = ZeroSigns::ignored) {
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
      const double bound =
          slack[i] + format.unit_roundoff() * (std::fabs(expected[i]) + slack[i]) + smallest(format) / 2;
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
  void expect_exact(const Tensor& actual, const std::vector<double>& expected, const std::string& what = "",
                    ZeroSigns zero_signs = ZeroSigns::ignored) {
    expect_close(actual, expected, std::vector<double>(expected.size(), 0.0), what, zero_signs);
  }
  void expect(bool condition, const std::string& otherwise) {
    if (!condition) add(otherwise);
  }
  void add(std::string finding) { findings_.push_back(std::move(finding)); }
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  static double without_sign_of_nan(double x) { return std::isnan(x) ? std::fabs(x) : x; }

  std::map<uint64_t, std::vector<double>> before_;
  bool flushes_;
  std::vector<std::string> findings_;
};

// Receives one case: an operation on fresh tensors, and the comparison to make after it has run.
using Comparison = std::function<void(CaseResult&)>;
template <class Op>
using RunCase = std::function<void(const std::string& name, const Op& op, const Comparison& compare)>;

// Every case of an operation that the request selects; specialised in the other headers.
template <class Op>
struct Cases {
  static void each(const CaseRequest& request, const RunCase<Op>& run_case);
};

// integers: -2 .. 2, so that sums are exact. sparse_integers: a quarter of the values are such integers, the others are
// 0, so that long sums of products are exact in narrow formats.
enum class Fill { normal, integers, sparse_integers };

inline std::vector<double> random_values(int64_t count, uint64_t seed, Fill fill = Fill::normal, double scale = 1) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  const auto value = [&](size_t i) {
    if (fill == Fill::normal) return key.normal(i);
    if (fill == Fill::integers) return static_cast<double>(key.below(i, 5)) - 2;
    constexpr double kSparse[] = {-2, -1, 1, 2};
    const uint64_t draw = key.below(i, 16);
    return draw < 4 ? kSparse[draw] : 0;
  };
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * value(i);
  return values;
}

// A tensor with the result of `values()`, which is not called if values do not matter.
inline Tensor filled_tensor(const CaseRequest& request, const Shape& shape, DType dtype, Layout layout,
                            const std::function<std::vector<double>()>& values) {
  if (!request.filled) return Tensor(request.device, shape, dtype, layout);
  return Tensor::from(request.device, shape, dtype, values(), layout);
}

inline Tensor random_tensor(const CaseRequest& request, const Shape& shape, DType dtype, Layout layout, uint64_t seed,
                            Fill fill = Fill::normal, double scale = 1) {
  return filled_tensor(request, shape, dtype, layout,
                       [&] { return random_values(shape.elements(), seed, fill, scale); });
}

inline Tensor positive_tensor(const CaseRequest& request, const Shape& shape, DType dtype, uint64_t seed) {
  return filled_tensor(request, shape, dtype, Layout::plain, [&] {
    std::vector<double> values = random_values(shape.elements(), seed);
    for (double& value : values) value = 0.25 + std::fabs(value);
    return values;
  });
}

// A tensor in a layout of the device's own library: the result
// of a convolution that may choose. Empty if it chooses none.
inline std::optional<Tensor> opaque_tensor(const CaseRequest& request, const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor x = random_tensor(request, shape, dtype, Layout::plain, seed);
  const Tensor w = random_tensor(request, {shape[1], shape[1], 1, 1}, dtype, Layout::plain, seed + 1);
  Tensor out(request.device, shape, dtype, Layout::any);
  const Format& format = wide_format(dtype);
  run(Conv2d{.x = x,
             .w = w,
             .out = out,
             .window = {},
             .groups = 1,
             .math = {.multiply = format, .accumulate = format, .partial = format}});
  if (out.layout() != Layout::opaque) return std::nullopt;
  return out;
}

inline std::string text_of(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += '-';
    text += name_of(dtype);
  }
  return text;
}

}  // namespace halfmark::kernels::ops_cases
