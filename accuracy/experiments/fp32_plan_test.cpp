// The planner against networks with planted faults.
#include "accuracy/experiments/fp32_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "accuracy/experiments/planted_networks_testing.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

constexpr int kMostPasses = 40;

Fp32Plan plan_on(const PlantedNetwork& network, const char* device) {
  TrialSpec spec;
  spec.subject = &network.subject;
  spec.device = open_device(device);
  spec.policy = &policy_named(network.policy);
  spec.seed = 1;
  spec.settings = network.subject.settings;
  return fp32_plan(spec, {.tolerance = 0, .most_passes = kMostPasses});
}

std::vector<std::string> names_in(const Fp32Plan& plan) {
  std::vector<std::string> names;
  for (const PlannedLayer& layer : plan.layers) names.push_back(layer.name);
  return names;
}

std::string text_of(const Fp32Plan& plan) {
  std::string text = "none " + std::to_string(plan.none.largest()) + ", set " +
                     std::to_string(plan.with_set.largest()) + ", all " + std::to_string(plan.all.largest()) +
                     ", tolerance " + std::to_string(plan.tolerance) + ", passes " + std::to_string(plan.passes) + "\n";
  for (const PlannedLayer& layer : plan.layers)
    text += layer.name + ": " + std::string(name_of(layer.cause)) + ": " + layer.evidence + "\n";
  return text;
}

void expect_planted(const PlantedRequest& request, const char* device) {
  const PlantedNetwork network = PlantedNetworkMaker(request).make();
  const Fp32Plan plan = plan_on(network, device);
  const std::string where = "seed " + std::to_string(request.seed) + " on " + device + "\n" + text_of(plan);
  EXPECT_EQ(names_in(plan), network.planted) << where;
  EXPECT_TRUE(plan.meets && plan.is_minimal && plan.all_is_fp32) << where;
  EXPECT_LE(plan.passes, kMostPasses) << where;
  EXPECT_LE(plan.layers_in_all, 50u) << where;
  if (names_in(plan) != network.planted) return;
  for (size_t i = 0; i < plan.layers.size(); ++i)
    EXPECT_EQ(name_of(plan.layers[i].cause), network.causes[i]) << plan.layers[i].name << " " << where;
}

// Twenty networks: each fault alone or with others; two with a fault at the first layer and at the last one.
std::vector<PlantedRequest> requests(int64_t sum_terms) {
  using enum Fault;
  constexpr Fault kAll[] = {exp_overflow, square_overflow, sum_overflow, mask, variance, long_sum};
  std::vector<PlantedRequest> all;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PlantedRequest request{.seed = seed, .layers = 8 + (seed * 7) % 29, .faults = {}, .sum_terms = sum_terms};
    for (uint64_t i = 0; i < 1 + seed % 4; ++i) request.faults.push_back(kAll[(seed + i * (1 + seed % 5)) % 6]);
    request.at_first = seed % 3 == 1, request.at_last = request.faults.size() > 1 && seed % 3 != 0;
    all.push_back(request);
  }
  return all;
}

TEST(Fp32Plan, FindsExactlyThePlantedLayersOnTheCpu) {
  for (const PlantedRequest& request : requests(16384)) expect_planted(request, "cpu");
}

// Volta's tensor cores add four products at once before they round: four times as many terms.
TEST(SlowFp32Plan, FindsExactlyThePlantedLayersOnASimulatedTensorCore) {
  for (const PlantedRequest& request : requests(65536)) expect_planted(request, "sim:volta");
}

TEST(Fp32Plan, IsEmptyForNetworksWithoutAFault) {
  for (uint64_t seed = 100; seed < 106; ++seed) {
    const PlantedNetwork network = PlantedNetworkMaker({.seed = seed, .layers = 8 * (seed - 99), .faults = {}}).make();
    const Fp32Plan plan = plan_on(network, "cpu");
    EXPECT_TRUE(plan.layers.empty() && plan.precision.empty()) << text_of(plan);
    EXPECT_TRUE(plan.meets && plan.is_minimal) << text_of(plan);
    EXPECT_EQ(plan.passes, 4) << "fp64, fp32, all, none";
  }
}

}  // namespace
}  // namespace halfmark::accuracy
