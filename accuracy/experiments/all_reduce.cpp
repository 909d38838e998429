// The all_reduce harness: real gradients of 2 to 1024 batches, one of each rank, averaged as an all-reduce does it: hop by hop,
// each rounded to the dtype of the wire, with the division before, after or on both sides.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr std::array kRanks = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
// Where the policy scales the loss: small enough that no gradient of an untrained model overflows before it is sent.
constexpr double kScaleOfBackward = 1024;
constexpr int64_t kMostGradients = 20000;  // of a rank: 1024 ranks of them are 164 MB here

const std::vector<MetricRow>& all_reduce_table() {
  static const std::vector<MetricRow> rows = {
      {"all_reduce.error", "1", Better::lower, Kind::bounded,
       "over the ranks, and at 1024: root of the nmse of the mean gradient against fp64 of the same gradients; "
       "infinite if one is "
       "not finite. At DIVISION/ORDER. DIVISION: post_divide, the sum in the low dtype is divided; pre_divide, each "
       "gradient is; "
       "root_split, each gradient and the sum are divided by the root of the ranks; fp32, everything in fp32; policy: "
       "post_divide "
       "in the dtype in which the policy delivers gradients. ORDER: ring, each piece of the gradients is added rank by "
       "rank, "
       "beginning at its own; tree, by pairs"},
      {"all_reduce.nonfinite", "1", Better::lower, Kind::bounded, "likewise: share that is infinite or NaN"},
      {"all_reduce.zero", "1", Better::lower, Kind::bounded, "likewise: share that is 0 and is not in fp64"},
      {"all_reduce.bytes", "B", Better::lower, Kind::exact,
       "over the ranks, and at 1024: sent by each rank of a ring, 2 (ranks - 1) / ranks times gradients times bytes of "
       "the dtype; "
       "at low, fp32 and policy"},
      {"all_reduce.gradients", "1", Better::neither, Kind::information, "gradients of a rank"},
      {"all_reduce.batches", "1", Better::neither, Kind::information,
       "different batches whose gradients were computed, one of each rank"},
      {"all_reduce.largest", "1", Better::neither, Kind::information,
       "largest |gradient| of a rank, times the loss scale"},
  };
  return rows;
}

// Each gradient is divided by ranks^power, and the sum by the rest.
struct Division {
  std::string_view name;
  double power;
};
constexpr std::array<Division, 3> kDivisions = {{{"post_divide", 0}, {"pre_divide", 1}, {"root_split", 0.5}}};

using Gradients = std::vector<std::vector<double>>;  // of each rank

// The gradients of batch 0, 1, ... of the untrained model, times the loss scale.
Gradients gradients_of(const TrialSpec& given, double scale) {
  TrialSpec spec = given;
  if (spec.policy->scaler.kind != ScalerSpec::Kind::none)
    spec.settings.scaler = ScalerSpec{.kind = ScalerSpec::Kind::fixed, .initial = kScaleOfBackward};
  Trial trial(spec);
  Gradients all;
  for (int rank = 0; rank < kRanks.back(); ++rank) {
    trial.load_batch(rank);
    trial.forward(), trial.backward();
    std::vector<double> own;
    for (const Param* param : trial.params())
      for (const double value : trial.gradient(*param)) own.push_back(value * scale);
    all.push_back(std::move(own));
  }
  return all;
}

// What each rank contributes: its gradients divided in each of the three ways, one after another, as stored on the wire.
Gradients sent(Device& device, DType wire, const Gradients& gradients, int ranks) {
  Gradients all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> own;
    for (const Division& division : kDivisions)
      for (const double value : gradients[static_cast<size_t>(rank)])
        own.push_back(value / std::pow(ranks, division.power));
    all.push_back(stored_as(device, wire, own));
  }
  return all;
}

// In a ring of n ranks the gradients are n pieces; piece p starts at rank p and is added rank by rank.
std::vector<double> ring_sum(Device& device, DType wire, const Gradients& all) {
  const size_t ranks = all.size(), values = all[0].size(), count = values / kDivisions.size();
  const Shape shape{static_cast<int64_t>(values)};
  const auto hop = [&](size_t step) {
    std::vector<double> taken(values);
    for (size_t i = 0; i < values; ++i) taken[i] = all[(i % count * ranks / count + step) % ranks][i];
    return Tensor::from(device, shape, wire, taken);
  };
  Tensor sum = hop(0);
  for (size_t step = 1; step < ranks; ++step) {
    const Tensor next = hop(step);
    Tensor added(device, shape, wire);
    run(Add{.a = sum, .b = next, .out = added});
    sum = added;
  }
  return sum.values();
}

// Rank r takes the sum of rank r + n/2, then n halves. The numbers of ranks are powers of two.
std::vector<double> tree_sum(Device& device, DType wire, const Gradients& all) {
  const auto ranks = static_cast<int64_t>(all.size()), count = static_cast<int64_t>(all[0].size());
  std::vector<double> values;
  for (const std::vector<double>& own : all) values.insert(values.end(), own.begin(), own.end());
  Tensor left = Tensor::from(device, {ranks, count}, wire, values);
  for (int64_t half = ranks / 2; half > 0; half /= 2) {
    const Tensor a = left.slice(0, half), b = left.slice(half, half);
    Tensor sum(device, {half, count}, wire);
    run(Add{.a = a, .b = b, .out = sum});
    left = sum;
  }
  return left.values();
}

