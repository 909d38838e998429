// Cases of the element-wise operations.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/number/convert.h"

#include "kernels/ops/cases/elementwise.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<AddBias>::each(const CaseRequest& request, const RunCase<AddBias>& run_case) {
  each_tensor(request, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : request.axes.in_place)
      for (const bool narrow : request.axes.narrow_bias) {
        const Tensor x = make(shape, 1);
        const DType bias_type = narrow ? x.dtype() : DType::f32;
        if (in_place && bias_type != x.dtype()) continue;
        if (request.axes.special_values) sprinkle_special_values(x, 3);
        const Tensor bias = random_tensor(request, {shape[1]}, bias_type, Layout::plain, 2);
        if (request.axes.special_values) sprinkle_special_values(bias, 1);
        Tensor out = in_place ? x : Tensor(request.device, shape, x.dtype(), out_layout);
        const std::string what = name + " bias " + std::string(name_of(bias_type)) + (in_place ? " in place" : "");
        run_case(what, AddBias{.x = x, .bias = bias, .out = out}, [&](CaseResult& result) {
          const std::vector<double> xv = result.before(x), bv = bias.values();
          std::vector<double> expected = xv, spread(expected.size());
          const size_t pixels = shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1;
          for (size_t i = 0; i < expected.size(); ++i) spread[i] = bv[i / pixels % bv.size()], expected[i] += spread[i];
          const bool wide = x.dtype() == DType::f64 && bias_type == DType::f64;
          result.expect_close(out, expected, sums_slack(xv, spread, wide ? kFp64 : kFp32));
        });
      }
  });
}

template <>
void Cases<BiasGradient>::each(const CaseRequest& request, const RunCase<BiasGradient>& run_case) {
  each_tensor(request, [&](const std::string& name, auto make, const Shape& shape, Layout) {
    const Tensor dy = make(shape, 1);
    for (const bool narrow : request.axes.narrow_bias) {
      Tensor dbias(request.device, {shape[1]}, narrow ? dy.dtype() : DType::f32);
      run_case(name, BiasGradient{.dy = dy, .dbias = dbias}, [&](CaseResult& result) {
        const std::vector<double> dv = dy.values();
        std::vector<double> expected(static_cast<size_t>(shape[1])), slack(expected.size());
        const size_t pixels = shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1;
        const size_t terms = dv.size() / expected.size();
        const auto steps = static_cast<double>(terms);
        for (size_t i = 0; i < dv.size(); ++i) {
          expected[i / pixels % expected.size()] += dv[i];
          slack[i / pixels % expected.size()] += gamma(steps, wide_format(dy.dtype())) * std::fabs(dv[i]);
        }
        result.expect_close(dbias, expected, slack);
      });
    }
  });
}

namespace {

// If the expected result is not finite, the actual result must be the same non-finite value. `x` multiplies what an
// intermediate result loses to underflow.
double activation_slack(double expected, double magnitude, double steps, double x, DType dtype) {
  if (steps == 0 || !std::isfinite(expected) || !std::isfinite(magnitude)) return 0;
  const double lost = std::isfinite(x) ? smallest(wide_format(dtype)) * (1 + std::fabs(x)) : 0;
  return gamma(steps, wide_format(dtype)) * magnitude + lost;
}

}  // namespace

void each_activation(const CaseRequest& request, const ActivationRow& row, const RunActivation& run_case) {
  const double steps = request.device.name().starts_with("cuda:") ? row.gpu_forward_steps : row.forward_steps;
  each_tensor(request, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : request.axes.in_place) {
      const Tensor x = make(shape, 1);
      if (request.axes.special_values) sprinkle_special_values(x, 3);
      Tensor out = in_place ? x : Tensor(request.device, shape, x.dtype(), out_layout);
      run_case(name + (in_place ? " in place" : ""), x, out, [&](CaseResult& result) {
        std::vector<double> expected = result.before(x), slack;
        for (double& value : expected) {
          const double given = value;
          value = row.forward(given);
          slack.push_back(activation_slack(value, std::fabs(value), steps, given, x.dtype()));
        }
        result.expect_close(out, expected, slack);
      });
    }
  });
}

