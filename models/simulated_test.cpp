// Models on simulated GPUs: tensor cores of different generations give different training results.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "models/trial.h"

namespace halfmark::models {
namespace {

std::vector<double> losses(const std::string& device, int steps) {
  TrialSpec spec;
  for (const Subject& subject : subjects())
    if (subject.name == "convnet" && !spec.subject) spec.subject = &subject;
  spec.device = open_device(device);
  spec.policy = &policy_named("amp-fp16");
  spec.settings.scaler = ScalerSpec{.kind = ScalerSpec::Kind::dynamic, .initial = 1024};
  Trial trial(spec);
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) all.push_back(trial.train_step(step).loss);
  return all;
}

TEST(SimulatedTraining, RepeatsForOneSeedAndDiffersBetweenArchitectures) {
  const int steps = 24;
  const std::vector<double> hopper = losses("sim:hopper", steps), again = losses("sim:hopper", steps),
                            volta = losses("sim:volta", steps);
  EXPECT_EQ(hopper, again);
  EXPECT_NE(hopper, volta);
  for (const double loss : volta) EXPECT_TRUE(std::isfinite(loss)) << "a difference of numbers, not of NaNs";
}

TEST(SimulatedTraining, TuringAmpereAndAdaAgreeInFp16) {
  const std::vector<double> ampere = losses("sim:ampere", 3);
  EXPECT_EQ(losses("sim:turing", 3), ampere);
  EXPECT_EQ(losses("sim:ada", 3), ampere);
}

}  // namespace
}  // namespace halfmark::models