std::vector<double> exact_mean(const Gradients& gradients, int ranks) {
  std::vector<double> mean(gradients[0].size());
  for (int rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += gradients[static_cast<size_t>(rank)][i] / ranks;
  return mean;
}

struct Reduced {
  double error = 0, nonfinite = 0, zero = 0;
};

Reduced compare(std::span<const double> found, const std::vector<double>& exact) {
  Reduced result;
  const double one = 1 / static_cast<double>(found.size());
  double off = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    off += (found[i] - exact[i]) * (found[i] - exact[i]), size += exact[i] * exact[i];
    result.nonfinite += std::isfinite(found[i]) ? 0 : one;
    result.zero += found[i] == 0 && exact[i] != 0 ? one : 0;
  }
  result.error = result.nonfinite > 0 ? HUGE_VAL : std::sqrt(off / size);
  return result;
}

// Of one division, order and wire, over the ranks.
struct ReducedCurves {
  std::vector<double> error, nonfinite, zero;
  void add(const Reduced& one) {
    error.push_back(one.error), nonfinite.push_back(one.nonfinite), zero.push_back(one.zero);
  }
  void write(FindingsWriter& out, const std::string& at, const std::vector<double>& ranks) const {
    for (const auto& [metric, y] : {std::pair{"all_reduce.error", &error},
                                    std::pair{"all_reduce.nonfinite", &nonfinite}, std::pair{"all_reduce.zero", &zero}})
      out.curve(metric, at, ranks, *y), out.number(metric, at, y->back());
  }
};

// By division.
std::array<ReducedCurves, kDivisions.size()> reduce(Device& device, DType wire, const Gradients& gradients,
                                                    bool is_ring) {
  std::array<ReducedCurves, kDivisions.size()> curves;
  const size_t count = gradients[0].size();
  for (const int ranks : kRanks) {
    const Gradients all = sent(device, wire, gradients, ranks);
    std::vector<double> means = is_ring ? ring_sum(device, wire, all) : tree_sum(device, wire, all);
    for (size_t i = 0; i < means.size(); ++i) means[i] /= std::pow(ranks, 1 - kDivisions[i / count].power);
    means = stored_as(device, wire, means);
    const std::vector<double> exact = exact_mean(gradients, ranks);
    for (size_t d = 0; d < kDivisions.size(); ++d)
      curves[d].add(compare(std::span(means).subspan(d * count, count), exact));
  }
  return curves;
}

Findings measure_all_reduce(const TrialSpec& spec) {
  Device& device = *spec.device;
  const double scale = std::stod(axis_value(all_reduce_harness(), spec, "scale"));
  const Gradients gradients = gradients_of(spec, scale);
  const auto count = static_cast<double>(gradients[0].size());
  double largest = 0;
  for (const std::vector<double>& own : gradients)
    for (const double value : own) largest = std::max(largest, std::fabs(value));
  FindingsWriter out(all_reduce_table());
  out.number("all_reduce.gradients", "", count);
  out.number("all_reduce.batches", "", static_cast<double>(gradients.size()));
  out.number("all_reduce.largest", "", largest);
  const DType low = spec.policy->low;
  const std::vector<double> ranks(kRanks.begin(), kRanks.end());
  for (const bool is_ring : {true, false}) {
    const std::string order = is_ring ? "/ring" : "/tree";
    const auto in_low = reduce(device, low, gradients, is_ring);
    const auto in_fp32 = low == DType::f32 ? in_low : reduce(device, DType::f32, gradients, is_ring);
    for (size_t d = 0; d < kDivisions.size(); ++d) in_low[d].write(out, std::string(kDivisions[d].name) + order, ranks);
    in_fp32[0].write(out, "fp32" + order, ranks);
    (spec.policy->grad == DType::f32 ? in_fp32 : in_low)[0].write(out, "policy" + order, ranks);
  }
  for (const auto& [name, wire] :
       {std::pair{"low", low}, std::pair{"fp32", DType::f32}, std::pair{"policy", spec.policy->grad}}) {
    std::vector<double> bytes;
    for (const double n : ranks) bytes.push_back(2 * (n - 1) / n * count * static_cast<double>(size_of(wire)));
    out.curve("all_reduce.bytes", name, ranks, bytes);
    out.number("all_reduce.bytes", name, bytes.back());
  }
  return out.take();
}

std::optional<std::string> refuses_all_reduce(const TrialSpec& spec) {
  if (!spec.subject->has_labels() || !spec.subject->network)
    return "averages the gradients of a model with labels, which " + spec.subject->id() + " is not";
  if (auto refusal = refusal_of_fp64(spec)) return refusal;
  const LogPause pause;
  Trial trial(spec);
  int64_t count = 0;
  for (const Param* param : trial.params()) count += param->value.elements();
  if (count == 0) return spec.subject->id() + " has no parameters";
  if (count > kMostGradients)
    return spec.subject->id() + " has " + std::to_string(count) + " parameters; this takes at most " +
           std::to_string(kMostGradients) + ", for 1024 ranks";
  return {};
}

// Gradients of about 0.1 times the loss scale 2^16, summed over 1024 ranks, are above 65504.
std::optional<Expect> expected_all_reduce(const TrialSpec& spec) {
  if (axis_value(all_reduce_harness(), spec, "scale") != "65536") return {};
  return Expect{"all_reduce.nonfinite", "policy/ring", spec.policy->grad == DType::f16 ? ">" : "==", 0};
}

}  // namespace

Harness all_reduce_harness() {
  return {.name = "all_reduce",
          .about =
              "mean of the gradients of 2 to 1024 ranks: overflow, lost gradients and error by division, order and "
              "dtype of "
              "the wire",
          .axes = {{"scale", {"65536", "1", "0.0001"}, AxisNumbers{1e-9, 1e9, false}, "loss scale of the gradients"}},
          .metrics = all_reduce_table(),
          .refuses = refuses_all_reduce,
          .measure = measure_all_reduce,
          .expects = expected_all_reduce};
}

}  // namespace halfmark::accuracy
