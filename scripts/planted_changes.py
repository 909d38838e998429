"""The changes of meaning that planted_meanings.py plants: name, what it means, and (file, old text, new text)."""

import collections

Change = collections.namedtuple("Change", "name what edits")

BATCHNORM = "models/layers/batchnorm.cpp"
HOST_NORM = "kernels/cpu/host/batch_norm.cpp"
LINEAR = "models/layers/linear.cpp"
CONV = "models/layers/conv2d.cpp"
POOL = "models/layers/pool.cpp"
HOST_POOL = "kernels/cpu/host/pooling.cpp"
CONTAINERS = "models/layers/containers.cpp"
LOSS = "models/layers/loss.cpp"
INITIAL = "models/layer.cpp"
HOST_TRAINING = "kernels/cpu/host/training.cpp"
BLAS = "kernels/cpu/blas_rows.cpp"
FORMULAS = "kernels/ops/formulas.h"
OPTIMIZER = "models/optimizer.cpp"
STEPS = "kernels/ops/optimizers.h"
SCALER = "models/scaler.cpp"
SCALER_SPEC = "models/scaler_spec.h"
TRIAL = "models/trial.cpp"
BATCHES = "models/batch_source.cpp"
DATA = "models/data.cpp"
LAYER = "models/layer.cpp"
POLICY = "models/policy.cpp"
FAMILIES = "models/layer_families.cpp"


def change(name, what, *edits):
    return Change(name, what, edits)


def scaled(tensor, factor):
    """Code that multiplies a tensor by a factor."""
    return f"{{ std::vector<double> v = {tensor}.values(); for (double& x : v) x *= {factor}; {tensor}.set_values(v); }}"


MOMENTUM = ".momentum = options_.momentum,\n                                       .epsilon"  # of the norm without ReLU
BIAS_GRADIENT = "    bias_.gradient(pass, w.dtype(), dy);\n"


# The gradient of the input of an unfused linear layer.
LINEAR_DX = BIAS_GRADIENT + ("    Tensor dx = pass.fresh(a.shape(), a.dtype());\n"
                             "    run(Matmul{.a = dy, .b = w, .out = dx, .math = math});\n")


def bias_gradient_of(change):
    """The gradient of the bias, computed from a copy of dy, `part`, after a change."""
    return f"    Tensor part = dy.clone();\n    {change}\n    bias_.gradient(pass, w.dtype(), part);\n"


CLIP = """{ double sum = 0;
  for (Param* one : parts_->params) for (const double g : one->grad.values()) sum += g * g;
  if (sum > 1e-4) for (Param* one : parts_->params) {
    std::vector<double> v = one->grad.values();
    for (double& g : v) g *= 1e-2 / std::sqrt(sum);
    one->grad.set_values(v);
  } }
"""
UNSCALE_LINES = "  parts_->enqueue_unscale();\n  parts_->scaler.enqueue_read();\n"

