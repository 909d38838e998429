// The all_reduce harness: real gradients of 2 to 1024 batches, one of each rank, averaged as an all-reduce does it: hop by hop,
// each rounded to the dtype of the wire, with the division before, after or on both sides.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr std::array kRanks = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
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
       "at DIVISION"},
      {"all_reduce.gradients", "1", Better::neither, Kind::information, "gradients of a rank"},
      {"all_reduce.batches", "1", Better::neither, Kind::information,
       "different batches whose gradients were computed"},
      {"all_reduce.largest", "1", Better::neither, Kind::information,
       "largest |gradient| of a rank, times the loss scale"},
  };
  return rows;
}

struct Division {
  std::string_view name;
  bool in_fp32 = false, as_policy = false;
  double power_before = 0;  // each gradient is divided by ranks^this, and the sum by the rest
};
constexpr std::array<Division, 5> kDivisions = {{{"post_divide"},
                                                 {"pre_divide", false, false, 1},
                                                 {"root_split", false, false, 0.5},
                                                 {"fp32", true},
                                                 {"policy", false, true}}};

DType wire_of(const TrialSpec& spec, const Division& division) {
  if (division.in_fp32) return DType::f32;
  return division.as_policy ? spec.policy->grad : spec.policy->low;
}

using Gradients = std::vector<std::vector<double>>;  // of each rank

// The gradients of batch 0, 1, ... of the untrained model, times the loss scale.
Gradients gradients_of(const TrialSpec& spec, double scale) {
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

// What each rank contributes, divided, as stored on the wire: [ranks][gradients].
Gradients sent(const TrialSpec& spec, const Gradients& gradients, int ranks, const Division& division) {
  const double divisor = std::pow(ranks, division.power_before);
  Gradients all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> own = gradients[static_cast<size_t>(rank)];
    for (double& value : own) value /= divisor;
    all.push_back(stored_as(*spec.device, wire_of(spec, division), own));
  }
  return all;
}

// In a ring of n ranks the gradients are n pieces; piece p starts at rank p and is added rank by rank.
std::vector<double> ring_sum(Device& device, DType wire, const Gradients& all) {
  const size_t ranks = all.size(), count = all[0].size();
  const Shape shape{static_cast<int64_t>(count)};
  const auto hop = [&](size_t step) {
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = all[(i * ranks / count + step) % ranks][i];
    return Tensor::from(device, shape, wire, values);
  };
  Tensor sum = hop(0);
  for (size_t step = 1; step < ranks; ++step) {
    Tensor next(device, shape, wire);
    run(Add{.a = sum, .b = hop(step), .out = next});
    sum = next;
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

Reduced compare(const std::vector<double>& found, const std::vector<double>& exact) {
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
  for (const Division& division : kDivisions) {
    const DType wire = wire_of(spec, division);
    const std::string name(division.name);
    std::vector<double> ranks, bytes;
    for (const int n : kRanks)
      ranks.push_back(n), bytes.push_back(2.0 * (n - 1) / n * count * static_cast<double>(size_of(wire)));
    out.curve("all_reduce.bytes", name, ranks, bytes);
    out.number("all_reduce.bytes", name, bytes.back());
    for (const bool is_ring : {true, false}) {
      const std::string at = name + (is_ring ? "/ring" : "/tree");
      std::vector<double> errors, nonfinite, zero;
      for (const int n : kRanks) {
        const Gradients all = sent(spec, gradients, n, division);
        std::vector<double> mean = is_ring ? ring_sum(device, wire, all) : tree_sum(device, wire, all);
        for (double& value : mean) value /= std::pow(n, 1 - division.power_before);
        const Reduced found = compare(stored_as(device, wire, mean), exact_mean(gradients, n));
        errors.push_back(found.error), nonfinite.push_back(found.nonfinite), zero.push_back(found.zero);
      }
      for (const auto& [metric, y] :
           {std::pair{"all_reduce.error", &errors}, std::pair{"all_reduce.nonfinite", &nonfinite},
            std::pair{"all_reduce.zero", &zero}})
        out.curve(metric, at, ranks, *y), out.number(metric, at, y->back());
    }
  }
  return out.take();
}

std::optional<std::string> refuses_all_reduce(const TrialSpec& spec) {
  if (!spec.subject->has_labels() || !spec.subject->network)
    return "averages the gradients of a model with labels, which " + spec.subject->id() + " is not";
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
          .axes = {{"scale", {"65536", "1", "0.0001"}, AxisNumbers{1e-9, 1e9, false}}},
          .metrics = all_reduce_table(),
          .refuses = refuses_all_reduce,
          .measure = measure_all_reduce,
          .expects = expected_all_reduce};
}

}  // namespace halfmark::accuracy
