// The mistakes that the harness `lint` plants, as rows of a table: each changes how a training step is put together. The rules
// do not see this.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "accuracy/lint_copies.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// How a training is put together around the parts of a Trial. As it stands, it is right.
struct Procedure {
  bool unscales = true, unscales_again = false;
  bool clips = false, clips_before_unscale = false;  // to half of the norm of the first step
  int micro_batches = 1;
  bool unscales_each_micro_batch = false;
  bool casts_once = false;             // the forward pass sees the weights of the first step
  bool updates_in_half = false;        // updated parameters are rounded to the policy's low dtype
  bool sums_loss_in_half = false;      // of the samples, in the low dtype
  std::optional<double> mask_value{};  // in place of boolean masks
  bool trains_again = true;            // after the evaluation
  bool restores_statistics = true;     // after a skipped step
  CopyMistakes copies{};
};

struct MistakeRow {
  std::string_view name;   // "no_unscale"
  std::string_view about;  // one line
  std::string_view rule;   // which has to find it
  void (*plant)(Procedure&, TrialSpec&);
  // The reason why this mistake cannot be made in this trial.
  std::optional<std::string> (*refuses)(const TrialSpec&);
};

std::span<const MistakeRow> mistakes();
const MistakeRow* mistake_named(std::string_view name);  // null: none of them

// Of a subject whose attention is masked: samples of different lengths, one of them empty, under a boolean mask, or under
// numbers that are added. Null: the subject has no attention.
std::shared_ptr<const Subject> with_padding(const Subject& subject, std::optional<double> mask_value);

}  // namespace halfmark::accuracy
