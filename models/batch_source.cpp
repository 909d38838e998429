#include "models/batch_source.h"

#include <algorithm>
#include <utility>

#include "kernels/devices.h"
#include "models/index_storage.h"
#include "models/layers/detection_loss.h"
#include "models/layers/loss.h"

namespace halfmark::models {
namespace {

constexpr int64_t kEvaluationBatch = 256;
constexpr std::string_view kTrainingStream = "training", kHeldOutStream = "evaluation";

Shape with_samples(const Shape& input, int64_t samples) {
  std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
  extents[0] = samples;
  return Shape(extents);
}

}  // namespace

BatchSource::BatchSource(const TrialSpec& spec, const Policy& policy)
    : spec_(spec), policy_(policy), device_(*spec.device), key_(RandomKey(spec.seed).child("data")) {}
BatchSource::~BatchSource() = default;

bool BatchSource::has_indices() const { return row_of(spec_.subject->data).has_indices; }

// nhwc if the device prefers it for the batch as it is stored, or for what the policy, or that of some layers, makes of it.
Layout BatchSource::layout_of(const Shape& shape, DType dtype) const {
  if (shape.rank() != 4 || !is_floating(dtype)) return Layout::plain;
  if (spec_.settings.images) return *spec_.settings.images;
  const auto prefers_nhwc = [&](DType computed) { return device_.image_layout(computed) == Layout::nhwc; };
  const auto is_of_all = [](const LayerPolicy& one) { return one.pattern == "*"; };
  bool nhwc = prefers_nhwc(dtype) || (prefers_nhwc(policy_.low) && std::ranges::none_of(policy_.layers, is_of_all));
  for (const LayerPolicy& one : policy_.layers) nhwc = nhwc || prefers_nhwc(one.policy->low);
  return nhwc ? Layout::nhwc : Layout::plain;
}

Batch BatchSource::draw(std::string_view stream, int64_t number, const Shape& shape) const {
  const Subject& subject = *spec_.subject;
  const RandomKey own = key_.child(stream);
  return changed(!spec_.data ? draw_batch(subject.data, shape, subject.classes, own, number)
                 : stream == kHeldOutStream
                     ? held_out_batch(*spec_.data, subject.data, shape, own, number * kEvaluationBatch)
                     : training_batch(*spec_.data, subject.data, shape, own, number));
}

// With the settings and the rounding of the trial.
Batch BatchSource::changed(Batch drawn) const {
  if (has_indices()) return drawn;
  for (double& value : drawn.x) {
    value = value * spec_.settings.input_scale + spec_.settings.input_offset;
    if (spec_.round_first) value = round_to(*spec_.round_first, value);
  }
  return drawn;
}

// From the thread that reads ahead.
Batch BatchSource::read(int64_t step) {
  if (!ahead_ || ahead_->next_step() != step)
    ahead_ = std::make_unique<ReadAhead>(
        [data = spec_.data, subject = spec_.subject, own = key_.child(kTrainingStream)](int64_t wanted) {
          return training_batch(*data, subject->data, subject->input, own, wanted, true);
        },
        step);
  return changed(ahead_->take());
}

Batch BatchSource::training(int64_t step) {
  return reads_ahead_ ? read(step) : draw(kTrainingStream, step, spec_.subject->input);
}

void BatchSource::read_ahead() { reads_ahead_ = spec_.data != nullptr; }
const ReadingTimes* BatchSource::reading_times() const { return ahead_ ? &ahead_->times() : nullptr; }

HeldOut BatchSource::held_out(int64_t samples) const {
  const Shape& input = spec_.subject->input;
  HeldOut held{.samples = spec_.data ? std::min(samples, spec_.data->samples(Split::held_out, input)) : samples};
  for (int64_t first = 0; first < held.samples; first += kEvaluationBatch) {
    held.shapes.push_back(with_samples(input, std::min(kEvaluationBatch, held.samples - first)));
    held.batches.push_back(draw(kHeldOutStream, first / kEvaluationBatch, held.shapes.back()));
  }
  return held;
}

Tensor BatchSource::input(const Batch& batch, const Shape& given) const {
  PurposeScope purpose(Purpose::input);
  if (has_indices()) return stored_indices(device_, given, batch.x, spec_.settings.indices);
  const DType dtype = spec_.subject->input_dtype(policy_);
  return Tensor::from(device_, given, dtype, batch.x, layout_of(given, dtype));
}

// 1 for the class of the label and 0 for the others, for losses that compare numbers.
Tensor BatchSource::one_hot(const std::vector<double>& classes, const Shape& result) const {
  const bool is_image = result.rank() == 4;
  const int64_t count = is_image ? result[1] : result[result.rank() - 1];
  const int64_t pixels = is_image ? result[2] * result[3] : 1;
  std::vector<double> values(static_cast<size_t>(result.elements()), 0.0);
  for (int64_t i = 0; i < static_cast<int64_t>(classes.size()); ++i) {
    const auto label = static_cast<int64_t>(classes[static_cast<size_t>(i)]);
    if (label < count) values[static_cast<size_t>((i / pixels * count + label) * pixels + i % pixels)] = 1;
  }
  return Tensor::from(device_, result, target_dtype(), values);
}

Tensor BatchSource::targets(const Batch& batch, const Shape& given, const Shape& result) const {
  PurposeScope purpose(Purpose::input);
  const Shape shape = target_shape(spec_.subject->data, given);
  if (row_of(spec_.subject->loss.kind).targets == TargetKind::values) return one_hot(batch.labels, result);
  if (spec_.subject->data == DataKind::boxes)
    return Tensor::from(device_, {result[0], result[1], 2 * result[2]}, target_dtype(),
                        detection_targets(batch.labels, result[0], result[2] - 4, given[2], given[3]));
  if (spec_.subject->data != DataKind::speech)
    return stored_indices(device_, shape, batch.labels, spec_.settings.indices);
  std::vector<double> filled = batch.labels;  // all steps of the output count
  for (size_t i = 0; i < filled.size(); i += static_cast<size_t>(shape[1])) filled[i] = static_cast<double>(result[1]);
  return stored_indices(device_, shape, filled, spec_.settings.indices);
}

Tensor BatchSource::given_to_model(const Tensor& stored) const {
  return has_indices() ? indices_for_kernels(stored, spec_.settings.indices) : stored;
}

// Targets that are floating numbers are stored as they are.
Tensor BatchSource::given_to_loss(const Tensor& stored) const {
  return is_floating(stored.dtype()) ? stored : indices_for_kernels(stored, spec_.settings.indices);
}

}  // namespace halfmark::models
