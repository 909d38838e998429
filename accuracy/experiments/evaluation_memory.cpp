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

// The peak of tensors after each number of batches in `counts`, which ascend.
std::vector<MemoryUse> peaks_of(Trial& trial, MemoryLedger& ledger, const std::vector<double>& counts,
                                bool keeps_logits) {
  std::vector<Tensor> kept;
  std::vector<MemoryUse> peaks;
  ledger.reset_peak();
  for (int64_t i = 0; peaks.size() < counts.size(); ++i) {
    trial.load_batch(i);
    Tensor logits = trial.infer();
    if (keeps_logits) kept.push_back(std::move(logits));
    if (static_cast<double>(i + 1) == counts[peaks.size()]) peaks.push_back(ledger.tensor_peak());
  }
  return peaks;
}

double of_weights(const MemoryUse& use) {
  return static_cast<double>(use.by_purpose[static_cast<size_t>(Purpose::weights)] +
                             use.by_purpose[static_cast<size_t>(Purpose::casts)]);
}

}  // namespace

void evaluate_memory(const TrialSpec& given, const EvaluationAxes& axes, FindingsWriter& out) {
  std::vector<double> counts;
  for (int64_t count = 1; count < axes.batches; count *= 2) counts.push_back(static_cast<double>(count));
  counts.push_back(static_cast<double>(axes.batches));
  double fp32_peak = 0;
  for (const FormOfModel& form : forms_of_models()) {
    if (form.form != EvaluatedForm::trained) continue;
    if (!is_supported(given, form)) {
      out.number("evaluation.left_out", std::string(form.name), 1);
      continue;
    }
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
      for (const MemoryUse& use : peaks_of(trial, ledger, counts, keeps))
        peaks.push_back(static_cast<double>(use.total));
      out.number("evaluation.bytes_per_batch", at, (peaks.back() - peaks.front()) / (counts.back() - 1));
      out.curve("evaluation.peak_bytes", at, counts, peaks);
    }
    const MemoryUse one = peaks_of(trial, ledger, {1}, false).front();
    const auto total = static_cast<double>(one.total);
    if (form.name == "fp32") fp32_peak = total;
    out.number("evaluation.peak_bytes", name, total);
    out.number("evaluation.peak_ratio", name, total / fp32_peak);
    out.number("evaluation.weight_bytes", name, of_weights(one));
    out.number("evaluation.output_bytes", name, output_bytes);
  }
}

}  // namespace halfmark::accuracy
