// Part memory: the bytes of an evaluation by its precision, and by its batches when logits are kept or not.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/evaluation.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

struct PeakOfEvaluation {
  double total = 0, weights = 0;
};

PeakOfEvaluation peak_of(Trial& trial, MemoryLedger& ledger, int64_t batches, bool keeps_logits) {
  std::vector<Tensor> kept;
  ledger.reset_peak();
  for (int64_t i = 0; i < batches; ++i) {
    trial.load_batch(i);
    Tensor logits = trial.infer();
    if (keeps_logits) kept.push_back(std::move(logits));
  }
  const MemoryUse& peak = ledger.tensor_peak();
  const auto of = [&](Purpose purpose) { return static_cast<double>(peak.by_purpose[static_cast<size_t>(purpose)]); };
  return {static_cast<double>(peak.total), of(Purpose::weights) + of(Purpose::casts)};
}

}  // namespace

void evaluate_memory(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  std::vector<double> counts;
  for (int64_t count = 1; count < axes.batches; count *= 2) counts.push_back(static_cast<double>(count));
  counts.push_back(static_cast<double>(axes.batches));
  double fp32_peak = 0;
  for (const FormOfModel& form : forms_of_models()) {
    if (form.form != EvaluatedForm::trained) continue;
    TrialSpec spec = given.under(policy_named(form.policy));
    spec.settings.batchnorm_state.reset(), spec.settings.scaler.reset();
    // A separate device if possible: what earlier cases left must not be counted.
    spec.device = open_device(given.device->name());
    MemoryLedger& ledger = spec.device->memory();
    Trial trial(spec);
    trial.load_batch(0);
    const Tensor logits = trial.infer();
    const double output_bytes = static_cast<double>(bytes_for(logits.dtype(), static_cast<size_t>(logits.elements())));
    const std::string name(form.name);
    for (const bool keeps : {false, true}) {
      const std::string at = name + (keeps ? "/kept" : "/streamed");
      std::vector<double> peaks;
      for (const double count : counts)
        peaks.push_back(peak_of(trial, ledger, static_cast<int64_t>(count), keeps).total);
      out.number("evaluation.bytes_per_batch", at, (peaks.back() - peaks.front()) / (counts.back() - 1));
      out.curve("evaluation.peak_bytes", at, counts, peaks);
    }
    const PeakOfEvaluation one = peak_of(trial, ledger, 1, false);
    if (form.name == "fp32") fp32_peak = one.total;
    out.number("evaluation.peak_bytes", name, one.total);
    out.number("evaluation.peak_ratio", name, one.total / fp32_peak);
    out.number("evaluation.weight_bytes", name, one.weights);
    out.number("evaluation.output_bytes", name, output_bytes);
  }
}

}  // namespace halfmark::accuracy
