// Cases of the optimizers' steps, and of unscaling, the norm and the clipping of gradients.

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/cases/elementwise.h"

namespace halfmark::kernels::ops_cases {

namespace {

std::string update_text(const UpdateForm& form) {
  constexpr const char* kStorages[] = {"", " stochastic", " compensated"};
  return std::string(kStorages[static_cast<size_t>(form.storage)]) +
         (form.rounding == StepRounding::each_operation ? " each operation" : "") + (form.nesterov ? " nesterov" : "") +
         (form.dampening != 0 ? " dampening" : "") + (form.first ? " first" : "") +
         (form.found_inf ? (*form.found_inf ? " found inf" : " found no inf") : "");
}

// What a step should do to one element, in fp64, and by how much its parts may be off.
struct Update {
  double kept, change, first, second;
  double kept_slack, change_slack, first_slack, second_slack;
};

// The tensors of a step with several parameters, and the comparison of what it left in them.
class UpdateCase {
 public:
  UpdateCase(const CaseRequest& request, const SgdTypes& types, SgdLayouts layouts, const UpdateForm& form,
             bool has_first, bool has_second, bool specials)
      : form_(form), types_(types) {
    std::vector<Shape> shapes = request.axes.more_updated;
    shapes.insert(shapes.begin(), request.axes.sgd_shape);
    for (const Shape& shape : shapes) {
      const bool image = shape.rank() == 4;
      const Layout layout = image ? layouts.parameter : Layout::plain,
                   gradient_layout = image ? layouts.gradient : Layout::plain;
      UpdatedTensors t;
      t.parameter = random_tensor(request, shape, types.parameter, layout, 1);
      if (specials && form.storage != Storage::stochastic) sprinkle_special_values(t.parameter, 3);
      t.gradient = random_tensor(request, shape, types.gradient, gradient_layout, 2);
      if (has_first) t.first = random_tensor(request, shape, types.velocity, layout, 3);
      if (has_second)
        t.second = filled_tensor(request, shape, types.velocity, layout, [&] {
          std::vector<double> values = random_values(shape.elements(), 4);
          for (double& value : values) value = 0.25 + std::fabs(value);
          return values;
        });
      if (form.storage == Storage::kahan)
        t.compensation = random_tensor(request, shape, types.parameter, layout, 5, Fill::normal, 0x1p-10);
      if (types.has_low)  // what it holds is seen after a step that changes nothing
        t.low = form.found_inf == true ? random_tensor(request, shape, types.low, layout, 6)
                                       : Tensor(request.device, shape, types.low, layout);
      tensors_.push_back(std::move(t));
    }
    if (form.found_inf)
      found_inf_ = Tensor::from(request.device, {1}, DType::f32, std::vector<double>{*form.found_inf ? 1.0 : 0.0});
  }

  std::span<UpdatedTensors> tensors() { return tensors_; }
  const Tensor& found_inf() const { return found_inf_; }

  // The format that a step's intermediate results are rounded to.
  const Format& format() const {
    return form_.rounding == StepRounding::each_operation
               ? format_of(types_.parameter)
               : wide_format(types_.gradient == DType::f64 ? DType::f64 : types_.parameter);
  }

  // update(parameter, gradient, first, second) of one element.
  void compare(CaseResult& result, const std::function<Update(double, double, double, double)>& update) const {
    for (const UpdatedTensors& t : tensors_)
      form_.found_inf == true ? expect_kept(result, t) : compare_one(result, t, update);
  }

 private:
  static void expect_kept(CaseResult& result, const UpdatedTensors& t) {
    for (const auto& [what, tensor] : {std::pair{"parameter", &t.parameter},
                                       {"first moment", &t.first},
                                       {"second moment", &t.second},
                                       {"compensation", &t.compensation},
                                       {"low", &t.low}})
      if (!tensor->empty()) result.expect_exact(*tensor, result.before(*tensor), what, ZeroSigns::compared);
  }

