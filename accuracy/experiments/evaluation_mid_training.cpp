// Part mid_training: whether an evaluation in the middle of a training changes it, and what eval() without train() does.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "accuracy/experiments/ranking.h"

namespace halfmark::accuracy {
namespace {

enum class Middle : uint8_t {
  none,               // the training that others are compared with
  copy,               // a copy of the model is cast to half and evaluated
  in_place,           // model.half(), evaluation, model.float()
  in_place_restored,  // the same, and the fp32 values are put back
};
constexpr std::pair<std::string_view, Middle> kMiddles[] = {{"same_again", Middle::none},
                                                            {"copy", Middle::copy},
                                                            {"in_place", Middle::in_place},
                                                            {"in_place_restored", Middle::in_place_restored}};

enum class Mode : uint8_t {
  alternating,  // eval() and train() around each evaluation
  stays_eval,   // eval() after the first step, and never train()
};

struct TrainedModel {
  ModelValues after_first, last;
  double batch_accuracy = 0;  // mean over the last tenth of the steps
  Evaluation held_out;        // in fp32
};

TrainedModel train_with_evaluation(const TrialSpec& spec, const EvaluationAxes& axes, Middle middle, Mode mode) {
  Trial trial(spec);
  const Policy& half = policy_named(spec.policy->low == DType::bf16 ? "bf16" : "fp16");
  TrainedModel result;
  const int64_t last_tenth = std::max<int64_t>(1, axes.steps / 10);
  for (int64_t step = 0; step < axes.steps; ++step) {
    if (step == axes.steps / 2 && middle != Middle::none) {
      const ModelValues before = values_of(trial);
      if (middle != Middle::copy) put_values(trial, rounded_values(before, format_of(half.param)));
      trial.evaluate(axes.samples, &half);
      if (middle == Middle::in_place_restored) put_values(trial, before);
    }
    const StepResult found = trial.train_step(step);
    if (step >= axes.steps - last_tenth) result.batch_accuracy += found.accuracy / static_cast<double>(last_tenth);
    if (step == 0) {
      result.after_first = values_of(trial);
      if (mode == Mode::stays_eval) trial.set_training(false);
    }
  }
  result.last = values_of(trial);
  result.held_out = trial.evaluate(axes.samples, &policy_named("fp32"));
  return result;
}

double largest_change(const ModelValues& a, const ModelValues& b) {
  double largest = 0;
  for (size_t i = 0; i < a.states.size(); ++i)
    for (size_t k = 0; k < a.states[i].size(); ++k)
      largest = std::max(largest, std::fabs(a.states[i][k] - b.states[i][k]));
  return largest;
}

double bytes_of(const KernelLog& log) {
  double sum = 0;
  for (const kernels::LoggedKernel& entry : log.entries()) sum += static_cast<double>(entry.read + entry.written);
  return sum;
}

// Bytes that the operations of evaluating a batch move, as a share of those of a training step.
double cost_of_evaluation(const TrialSpec& spec) {
  Trial trial(spec);
  trial.train_step(0);  // allocates the state of the optimizer
  double step = 0, evaluation = 0;
  {
    const KernelLog log;
    trial.train_step(1);
    step = bytes_of(log);
  }
  const KernelLog log;
  trial.infer();
  evaluation = bytes_of(log);
  return evaluation / step;
}

}  // namespace

void evaluate_in_mid_training(const TrialSpec& spec, const EvaluationAxes& axes, FindingsWriter& out) {
  const TrainedModel plain = train_with_evaluation(spec, axes, Middle::none, Mode::alternating);
  const std::vector<double> values = all_values(plain.last), params = all_params(plain.last);
  for (const auto& [name, middle] : kMiddles) {
    const TrainedModel found = train_with_evaluation(spec, axes, middle, Mode::alternating);
    const std::string at(name);
    out.number("evaluation.training_unchanged", at, share_of_equal_values(all_values(found.last), values));
    out.number("evaluation.training_distance", at, relative_distance(all_params(found.last), params));
    out.number("evaluation.training_loss_change", at, found.held_out.loss - plain.held_out.loss);
  }
  const TrainedModel stays = train_with_evaluation(spec, axes, Middle::none, Mode::stays_eval);
  for (const auto& [at, model] : {std::pair{"train_again", &plain}, {"stays_eval", &stays}}) {
    if (!plain.last.states.empty())
      out.number("evaluation.statistics_change", at, largest_change(model->last, model->after_first));
    out.number("evaluation.accuracy_after", at, model->held_out.accuracy).standard_error =
        model->held_out.accuracy_error();
  }
  out.number("evaluation.training_distance", "stays_eval", relative_distance(all_params(stays.last), params));
  out.number("evaluation.training_loss_change", "stays_eval", stays.held_out.loss - plain.held_out.loss);
  out.number("evaluation.optimism", "", plain.batch_accuracy - plain.held_out.accuracy).standard_error =
      plain.held_out.accuracy_error();
  out.number("evaluation.predictions", "", static_cast<double>(plain.held_out.samples));
  out.number("evaluation.step_cost", "", cost_of_evaluation(spec));
}

}  // namespace halfmark::accuracy