CHANGES = [
    change("nothing", "the unchanged program, measured again"),
    # Batch norm.
    change("bn_epsilon", "epsilon 1e-5 is 1e-4", (BATCHNORM, "options_(options) {", "options_(options) { options_.epsilon *= 10;")),
    change("bn_epsilon_backward", "epsilon is ten times larger in the backward pass only",
           (BATCHNORM, ".dshift = dshift,\n                              .epsilon = options_.epsilon});",
            ".dshift = dshift,\n                              .epsilon = 10 * options_.epsilon});")),
    change("bn_epsilon_inference", "epsilon is ten times larger in evaluation mode only",
           (BATCHNORM, ".out = y,\n                             .epsilon = options_.epsilon});",
            ".out = y,\n                             .epsilon = 10 * options_.epsilon});")),
    change("bn_momentum", "momentum 0.1 is 0.11", (BATCHNORM, MOMENTUM, MOMENTUM.replace("= ", "= 1.1 * "))),
    change("bn_momentum_swapped", "the running value keeps the share momentum, not 1 - momentum",
           (BATCHNORM, MOMENTUM, MOMENTUM.replace("= ", "= 1 - "))),
    change("bn_biased_running_variance", "the running variance is updated with the biased variance",
           (HOST_NORM, "m.values() / (m.values() - 1);", "1;")),
    change("bn_unbiased_normalisation", "the batch is normalised with the unbiased variance",
           (HOST_NORM, "  for (double& value : variance) value /= m.values();", "  for (double& value : variance) value /= m.values() - 1;")),
    change("bn_first_scale", "the scale starts at 0.5", (BATCHNORM, 'values("scale", draws_affine, 1,', 'values("scale", draws_affine, 0.5,')),
    change("bn_first_shift", "the shift starts at 0.01", (BATCHNORM, 'values("shift", draws_affine, 0,', 'values("shift", draws_affine, 0.01,')),
    change("bn_first_variance", "the running variance starts at 0",
           (BATCHNORM, 'values("variance", options_.drawn_start, 1,', 'values("variance", options_.drawn_start, 0,')),
    change("bn_saved_mean_dropped", "backward reads the variance where it should read the mean",
           (BATCHNORM, "saved->keep(mean), saved->keep(variance), saved->keep(x);", "saved->keep(variance), saved->keep(variance), saved->keep(x);")),
    change("bn_inference_of_batch", "evaluation mode reads the running mean as 0",
           (BATCHNORM, "    if (is_fixed) {\n", "    if (is_fixed) {\n      mean_.value.fill(0);\n")),
    change("bn_dx_without_mean_term", "dx misses the term of dshift",
           (FORMULAS, "return a * (dy - b - (x - mean) * d);", "return a * (dy - (x - mean) * d + 0 * b);")),
    change("bn_dx_without_variance_term", "dx misses the term of dscale",
           (FORMULAS, "return a * (dy - b - (x - mean) * d);", "return a * (dy - b + 0 * d * (x - mean));")),
    # Linear and convolution.
    change("linear_bias_gradient_dropped", "the gradient of the bias is 0", (LINEAR, BIAS_GRADIENT, bias_gradient_of("part.fill(0);"))),
    change("linear_bias_not_added", "the bias is not added", (LINEAR, "    bias_.add(pass, \"linear\", y);\n", "")),
    change("linear_weight_gradient_scaled", "the gradient of the weights is 0.1 % larger",
           (LINEAR, ".transpose_a = true, .math = math}); });", ".transpose_a = true, .math = math}); " + scaled("dw", 1.001) + " });")),
    change("linear_weight_gradient_shifted", "the gradient of the weights is shifted by one place",
           (LINEAR, ".transpose_a = true, .math = math}); });",
            ".transpose_a = true, .math = math}); std::vector<double> v = dw.values(); v.insert(v.begin(), v.back()); "
            "v.pop_back(); dw.set_values(v); });")),
    change("linear_dx_scaled", "the gradient of the input is 0.1 % larger",
           (LINEAR, LINEAR_DX, LINEAR_DX + "    " + scaled("dx", 1.001) + "\n")),
    change("linear_gain", "initial weights are sqrt(3) times larger", (INITIAL, "drawn_uniform(own, shape, 1 / std::sqrt(static_cast<double>(fan_in)))", "drawn_uniform(own, shape, std::sqrt(3 / static_cast<double>(fan_in)))")),
    change("linear_fan_out", "initial weights follow the outputs, not the inputs",
           (LINEAR, "{out, in}, in, out, start", "{out, in}, out, in, start")),
    change("linear_bias_starts_at_zero", "the bias starts at 0",
           (INITIAL, "if (!start.bias)", "if (!start.bias && fan_in == 0)"),
           (INITIAL, "*start.bias", "start.bias.value_or(0)")),
    change("conv_bias_gradient_dropped", "the gradient of the bias is 0", (CONV, BIAS_GRADIENT, bias_gradient_of("part.fill(0);"))),
    change("conv_bias_gradient_of_first_image", "the gradient of the bias is halved",
           (CONV, BIAS_GRADIENT, bias_gradient_of(scaled("part", 0.5)))),
    change("conv_weight_gradient_scaled", "the gradient of the weights is 0.1 % larger",
           (CONV, ".groups = groups_, .math = math});\n    });", ".groups = groups_, .math = math});\n      " + scaled("dw", 1.001) + "\n    });")),
    change("conv_fan_in_of_channels", "initial weights ignore the area of the kernel",
           (CONV, "kernel.h, kernel.w}, in / groups * area(kernel),", "kernel.h, kernel.w}, in / groups,")),
    change("conv_padding", "a single convolution pads one row less where the kernel is 3 high",
           (FAMILIES, '{"padding", pad},', '{"padding", Extent{pad.h - (kernel.h > 1 ? 1 : 0), pad.w}},')),
    change("conv_first_row_is_padding", "the convolution reads 0 for the first row of the image",
           (BLAS, "if (row < 0 || row >= h) continue;", "if (row < 1 || row >= h) continue;")),
    change("conv_gradient_of_last_image", "the weight gradient is that of the last image only",
           (BLAS, "n ? T(1) : T(0)", "T(0)")),
    # Pooling, activation, containers.
    change("max_pool_last_of_ties", "the last of equal maxima gets the gradient", (FORMULAS, "return candidate > best ||", "return candidate >= best ||")),
    change("max_pool_overlap", "overlapping windows overwrite their gradients instead of adding them",
           (HOST_POOL, "column * sx.w)] +=\n            source", "column * sx.w)] =\n            source")),
    change("avg_pool_divisor", "the mean divides by one value more", (HOST_POOL, "result[static_cast<size_t>(n * sy.n + c * sy.c + y * sy.h + z * sy.w)] = sum / count;",
            "result[static_cast<size_t>(n * sy.n + c * sy.c + y * sy.h + z * sy.w)] = sum / (count + 1);")),
    change("avg_pool_gradient_divisor", "the gradient of the mean is not divided",
           (HOST_POOL, "c * sy.c + y * sy.h + z * sy.w)] / count;", "c * sy.c + y * sy.h + z * sy.w)] / (count > 0 ? T(1) : T(2));")),
    change("relu_gradient_at_zero", "ReLU passes the gradient at exactly 0", (FORMULAS, "return y <= 0 ? T(0) : dy;", "return y < 0 ? T(0) : dy;")),
    change("relu_leaks", "ReLU keeps 1e-6 of negative values", (FORMULAS, "return x <= 0 ? T(0) : x;", "return x <= 0 ? T(1e-6) * x : x;")),
    change("residual_shortcut_gradient", "the gradient through the shortcut is dropped",
           (CONTAINERS, "return pass.cast(pass.sum(through_body, through_shortcut), x.dtype);", "(void)through_shortcut; return pass.cast(through_body, x.dtype);")),
    # Loss.
    change("loss_wrong_count", "the loss is divided by the samples plus one",
           (HOST_TRAINING, "total / static_cast<double>(rows));", "total / static_cast<double>(rows + 1));")),
    change("loss_sum", "the loss is the sum, not the mean", (HOST_TRAINING, "total / static_cast<double>(rows));", "total);")),
    change("loss_gradient_of_sum", "the gradient of the loss is that of the sum",
           (HOST_TRAINING, "op.dloss / static_cast<double>(rows));", "op.dloss);")),
    change("loss_label_smoothing", "the labels are smoothed by 0.001",
           (FORMULAS, "return (std::exp(log_probability) - (is_label ? T(1) : T(0))) * factor;",
            "return (std::exp(log_probability) - (is_label ? T(0.9991) : T(0.0001))) * factor;")),
    change("loss_gradient_rounded", "the gradient of the loss is multiplied by a factor in fp16", (LOSS, "rounded = round_to(format_of(loss_), dloss)", "rounded = round_to(kFp16, dloss / 3)")),
    # Optimizer.
    change("sgd_rate", "the rate is 1 % larger", (OPTIMIZER, ".rate = rate_,\n              .momentum", ".rate = 1.01 * rate_,\n              .momentum")),
    change("sgd_momentum", "momentum 0.9 is 0.89", (OPTIMIZER, ".momentum = momentum_,", ".momentum = momentum_ - 0.01,")),
    change("sgd_no_decay", "weight decay is ignored", (OPTIMIZER, ".weight_decay = weight_decay_,\n              .nesterov", ".weight_decay = 0 * weight_decay_,\n              .nesterov")),
    change("sgd_dampening", "the gradient enters the velocity with the factor 1 - momentum",
           (STEPS, "r(c.momentum * velocity) + c.share * direction)", "r(c.momentum * velocity) + (T(1) - c.momentum) * direction)")),
    change("sgd_nesterov", "the step is Nesterov's",
           (STEPS, "c.nesterov ? r(direction + c.momentum * next) : next;", "r(direction + c.momentum * next);")),
    change("sgd_decay_decoupled", "weight decay acts on the parameter, not on the gradient",
           (STEPS, "has_decay ? r(gradient + c.weight_decay * parameter) : gradient;\n  const T next", "gradient;\n  const T next"),
           (STEPS, "return {parameter, c.rate * moved, next, T(0)};", "return {parameter, c.rate * moved + (has_decay ? c.rate * c.weight_decay * parameter : T(0)), next, T(0)};")),
    change("sgd_velocity_forgotten", "the velocity starts at zero in every step", (OPTIMIZER, "states_.resize(params.size());", "states_.assign(params.size(), State());")),
    change("sgd_old_velocity", "the parameter moves by the velocity before the step",
           (STEPS, "return {parameter, c.rate * moved, next, T(0)};", "return {parameter, c.rate * (has_momentum ? velocity : moved), next, T(0)};")),
    change("sgd_last_parameter", "the last parameter is not updated", (OPTIMIZER, "i < params.size(); ++i", "i + 1 < params.size(); ++i")),
    change("rate_of_loss_factor", "the rate is not divided by the factor of the loss", (TRIAL, "? settings.rate / settings.loss_factor", "? settings.rate")),
    # Loss scaling.
    change("scaler_growth", "the scale grows by 4, not by 2", (SCALER, "held(scale_ * spec_.growth)", "held(scale_ * 2 * spec_.growth)")),
    change("scaler_backoff", "the scale backs off by 4, not by 2", (SCALER, "held(scale_ * spec_.backoff)", "held(scale_ * spec_.backoff / 2)")),
    change("scaler_interval", "the scale grows one step later", (SCALER, "if (++tracker_ == spec_.interval) raise();", "if (tracker_++ == spec_.interval) raise();")),
    change("scaler_tracker_kept", "an overflow does not reset the count of clean steps",
           (SCALER, "void Scaler::lower() {\n  tracker_ = -spec_.uncounted;\n", "void Scaler::lower() {\n")),
    change("scaler_grows_to_infinity", "the scale may become infinite", (SCALER, "if (spec_.grows_to_infinity || std::isfinite(grown)) scale_ = grown;", "scale_ = grown;")),
    change("scaler_default_interval", "the default interval is 1000 steps", (SCALER_SPEC, "int interval = 2000;", "int interval = 1000;")),
    change("scaler_default_initial", "the default scale starts at 2^15", (SCALER_SPEC, "double initial = 65536,", "double initial = 32768,")),
    change("scaler_no_unscale", "the gradients keep the loss scale",
           (SCALER, "static_cast<float>(1 / scale_);", "static_cast<float>(1.0 + 0 * scale_);")),
    change("skip_not_skipped", "a step with a non-finite gradient is made", (TRIAL, "scaler.is_dynamic() ? scaler.found_inf() : Tensor()", "Tensor()")),
    change("skip_without_backoff", "the scale does not hear of an overflow", (TRIAL, "  p.scaler.update(skipped);\n  return", "  p.scaler.update(false);\n  return")),
    change("skip_counted", "a skipped step counts for Adam", (OPTIMIZER, "  for (const size_t i : stepped_) --states_[i].steps;\n", "")),
    change("unscale_after_step", "the gradients are unscaled after the step",
           (TRIAL, UNSCALE_LINES + "  parts_->step_unless_overflowed();\n", "  step_optimizer();\n" + UNSCALE_LINES)),
    change("clip_before_unscale", "gradients are clipped to the norm 0.01 before they are unscaled", (TRIAL, UNSCALE_LINES, CLIP + UNSCALE_LINES)),
    change("clip_after_unscale", "gradients are clipped to the norm 0.01", (TRIAL, UNSCALE_LINES, UNSCALE_LINES + CLIP)),
    # Data.
    change("data_stream", "the data come from another stream of random numbers", (BATCHES, 'child("data"))', 'child("date"))')),
    change("data_uniform", "independent numbers are uniform, not normal",
           (DATA, "return stream.normal(i);", "return 3.4641016151377544 * (stream.uniform(i) - 0.5);")),
    change("data_labels_shifted", "every label is one class higher",
           (DATA, "*y = static_cast<double>(label);", "*y = static_cast<double>((label + 1) % classes);")),
    change("data_same_batch", "every step sees the first batch", (DATA, "key.child(static_cast<uint64_t>(step));", "key.child(static_cast<uint64_t>(0 * step));")),
    change("data_noise", "the noise of images is 0.41, not 0.4", ("models/data_images.cpp", "+ 0.4 * noise.normal(drawn++)", "+ 0.41 * noise.normal(drawn++)")),
    change("data_points_nearer", "the points of two classes are nearer", ("models/data_sequences.cpp", "const double reach = 5 * sign", "const double reach = 4.99 * sign")),
    change("evaluation_on_training_data", "the evaluation draws training batches", (BATCHES, 'draw(kHeldOutStream, first', 'draw("training", first')),
    change("evaluation_in_training_mode", "the evaluation normalises with the statistics of its batch",
           (TRIAL, "      Pass pass(device, policy, false);\n      const Tensor out", "      Pass pass(device, policy, true);\n      const Tensor out")),
    change("output_slope", "the random output gradient of single layers is 0.1 % larger",
           (TRIAL, "return numbers.normal(i) /", "return 1.001 * numbers.normal(i) /")),
    # Initial values.
    change("initial_values_not_symmetric", "initial values are in [0, bound)", (LAYER, "(2 * key.uniform(i) - 1) * bound", "key.uniform(i) * bound")),
    change("initial_values_normal", "initial values are normal, not uniform", (LAYER, "(2 * key.uniform(i) - 1) * bound", "key.normal(i) * bound / 1.7320508075688772")),
    change("initial_values_one_stream", "all parameters draw the same numbers", (LAYER, "const RandomKey own = init.key.child(name);", "const RandomKey own = init.key;")),
]
