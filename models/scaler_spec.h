// The loss scaling rules of frameworks, as rows of one table. A policy names its rule, --scaler another one.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "models/namespaces.h"

namespace halfmark::models {

// Defaults: torch.amp.GradScaler (torch/amp/grad_scaler.py).
struct ScalerSpec {
  enum class Kind : uint8_t { none, fixed, dynamic } kind = Kind::none;
  double initial = 65536, growth = 2, backoff = 0.5;
  int interval = 2000;  // steps without overflow until the scale grows
  // Of these steps, those after the start or an overflow that do not count.
  int uncounted = 0;
  // The scale falls at this many overflows; an earlier one skips its step only.
  int hysteresis = 1;
  enum class Restored : uint8_t {
    at_growth,      // overflows are forgotten when the scale grows
    at_clean_step,  // at each step without overflow
  } restored = Restored::at_growth;
  double floor = 0, cap = std::numeric_limits<double>::infinity();  // the scale stays within
  // An overflow at the floor ends the training, as DeepSpeed's error "Current loss scale already at minimum".
  bool stops_at_floor = false;
  bool grows_to_infinity = false;  // else the scale does not grow if the product is not finite
  // A Python number; else a tensor or variable in fp32, to which each product is rounded.
  bool held_in_double = false;
  friend bool operator==(const ScalerSpec&, const ScalerSpec&) = default;
};

struct ScalerRow {
  std::string_view name, about, source;
  ScalerSpec spec;
};

std::span<const ScalerRow> scalers();

// "torch", or with another initial scale and another interval: "static:128", "torch:1024", "torch:1024:100". Throws Error
// that says what does not fit.
ScalerSpec scaler_of(std::string_view text);
// The text that scaler_of() reads; empty for one that is not of a row.
std::string text_of(const ScalerSpec& spec);

}  // namespace halfmark::models