void each_activation_backward(const CaseRequest& request, const ActivationRow& row,
                              const RunActivationBackward& run_case) {
  each_tensor(
      request,
      [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
        for (const bool in_place : request.axes.in_place) {
          const Tensor kept = make(shape, 1), dy = make(shape, 2);
          if (request.axes.special_values) sprinkle_special_values(kept, 3), sprinkle_special_values(dy, 5);
          Tensor dx = in_place ? dy : Tensor(request.device, shape, dy.dtype(), out_layout);
          run_case(name + (in_place ? " in place" : ""), kept, dy, dx, [&](CaseResult& result) {
            std::vector<double> expected = result.before(dy), slack;
            const std::vector<double> kv = kept.values();
            for (size_t i = 0; i < expected.size(); ++i) {
              const double gradient = expected[i];
              expected[i] = row.backward(kv[i], gradient);
              slack.push_back(activation_slack(expected[i], std::max(std::fabs(expected[i]), std::fabs(gradient)),
                                               row.backward_steps, kv[i], dy.dtype()));
            }
            result.expect_close(dx, expected, slack);
          });
        }
      },
      true);
}

template <>
void Cases<Add>::each(const CaseRequest& request, const RunCase<Add>& run_case) {
  enum class Out : uint8_t { own, first, second };
  each_tensor(
      request,
      [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
        for (const Out where : {Out::own, Out::first, Out::second}) {
          if (where != Out::own && std::ranges::count(request.axes.in_place, true) == 0) continue;
          const Tensor a = make(shape, 1), b = make(shape, 2);
          if (request.axes.special_values) {  // first with themselves, then with each other
            sprinkle_special_values(a, 3), sprinkle_special_values(b, 3);
            sprinkle_special_values(a, 53), sprinkle_special_values(b, 58);
          }
          Tensor out = where == Out::first    ? a
                       : where == Out::second ? b
                                              : Tensor(request.device, shape, a.dtype(), out_layout);
          const std::string place = where == Out::first ? " in place" : where == Out::second ? " in place of b" : "";
          run_case(name + place, Add{.a = a, .b = b, .out = out}, [&](CaseResult& result) {
            const std::vector<double> av = result.before(a), bv = result.before(b);
            std::vector<double> expected(av.size());
            for (size_t i = 0; i < av.size(); ++i) expected[i] = av[i] + bv[i];
            result.expect_close(out, expected, sums_slack(av, bv, wide_format(a.dtype())), "", ZeroSigns::compared);
          });
        }
      },
      true);
}

namespace {

// Zeros, infinities, NaN, and what lies next to the ends of the range of `to`, where rounding overflows or underflows. The
// last element stays.
void add_ends_of_range(std::vector<double>& values, DType from, DType to) {
  const Format &source = format_of(from), &target = format_of(to);
  if (!source.has_nan() || !target.has_nan() || source.is_scale() || target.is_scale()) return;
  const double huge = target.max_finite(), tiny = smallest(target), u = target.unit_roundoff();
  const double ends[] = {0.0,
                         HUGE_VAL,
                         static_cast<double>(NAN),
                         huge,
                         huge * (1 + u / 4),
                         huge * (1 + u),
                         2 * huge,
                         tiny,
                         tiny / 2,
                         tiny * 0.75,
                         tiny / 4,
                         smallest(source),
                         source.max_finite()};
  size_t at = 2;
  for (const double end : ends)
    for (const double value : {end, -end}) {
      if (at + 1 >= values.size()) return;
      values[at] = value, at += 7;
    }
}

// Numbers of 24 binades, and those next to the ends of the range of `to`.
Tensor cast_operand(const CaseRequest& request, const Shape& shape, DType from, DType to, Layout layout) {
  return filled_tensor(request, shape, from, layout, [&] {
    std::vector<double> values = random_values(shape.elements(), 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], -static_cast<int>(i % 24));
    add_ends_of_range(values, from, to);
    return values;
  });
}

void expect_cast(CaseResult& result, const Tensor& x, const Tensor& out, Rounding rounding, uint64_t noise) {
  std::vector<double> expected = x.values();
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = round_to(format_of(out.dtype()), expected[i], rounding, nullptr, rounding_noise(noise, i));
  result.expect_exact(out, expected, "", ZeroSigns::compared);
}

// f(name, from, to, layout, rounding)
void each_cast(const Axes& axes, auto f) {
  for (const DType from : axes.cast_from)
    for (const DType to : axes.cast_to)
      for (const Layout layout : axes.cast_layouts)
        for (const Rounding rounding : axes.roundings)
          f(text_of({from, to}) + " " + std::string(name_of(layout)) + " " + std::string(name_of(rounding)), from, to,
            layout, rounding);
}

}  // namespace