  void compare_one(CaseResult& result, const UpdatedTensors& t,
                   const std::function<Update(double, double, double, double)>& update) const {
    const auto before = [&](const Tensor& tensor) {
      return tensor.empty() ? std::vector<double>(static_cast<size_t>(t.parameter.elements())) : result.before(tensor);
    };
    const std::vector<double> p = before(t.parameter), g = t.gradient.values(), m = before(t.first),
                              v = before(t.second), lacking = before(t.compensation), stored = t.parameter.values();
    const Format &wide = format(), &narrow = format_of(types_.parameter);
    std::vector<double> new_p(p.size()), p_slack(p.size()), new_m(p.size()), m_slack(p.size()), new_v(p.size()),
        v_slack(p.size()), new_lacking(p.size()), lacking_slack(p.size());
    const auto if_finite = [](double value, double slack) { return std::isfinite(value + slack) ? slack : 0; };
    for (size_t i = 0; i < p.size(); ++i) {
      const Update u = update(p[i], g[i], m[i], v[i]);
      new_m[i] = u.first, m_slack[i] = if_finite(u.first, u.first_slack);
      new_v[i] = u.second, v_slack[i] = if_finite(u.second, u.second_slack);
      const double moved = (u.kept == p[i] ? 0 : u.kept - p[i]) - u.change + lacking[i];
      new_p[i] = form_.storage == Storage::kahan ? p[i] + moved : u.kept - u.change;
      // A smaller part of the parameter than its rounding; rounding at random takes either neighbour.
      double slack = u.kept_slack + u.change_slack +
                     gamma(4, wide) * (std::fabs(p[i]) + std::fabs(u.change) + std::fabs(lacking[i])) + smallest(wide);
      if (form_.storage == Storage::stochastic)
        slack += 2 * narrow.unit_roundoff() * std::fabs(new_p[i]) + smallest(narrow);
      p_slack[i] = if_finite(new_p[i], slack);
      // From the parameter as stored.
      new_lacking[i] = moved + (p[i] - stored[i]);
      lacking_slack[i] = if_finite(new_lacking[i], slack);
    }
    if (!t.first.empty()) result.expect_close(t.first, new_m, m_slack, "first moment");
    if (!t.second.empty()) result.expect_close(t.second, new_v, v_slack, "second moment");
    result.expect_close(t.parameter, new_p, p_slack, "parameter");
    if (!t.compensation.empty()) result.expect_close(t.compensation, new_lacking, lacking_slack, "compensation");
    if (!t.low.empty()) result.expect_exact(t.low, stored, "low");
  }

