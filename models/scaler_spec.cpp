#include "models/scaler_spec.h"

#include <charconv>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

using Kind = ScalerSpec::Kind;
using Restored = ScalerSpec::Restored;

// Commits are those of the stored sources that were read. Scale trajectories of all rows are compared in scaler_test.cpp.
const ScalerRow kScalers[] = {
    {"none", "the loss is not scaled", "", {.kind = Kind::none}},
    {"static",
     "one scale for the whole training, 128 unless given; gradients are not checked, so no step is skipped",
     "apex/amp/scaler.py; 128 is that of apex's examples",
     {.kind = Kind::fixed, .initial = 128}},
    {"torch",
     "torch.amp.GradScaler",
     "torch/amp/grad_scaler.py, aten/src/ATen/native/cuda/AmpKernels.cu",
     {.kind = Kind::dynamic}},
    {"apex",
     "apex.amp: as torch, at most 2^24",
     "apex/amp/scaler.py",
     {.kind = Kind::dynamic, .cap = 0x1p24, .held_in_double = true}},
    {"apex-legacy",
     "DynamicLossScaler of apex.fp16_utils: from 2^32, every 1000 steps, at least 1",
     "apex/fp16_utils/loss_scaler.py",
     {.kind = Kind::dynamic,
      .initial = 0x1p32,
      .interval = 1000,
      .floor = 1,
      .grows_to_infinity = true,
      .held_in_double = true}},
    {"apex-hysteresis",
     "update_scale_hysteresis of apex: falls at the second overflow with no clean step in between",
     "csrc/update_scale_hysteresis.cu; scale, interval and hysteresis are the caller's, here torch's and 2",
     {.kind = Kind::dynamic, .hysteresis = 2, .restored = Restored::at_clean_step}},
    {"keras",
     "LossScaleOptimizer of Keras 3: from 2^15, without any limit",
     "keras/src/optimizers/loss_scale_optimizer.py",
     {.kind = Kind::dynamic, .initial = 0x1p15, .grows_to_infinity = true}},
    {"tensorflow",
     "DynamicLossScale of TensorFlow 1 and 2: from 2^15, at least 1",
     "tensorflow/python/training/experimental/loss_scale.py",
     {.kind = Kind::dynamic, .initial = 0x1p15, .floor = 1}},
    {"deepspeed",
     "DeepSpeed's fp16: every 1000 steps, falls at the second overflow, at least 1, where it stops",
     "deepspeed/runtime/fp16/loss_scaler.py, defaults of its configuration; growth as since commit e440506 of June "
     "2025",
     {.kind = Kind::dynamic,
      .interval = 1000,
      .uncounted = 1,
      .hysteresis = 2,
      .floor = 1,
      .stops_at_floor = true,
      .grows_to_infinity = true,
      .held_in_double = true}},
    {"deepspeed-consecutive",
     "the same with consecutive_hysteresis: a clean step forgets the overflows",
     "deepspeed/runtime/fp16/loss_scaler.py",
     {.kind = Kind::dynamic,
      .interval = 1000,
      .uncounted = 1,
      .hysteresis = 2,
      .restored = Restored::at_clean_step,
      .floor = 1,
      .stops_at_floor = true,
      .grows_to_infinity = true,
      .held_in_double = true}},
    {"deepspeed-2024",
     "as deepspeed, with its growth until June 2025: one step earlier",
     "deepspeed/runtime/fp16/loss_scaler.py before commit e440506",
     {.kind = Kind::dynamic,
      .interval = 1000,
      .hysteresis = 2,
      .floor = 1,
      .stops_at_floor = true,
      .grows_to_infinity = true,
      .held_in_double = true}},
    {"megatron",
     "DynamicGradScaler of Megatron: from 2^32, every 1000 steps, falls at the second overflow, at least 1",
     "megatron/core/optimizer/grad_scaler.py",
     {.kind = Kind::dynamic,
      .initial = 0x1p32,
      .interval = 1000,
      .hysteresis = 2,
      .floor = 1,
      .grows_to_infinity = true}},
};

// What a row is without the two numbers that a text may change.
ScalerSpec rule_of(ScalerSpec spec) {
  spec.initial = 0, spec.interval = 0;
  return spec;
}

template <class Number>
Number number_of(std::string_view text, std::string_view part, const std::string& what) {
  Number value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  const std::string where = "loss scaler '" + std::string(text) + "': the " + what + " '" + std::string(part) + "' is ";
  HM_CHECK(error != std::errc::result_out_of_range, where + "out of the range of numbers");
  HM_CHECK(error == std::errc() && end == part.data() + part.size() && value > 0 &&
               std::isfinite(static_cast<double>(value)),
           where + (std::is_integral_v<Number> ? "not a positive whole number" : "not a positive number"));
  return value;
}

// In the shortest form that reads back the same; huge and tiny ones as 1e38 and 1e-30. A plus sign separates the changes of
// a policy.
std::string shortest(double value) {
  const bool is_usual = value == 0 || (value >= 1e-6 && value < 1e15);
  char text[64];
  std::string shown(text, std::to_chars(text, text + sizeof text, value,
                                        is_usual ? std::chars_format::fixed : std::chars_format::scientific)
                              .ptr);
  std::erase(shown, '+');
  return shown;
}

}  // namespace

std::span<const ScalerRow> scalers() { return kScalers; }

ScalerSpec scaler_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == rest.npos) break;
    rest.remove_prefix(colon + 1);
  }
  ScalerSpec spec = named("loss scaler", kScalers, parts[0]).spec;
  const size_t most = spec.kind == Kind::none ? 1 : spec.kind == Kind::fixed ? 2 : 3;
  HM_CHECK(parts.size() <= most, "loss scaler '" + std::string(text) + "': " + std::string(parts[0]) + " takes " +
                                     (most == 1   ? "no number"
                                      : most == 2 ? "one number, the scale"
                                                  : "two numbers, the initial scale and the steps until it grows"));
  if (parts.size() > 1) spec.initial = number_of<double>(text, parts[1], "scale");
  if (parts.size() > 2) spec.interval = number_of<int>(text, parts[2], "interval");
  HM_CHECK(spec.initial <= 0x1p127,
           "loss scaler '" + std::string(text) + "': the scale is beyond 2^127, the last power of two in fp32");
  HM_CHECK(spec.initial <= spec.cap, "loss scaler '" + std::string(text) + "': the scale is above " +
                                         shortest(spec.cap) + ", the largest that this scaler takes");
  HM_CHECK(spec.initial >= 0x1p-126,
           "loss scaler '" + std::string(text) + "': the scale is below 2^-126, the smallest normal number of fp32");
  HM_CHECK(spec.initial >= spec.floor, "loss scaler '" + std::string(text) + "': the scale is below " +
                                           shortest(spec.floor) + ", the least that this scaler takes");
  return spec;
}

std::string text_of(const ScalerSpec& spec) {
  for (const ScalerRow& row : kScalers) {
    if (!(rule_of(row.spec) == rule_of(spec))) continue;
    std::string text(row.name);
    if (spec.initial != row.spec.initial || spec.interval != row.spec.interval) text += ":" + shortest(spec.initial);
    if (spec.interval != row.spec.interval) text += ":" + shortest(spec.interval);
    return text;
  }
  return "";
}

}  // namespace halfmark::models
