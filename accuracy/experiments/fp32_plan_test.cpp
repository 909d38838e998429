// The planner against networks with planted faults.
#include "accuracy/experiments/fp32_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "accuracy/experiments/plan_verification_testing.h"
#include "accuracy/experiments/planted_networks_testing.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

constexpr int kMostPasses = 40;

TrialSpec trial_of(const PlantedNetwork& network, const char* device) {
  TrialSpec spec;
  spec.subject = &network.subject;
  spec.device = open_device(device);
  spec.policy = &policy_named(network.policy);
  spec.seed = 1;
  spec.settings = network.subject.settings;
  return spec;
}

Fp32Plan plan_on(const PlantedNetwork& network, const char* device) {
  return fp32_plan(trial_of(network, device), {.tolerance = 0, .most_passes = kMostPasses});
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

TEST(SlowFp32Plan, FindsExactlyThePlantedLayersOnTheCpu) {
  for (const PlantedRequest& request : requests(16384)) expect_planted(request, "cpu");
}

// Volta's tensor cores add four products at once before they round: four times as many terms. HALFMARK_LONG=1: all networks
// that the CPU is tried on; else six with every fault, one to four of them, also at the first and at the last layer.
TEST(SlowFp32Plan, FindsExactlyThePlantedLayersOnASimulatedTensorCore) {
  const std::vector<PlantedRequest> all = requests(65536);
  std::vector<size_t> chosen = {0, 5, 7, 10, 14, 15};
  if (std::getenv("HALFMARK_LONG")) chosen.resize(all.size()), std::iota(chosen.begin(), chosen.end(), size_t{0});
  std::set<Fault> faults;
  std::set<size_t> counts;
  bool any_first = false, any_last = false;
  for (const size_t i : chosen) {
    expect_planted(all[i], "sim:volta");
    faults.insert(all[i].faults.begin(), all[i].faults.end()), counts.insert(all[i].faults.size());
    any_first |= all[i].at_first, any_last |= all[i].at_last;
  }
  EXPECT_EQ(faults.size(), 6u);
  EXPECT_EQ(counts, (std::set<size_t>{1, 2, 3, 4}));
  EXPECT_TRUE(any_first && any_last);
}

// Small differences of numbers around 1000: alone, at the first layer, at the last one, and beside an overflow.
TEST(Fp32Plan, FindsCancellation) {
  using enum Fault;
  for (uint64_t seed = 200; seed < 206; ++seed) {
    PlantedRequest request{.seed = seed, .layers = 8 + 4 * (seed - 200), .faults = {cancellation}};
    if (seed % 3 == 1) request.at_first = true;
    if (seed % 3 == 2) request.faults.insert(request.faults.begin(), exp_overflow), request.at_last = true;
    expect_planted(request, "cpu");
  }
}

// Planners with a planted mistake. A second computation of the errors finds each, and nothing in the plans of the real one.
TEST(SlowFp32Plan, IsVerifiedByASecondComputationThatFindsWrongPlanners) {
  using enum Fault;
  for (const Fault fault : {exp_overflow, square_overflow, variance, cancellation}) {
    const PlantedNetwork network = PlantedNetworkMaker({.seed = 300, .layers = 12, .faults = {fault}}).make();
    const TrialSpec spec = trial_of(network, "cpu");
    const Fp32Plan plan = plan_on(network, "cpu");
    ASSERT_FALSE(plan.layers.empty());
    EXPECT_TRUE(plan_verification::faults_of(spec, plan).empty()) << text_of(plan);
    for (size_t i = 0; i < plan.layers.size(); ++i) {
      Fp32Plan drops = plan;
      drops.layers.erase(drops.layers.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_EQ(plan_verification::faults_of(spec, drops).at(0), "a needed layer is missing") << plan.layers[i].name;
    }
    for (const std::string& other : layers_with_policy(*network.subject.network)) {
      if (other == "loss" || std::ranges::count(network.planted, other) > 0) continue;
      Fp32Plan keeps = plan, mistakes_one_for_another = plan;
      keeps.layers.push_back({.name = other});
      EXPECT_EQ(plan_verification::faults_of(spec, keeps), std::vector<std::string>{other + " is not needed"});
      mistakes_one_for_another.layers.front().name = other;
      EXPECT_FALSE(plan_verification::faults_of(spec, mistakes_one_for_another).empty()) << other;
    }
  }
}

// 8 u sqrt(n), as fp32_plan.md has it: u is 2^-11 for fp16 and for tf32, which multiplies with 10 fraction bits, 2^-8 for bf16.
TEST(Fp32Plan, HasAToleranceOfEightUnitRoundoffsTimesTheRootOfTheLayers) {
  EXPECT_EQ(derived_tolerance(policy_named("fp16"), 16), 8 * 0x1p-11 * 4);
  EXPECT_EQ(derived_tolerance(policy_named("amp-fp16"), 1), 8 * 0x1p-11);
  EXPECT_EQ(derived_tolerance(policy_named("tf32"), 4), 8 * 0x1p-11 * 2);
  EXPECT_EQ(derived_tolerance(policy_named("bf16"), 9), 8 * 0x1p-8 * 3);
  EXPECT_EQ(derived_tolerance(policy_named("mxfp8"), 1), 8 * 0x1p-4);      // codes of e4m3
  EXPECT_EQ(derived_tolerance(policy_named("nvfp4"), 4), 8 * 0x1p-2 * 2);  // of e2m1
  const PlantedNetwork network = PlantedNetworkMaker({.seed = 100, .layers = 8, .faults = {}}).make();
  std::vector<std::string> layers = layers_with_policy(*network.subject.network);
  std::erase(layers, "loss");
  const double unit = network.policy == "bf16" ? 0x1p-8 : 0x1p-11;
  EXPECT_NEAR(plan_on(network, "cpu").tolerance, 8 * unit * std::sqrt(static_cast<double>(layers.size())), 1e-15);
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