  UpdateForm form_;
  SgdTypes types_;
  std::vector<UpdatedTensors> tensors_;
  Tensor found_inf_;
};

// f(name, types, form, layouts)
void each_update(const CaseRequest& request, auto&& f) {
  for (const SgdTypes& types : request.axes.sgd_types)
    for (const UpdateForm& form : request.axes.update_forms)
      for (const SgdLayouts& layouts : request.axes.sgd_layouts) {
        const bool plain = layouts.parameter == Layout::plain && layouts.gradient == Layout::plain;
        const bool usual = form.storage == Storage::nearest && form.rounding == StepRounding::once && !form.found_inf;
        if (!plain && !usual) continue;
        f(text_of({types.parameter, types.gradient, types.velocity}) +
              (types.has_low ? " low " + std::string(name_of(types.low)) : "") + " " +
              std::string(name_of(layouts.parameter)) + "-" + std::string(name_of(layouts.gradient)) +
              update_text(form),
          types, form, layouts);
      }
}

}  // namespace

template <>
void Cases<SgdStep>::each(const CaseRequest& request, const RunCase<SgdStep>& run_case) {
  const double rate = request.axes.sgd_rate;
  each_update(request, [&](const std::string& name, const SgdTypes& types, const UpdateForm& form, SgdLayouts layouts) {
    for (const double momentum : request.axes.momenta)
      for (const double decay : request.axes.decays) {
        UpdateCase one(request, types, layouts, form, momentum != 0, false, request.axes.special_values);
        const Format& format = one.format();
        const bool nesterov = form.nesterov && momentum != 0;
        run_case(name + " momentum " + std::to_string(momentum) + " decay " + std::to_string(decay),
                 SgdStep{.tensors = one.tensors(),
                         .found_inf = one.found_inf(),
                         .rate = rate,
                         .momentum = momentum,
                         .dampening = form.dampening,
                         .weight_decay = decay,
                         .nesterov = nesterov,
                         .first = form.first,
                         .noise = 7,
                         .storage = form.storage,
                         .rounding = form.rounding},
                 [&](CaseResult& result) {
                   one.compare(result, [&](double p, double g, double v, double) {
                     // PyTorch leaves out a term whose factor is 0: 0 times an infinite parameter is NaN.
                     const double decayed = decay != 0 ? decay * p : 0, direction = g + decayed;
                     const double share = momentum == 0 || form.first ? 1 : 1 - form.dampening;
                     const double next = momentum * v + share * direction;
                     const double moved = nesterov ? direction + momentum * next : next;
                     const double size = std::fabs(momentum * v) + std::fabs(g) + std::fabs(decayed);
                     const double slack = gamma(8, format) * size + 4 * smallest(format);
                     return Update{
                         p, rate * moved, next, 0, 0, rate * 2 * slack + gamma(6, format) * rate * 2 * size, slack, 0};
                   });
                 });
      }
  });
}

template <>
void Cases<AdamStep>::each(const CaseRequest& request, const RunCase<AdamStep>& run_case) {
  // An epsilon that is seen beside the root of the second moment, so that its place matters.
  constexpr double kBeta1 = 0.875, kBeta2 = 0.99, kEpsilon = 0.01;
  const double rate = request.axes.sgd_rate;
  each_update(request, [&](const std::string& name, const SgdTypes& types, const UpdateForm& form, SgdLayouts layouts) {
    if (form.nesterov && form.rounding == StepRounding::once) return;  // not of Adam
    for (const AdamKind kind : request.axes.adam_kinds)
      for (const double decay : request.axes.decays)
        for (const int64_t step : {int64_t{1}, int64_t{5}}) {
          if (step != 1 && request.axes.more_updated.empty()) continue;  // one case is measured
          if (form.dampening != 0) continue;
          const bool keras = kind == AdamKind::keras, coupled = kind == AdamKind::adam;
          if (keras && form.rounding == StepRounding::each_operation) continue;
          // An infinite or huge gradient gives NaN in some precisions and a number in others.
          const bool specials = request.axes.special_values && (decay == 0 || !coupled);
          UpdateCase one(request, types, layouts, form, true, true, specials);
          const Format& format = one.format();
          run_case(name + " kind " + std::to_string(static_cast<int>(kind)) + " decay " + std::to_string(decay) +
                       " step " + std::to_string(step),
                   AdamStep{.tensors = one.tensors(),
                            .found_inf = one.found_inf(),
                            .kind = kind,
                            .rate = rate,
                            .beta1 = kBeta1,
                            .beta2 = kBeta2,
                            .epsilon = kEpsilon,
                            .weight_decay = decay,
                            .step = step,
                            .noise = 7,
                            .storage = form.storage,
                            .rounding = form.rounding},
                   [&](CaseResult& result) {
                     one.compare(result, [&](double p, double g, double m, double v) {
                       const double kept = coupled || decay == 0 ? p : p * (1 - rate * decay);
                       const double more = coupled && decay != 0 ? decay * p : 0, direction = g + more;
                       const double direction_slack = gamma(3, format) * (std::fabs(g) + std::fabs(more));
                       const double new_m = kBeta1 * m + (1 - kBeta1) * direction;
                       const double new_v = kBeta2 * v + (1 - kBeta2) * direction * direction;
                       const double m_slack = gamma(6, format) * (std::fabs(m) + std::fabs(direction)) +
                                              direction_slack + smallest(format);
                       const double v_slack = gamma(8, format) * (v + direction * direction) +
                                              3 * std::fabs(direction) * direction_slack * (1 - kBeta2) +
                                              3 * smallest(format);
                       const double first = 1 - std::pow(kBeta1, step), second = 1 - std::pow(kBeta2, step);
                       const double spread = keras ? (std::sqrt(new_v) + kEpsilon) / std::sqrt(second)
                                                   : std::sqrt(new_v / second) + kEpsilon;
                       const double change = rate / first * new_m / spread;
                       const double change_slack = std::fabs(change) * (gamma(16, format) + v_slack / new_v) +
                                                   2 * rate / first * m_slack / spread + smallest(format);
                       const double kept_slack = kept == p ? 0 : gamma(3, format) * std::fabs(p);
                       return Update{kept, change, new_m, new_v, kept_slack, change_slack, m_slack, v_slack};
                     });
                   });
        }
  });
}

namespace {

// Gradients of several shapes, the last of unscale_count elements. replace(values, number) may change them.
template <class Replace>
std::vector<Tensor> gradient_list(const CaseRequest& request, DType dtype, Replace replace) {
  std::vector<Shape> shapes = request.axes.more_updated;
  shapes.push_back({request.axes.unscale_count});
  std::vector<Tensor> gradients;
  for (const Shape& shape : shapes)
    gradients.push_back(filled_tensor(request, shape, dtype, Layout::plain, [&] {
      std::vector<double> values = random_values(shape.elements(), 1 + gradients.size());
      replace(values, gradients.size());
      return values;
    }));
  return gradients;
}
// With a value of each gradient replaced; by 0: none.
std::vector<Tensor> gradient_list(const CaseRequest& request, DType dtype, double bad) {
  return gradient_list(request, dtype, [&](std::vector<double>& values, size_t) {
    if (bad != 0) values[values.size() / 2] = bad;
  });
}

}  // namespace

template <>
void Cases<Unscale>::each(const CaseRequest& request, const RunCase<Unscale>& run_case) {
  const Axes& axes = request.axes;
  const size_t last_gradient = axes.more_updated.size(), last = static_cast<size_t>(axes.unscale_count) - 1;
  // A value of one gradient is `bad`, if that is not 0.
  const auto each = [&](DType dtype, float factor, double bad, size_t number, size_t place, double already) {
    std::vector<Tensor> gradients = gradient_list(request, dtype, [&](std::vector<double>& values, size_t gradient) {
      if (bad != 0 && gradient == number) values[place] = bad;
    });
    Tensor found = Tensor::from(request.device, {1}, DType::f32, std::vector<double>{already});
    const std::string name = std::string(name_of(dtype)) + " times " + std::to_string(factor) + " with " +
                             std::to_string(bad) + " at " + std::to_string(place) + " of " + std::to_string(number);
    run_case(name, Unscale{.gradients = gradients, .found_inf = found, .inverse_scale = factor},
             [&](CaseResult& result) {
               int exponent = 0;
               const bool exact = std::frexp(factor, &exponent) == 0.5f;
               for (const Tensor& gradient : gradients) {
                 std::vector<double> expected = result.before(gradient), slack(expected.size());
                 for (size_t i = 0; i < expected.size(); ++i) {
                   expected[i] *= static_cast<double>(factor);
                   if (!exact && std::isfinite(expected[i]))
                     slack[i] = gamma(1, wide_format(dtype)) * std::fabs(expected[i]);
                 }
                 result.expect_close(gradient, expected, slack);
               }
               result.expect_exact(found, {bad != 0 || already != 0 ? 1.0 : 0.0}, "found_inf");
             });
  };
  for (const DType dtype : axes.unscale_dtypes)
    for (const float factor : axes.inverse_scales)
      for (const double already : axes.found_before)
        for (const double bad : axes.unscale_bad) {
          if (bad == 0) {
            each(dtype, factor, bad, 0, 0, already);
            continue;
          }
          for (const size_t place : {size_t{0}, last / 2, last - 50, last})
            each(dtype, factor, bad, last_gradient, place, already);
          if (last_gradient > 0) each(dtype, factor, bad, 0, 0, already);
        }
}

template <>
void Cases<GradientNorm>::each(const CaseRequest& request, const RunCase<GradientNorm>& run_case) {
  std::vector<double> replaced = request.axes.unscale_bad;
  // Squares beyond the range of fp32 and fp16, of a norm within the first.
  if (request.axes.special_values) replaced.push_back(1e30), replaced.push_back(6e4);
  for (const DType dtype : request.axes.unscale_dtypes)
    for (const double bad : replaced) {
      const std::vector<Tensor> gradients = gradient_list(request, dtype, bad);
      Tensor norm(request.device, {1}, wide_type(dtype));
      run_case(std::string(name_of(dtype)) + " with " + std::to_string(bad),
               GradientNorm{.gradients = gradients, .norm = norm}, [&](CaseResult& result) {
                 double sum = 0, count = 0;
                 for (const Tensor& gradient : gradients)
                   for (const double value : gradient.values()) sum += value * value, ++count;
                 const double expected = std::sqrt(sum);
                 result.expect_close(norm, {expected},
                                     {std::isfinite(expected) ? gamma(count + 2, kFp64) * expected : 0}, "norm");
               });
    }
}

template <>
void Cases<ClipGradients>::each(const CaseRequest& request, const RunCase<ClipGradients>& run_case) {
  for (const DType dtype : request.axes.unscale_dtypes)
    for (const double limit : request.axes.clip_limits)
      for (const double bad : request.axes.unscale_bad) {
        std::vector<Tensor> gradients = gradient_list(request, dtype, bad);
        const double size = bad != 0 ? std::fabs(bad) : 17.25;
        const Tensor norm = Tensor::from(request.device, {1}, wide_type(dtype), std::vector<double>{size});
        run_case(std::string(name_of(dtype)) + " to " + std::to_string(limit) + " with " + std::to_string(bad),
                 ClipGradients{.gradients = gradients, .norm = norm, .limit = limit}, [&](CaseResult& result) {
                   const double factor = std::isnan(size) ? size : std::fmin(1, limit / (size + 1e-6));
                   for (const Tensor& gradient : gradients) {
                     std::vector<double> expected = result.before(gradient), slack(expected.size());
                     for (size_t i = 0; i < expected.size(); ++i) {
                       expected[i] *= factor;
                       if (factor != 1 && std::isfinite(expected[i]))
                         slack[i] = gamma(4, wide_format(dtype)) * std::fabs(expected[i]);
                     }
                     result.expect_close(gradient, expected, slack);
                   }
                 });
      }
}

}  // namespace halfmark::kernels::ops_cases
