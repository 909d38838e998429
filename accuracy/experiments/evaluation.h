// The parts of the harness `evaluation`, and what they share: the forms in which a trained model is evaluated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/answers.h"
#include "accuracy/experiments/trial_values.h"

namespace halfmark::accuracy {

struct EvaluationAxes {
  int64_t steps = 0, checkpoints = 0, seeds = 0, samples = 0, batches = 0;
};

// In which precision a trained model answers.
struct FormOfModel {
  std::string_view name, policy;
  EvaluatedForm form = EvaluatedForm::trained;
};
// fp32, tf32, autocast and full half; fp16_folded needs batch norm after convolutions.
std::span<const FormOfModel> forms_of_models();
// Whether the device has kernels for it: a GPU before Ampere has none for tf32 and bf16. fp32 must be there: true.
bool is_supported(const TrialSpec& spec, const FormOfModel& form);

// Trains for `steps`; `kept` gets the values after `checkpoints` equal parts of them, the last one at the end.
std::vector<ModelValues> train_checkpoints(const TrialSpec& spec, int64_t steps, int64_t checkpoints);

// Evaluates the same values again and again; the held-out samples are drawn once.
class Evaluator {
 public:
  explicit Evaluator(const TrialSpec& spec, int64_t samples);
  bool has(const FormOfModel& form) const;  // whether the model can be evaluated in it
  Evaluation evaluate(const ModelValues& values, const FormOfModel& form, Answers* answers = nullptr);
  Evaluation exact(const ModelValues& values, Answers* answers = nullptr);  // in fp64

 private:
  Trial fp32_, fp64_;
  int64_t samples_;
};

void evaluate_checkpoints(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_in_mid_training(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_memory(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_rates(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_slots(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_conclusions(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);
void evaluate_int8(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out);

// The probability that as many or more of the seeds that differ are wrong in `wrong` alone, if both are wrong equally often: the
// one-sided exact test of McNemar (Psychometrika 12, 1947) for pairs. 1 or 0 for each seed; at most 1000 seeds.
double more_often_by_chance(std::span<const double> wrong, std::span<const double> wrong_in_fp32);

// The networks of part `slots`, for labelled images of the size of the subject; none for other data.
struct SlotNetwork {
  std::string name;
  Network network;
};
std::vector<SlotNetwork> slot_networks(const Subject& subject);

}  // namespace halfmark::accuracy
