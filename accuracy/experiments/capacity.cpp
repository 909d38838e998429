// The capacity experiment: the largest batch of a model in a given memory, and how its memory divides as the batch grows.
// All numbers are predicted (models/memory_prediction.h); the harness memory measures single batches.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "models/memory_prediction.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& capacity_table() {
  static const std::vector<MetricRow> rows = {
      {"capacity.batch", "1", Better::higher, Kind::exact,
       "largest batch whose training step needs at most `memory` GiB for its tensors, predicted"},
      {"capacity.ratio", "1", Better::higher, Kind::exact, "that batch divided by the one under fp32"},
      {"capacity.bytes", "B", Better::lower, Kind::exact, "over the batch: tensors of a training step, predicted"},
      {"capacity.bytes_ratio", "1", Better::lower, Kind::exact,
       "over the batch, and at the least and the largest one: capacity.bytes divided by that of fp32"},
      {"capacity.master_share", "1", Better::lower, Kind::exact,
       "over the batch: bytes of an fp32 copy of all parameters divided by capacity.bytes"},
      {"capacity.index_share", "1", Better::lower, Kind::exact,
       "over the batch: what labels and indices of 64 bits need more than those of 32 bits, divided by capacity.bytes"},
  };
  return rows;
}

const Harness& capacity_self() {
  static const Harness harness = capacity_harness();
  return harness;
}

// The subject at another batch; an Error for one without the size b.
const Subject& at_batch(const Subject& subject, int64_t batch) {
  const std::string sizes = subject.sizes.substr(subject.sizes.find('_'));
  return subject_named(subject.name + "/b" + std::to_string(batch) + sizes);
}

struct Predicted {
  double bytes = 0, parameters = 0;
};

Predicted predicted(const Subject& subject, const Policy& policy, models::IndexType indices = models::IndexType::i32) {
  Settings settings = subject.settings;
  settings.indices = indices;
  const models::MemoryPrediction prediction = models::predict_memory(subject, policy, settings);
  return {static_cast<double>(prediction.peak.total),
          static_cast<double>(prediction.peak.by_purpose[static_cast<size_t>(Purpose::weights)])};
}

int64_t largest_batch(const Subject& subject, const Policy& policy, double bytes) {
  constexpr int64_t kMost = 1 << 20;
  const auto fits = [&](int64_t batch) { return predicted(at_batch(subject, batch), policy).bytes <= bytes; };
  int64_t good = 0, bad = 1;
  while (bad < kMost && fits(bad)) good = bad, bad *= 2;
  if (bad >= kMost) return kMost;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

Findings measure_capacity(const TrialSpec& spec) {
  const Policy &policy = *spec.policy, &fp32 = policy_named("fp32");
  const double bytes = std::stod(axis_value(capacity_self(), spec, "memory")) * 0x1p30;
  FindingsWriter out(capacity_table());
  const auto batch = static_cast<double>(largest_batch(*spec.subject, policy, bytes)),
             of_fp32 = static_cast<double>(largest_batch(*spec.subject, fp32, bytes));
  out.number("capacity.batch", "", batch);
  if (of_fp32 > 0) out.number("capacity.ratio", "", batch / of_fp32);
  std::vector<double> batches, needed, ratios, masters, indices;
  for (int64_t one = 1; one <= 256; one *= 2) {
    const Subject& subject = at_batch(*spec.subject, one);
    const Predicted own = predicted(subject, policy), wide = predicted(subject, fp32);
    batches.push_back(static_cast<double>(one));
    needed.push_back(own.bytes), ratios.push_back(own.bytes / wide.bytes);
    masters.push_back(wide.parameters / own.bytes);
    indices.push_back((predicted(subject, policy, models::IndexType::i64).bytes - own.bytes) / own.bytes);
  }
  out.number("capacity.bytes_ratio", "least", ratios.front());
  out.number("capacity.bytes_ratio", "largest", ratios.back());
  out.curve("capacity.bytes", "", batches, needed);
  out.curve("capacity.bytes_ratio", "", batches, ratios);
  out.curve("capacity.master_share", "", batches, masters);
  out.curve("capacity.index_share", "", batches, indices);
  return out.take();
}

std::optional<std::string> refuses_capacity(const TrialSpec& spec) {
  if (!spec.subject->network) return spec.subject->id() + " is a function of a program; its memory is not predicted";
  if (!spec.subject->sizes.starts_with('b') || spec.subject->sizes.find('_') == std::string::npos)
    return spec.subject->id() + " has no batch among its sizes";
  if (!spec.policy->layers.empty()) return std::string("memory is not predicted for layers with policies of their own");
  return {};
}

}  // namespace

Harness capacity_harness() {
  return {.name = "capacity",
          .about = "the largest batch in a given memory, and how memory divides as the batch grows; predicted",
          .axes = {{"memory", {"8", "1", "24", "80"}, AxisNumbers{1e-6, 1e6, false}, "memory in GiB"}},
          .metrics = capacity_table(),
          .refuses = refuses_capacity,
          .measure = measure_capacity};
}

}  // namespace halfmark::accuracy