template <>
void Cases<Cast>::each(const CaseRequest& request, const RunCase<Cast>& run_case) {
  each_cast(request.axes, [&](const std::string& name, DType from, DType to, Layout layout, Rounding rounding) {
    const Tensor x = cast_operand(request, request.axes.cast_shape, from, to, layout);
    Tensor out(request.device, x.shape(), to, layout);
    constexpr uint64_t kNoise = 77;
    run_case(name, Cast{.x = x, .out = out, .rounding = rounding, .noise = kNoise},
             [&](CaseResult& result) { expect_cast(result, x, out, rounding, kNoise); });
  });
}

// Further tensors are plain, and every other one is cast the other way.
template <>
void Cases<CastTensors>::each(const CaseRequest& request, const RunCase<CastTensors>& run_case) {
  each_cast(request.axes, [&](const std::string& name, DType from, DType to, Layout layout, Rounding rounding) {
    std::vector<CastPair> pairs;
    const auto add = [&](const Shape& shape, DType source, DType target, Layout its) {
      const Tensor x = cast_operand(request, shape, source, target, its);
      pairs.push_back({x, Tensor(request.device, shape, target, its), 77 + pairs.size()});
    };
    add(request.axes.cast_shape, from, to, layout);
    for (const Shape& shape : request.axes.more_updated)
      pairs.size() % 2 == 1 ? add(shape, to, from, Layout::plain) : add(shape, from, to, Layout::plain);
    run_case(name, CastTensors{.pairs = pairs, .rounding = rounding}, [&](CaseResult& result) {
      for (const CastPair& pair : pairs) expect_cast(result, pair.x, pair.out, rounding, pair.noise);
    });
  });
}

namespace {

// What becomes of x as a number of `to`, found with a format of a wider range instead of the events of rounding.
void add_events(const Format& to, double x, std::vector<double>& events) {
  if (x == 0 || !std::isfinite(x)) return;
  const double stored = round_to(to, x), least = std::ldexp(1.0, to.min_exponent());
  const Format endless{"endless", 11, to.fraction_bits};
  events[0] += std::fabs(stored) != std::fabs(x);  // e8m0 has no sign
  events[1] += std::fabs(round_to(endless, x)) > to.max_finite();
  events[2] += stored == 0;
  events[3] += stored != 0 && std::fabs(stored) < least;
}

}  // namespace

template <>
void Cases<CountedCast>::each(const CaseRequest& request, const RunCase<CountedCast>& run_case) {
  const Axes& axes = request.axes;
  for (const DType from : axes.cast_from)
    for (const DType to : axes.cast_to)
      for (const Layout layout : axes.cast_layouts) {
        const Tensor x = cast_operand(request, axes.cast_shape, from, to, layout);
        Tensor out(request.device, axes.cast_shape, to, layout);
        const std::vector<double> before{3, 0, 1e6, 7};
        Tensor events = Tensor::from(request.device, {CountedCast::kEvents}, DType::f64, before);
        const std::string name = text_of({from, to}) + " " + std::string(name_of(layout));
        run_case(name, CountedCast{.x = x, .out = out, .events = events}, [&](CaseResult& result) {
          std::vector<double> expected = x.values(), counts = before;
          if (to != DType::f64)
            for (const double value : expected) add_events(format_of(to), value, counts);
          for (double& value : expected) value = round_to(format_of(to), value);
          result.expect_exact(out, expected, "", ZeroSigns::compared), result.expect_exact(events, counts, "events");
        });
      }
}

template <>
void Cases<Reorder>::each(const CaseRequest& request, const RunCase<Reorder>& run_case) {
  each_image(request, request.axes.reorder_dtypes, [&](const std::string& image, auto make, Layout) {
    for (const Shape& shape : request.axes.elements)
      for (const Layout to : request.axes.reorder_to) {
        const Tensor x = make(shape, 1);
        Tensor out(request.device, shape, x.dtype(), to);
        const std::string name = image + " " + shape.text() + " to " + std::string(name_of(to));
        run_case(name, Reorder{.x = x, .out = out},
                 [&](CaseResult& result) { result.expect(out.codes() == x.codes(), "the codes differ"); });
      }
  });
}

}  // namespace halfmark::kernels::ops_cases
