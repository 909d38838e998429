// Training steps under a policy whose arithmetic is emulated, in turn with the same steps in fp32: the cost of the
// emulation, not the speed of the format. The counters of "steps/SUBJECT/POLICY" are the ratio of the two times with its
// 95 % interval, and that of two fp32 trials as the control.
#include <benchmark/benchmark.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/micro.h"
#include "bench/run/time_in_turn.h"
#include "bench/run/timed_step.h"
#include "kernels/devices.h"
#include "models/trial.h"
#include "models/zoo.h"

namespace halfmark::bench::micro {
namespace {

constexpr std::string_view kSubjects[] = {"mlp/b256_i256_h512_o10",
                                          "resnet/b64_s32",
                                          "erfnet/b1_s128x256",
                                          "xception/b4_s64_n2",
                                          "gpt/b32_t64_n2_h4_d64_v64",
                                          "gpt/b8_t128_n4_h6_d384_v256",
                                          "lstm_classifier/b64_t32_n1_e32_h64_v64_o4"};

void steps(benchmark::State& state, std::string_view subject, std::string_view policy) {
  TrialSpec spec;
  spec.subject = &subject_named(std::string(subject)), spec.device = open_device("cpu"),
  spec.policy = &policy_named(policy);
  spec.settings.rate = 1e-12;  // no step changes what the next one computes
  const TrialSpec base = spec.under(policy_named("fp32"));
  Trial emulated(spec), fp32(base), again(base);
  std::vector<Timed> kinds;
  for (Trial* trial : {&emulated, &fp32, &again}) {
    trial->load_batch(0);
    kinds.push_back({[trial] { return trial->device().time([trial] { launch_step(*trial); }); }});
  }
  const TurnRule rule{.budget = 4, .patience = 8};
  std::optional<InTurn> found;
  for (auto _ : state) found = time_in_turn(rule, kinds, 1);
  const SpeedRatio cost = speed_ratio(found->log_ratios(0, 1)).with_offset(kOffsetOfTrials),
                   control = speed_ratio(found->log_ratios(2, 1)).with_offset(kOffsetOfTrials);
  state.counters["of fp32"] = cost.value, state.counters["lower"] = cost.lower, state.counters["upper"] = cost.upper;
  state.counters["control"] = control.value;
}

}  // namespace

void register_steps() {
  for (const std::string_view subject : kSubjects)
    benchmark::RegisterBenchmark(("steps/" + std::string(subject) + "/amp-fp16").c_str(),
                                 [subject](benchmark::State& state) { steps(state, subject, "amp-fp16"); })
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
}

}  // namespace halfmark::bench::micro
