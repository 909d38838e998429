// Tests of the sampler: its answers, and the reports of how a sampler process ended.
#include "bench/ab/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <fstream>
#include <sstream>

#include "bench/ab/noise_profile.h"
#include "bench/ab/sampler_process.h"
#include "kernels/number/error.h"
#include "reports/record/report.h"

#include "bench/ab/fake_build_testing.h"

namespace halfmark::bench {
namespace {

constexpr const char* kCase = "mlp/b32_i64_h128_o10/cpu/fp32/throughput";

TEST(Sampler, TimesACaseAndEveryCanary) {
  Sampler sampler({.seconds = 0.002});
  std::vector<std::string> ids{kCase};
  for (const Canary& canary : canaries()) ids.emplace_back(canary.id);
  for (const std::string& id : ids) {
    const ProcessSample sample = sampler.sample(id);
    EXPECT_EQ(sample.id, id);
    EXPECT_EQ(sample.reason, "");
    EXPECT_GT(sample.seconds, 0);
    EXPECT_GE(sample.samples, 6);
    EXPECT_GE(sample.wall, sample.seconds);
  }
}

TEST(Sampler, HasCanariesOfEachGpuThatACaseUses) {
  const std::vector<std::string> of_cpu = canary_ids({kCase});
  EXPECT_EQ(of_cpu, (std::vector<std::string>{"canary/clock", "canary/cache", "canary/memory"}));
  const std::string mlp = "mlp/b32_i64_h128_o10/", harness = "/fp32/throughput";
  std::vector<std::string> wanted = of_cpu;
  for (const char* gpu : {"cuda:0", "cuda:11"})
    for (const char* name : {"/cache", "/memory"}) wanted.push_back("canary/" + std::string(gpu) + name);
  EXPECT_EQ(canary_ids({mlp + "cuda:11" + harness, kCase, mlp + "cuda:0" + harness + "/launch=graph",
                        mlp + "cuda:0" + harness}),
            wanted);
  Sampler sampler({.seconds = 0.002});
  for (const char* unknown : {"canary/cuda:0/clock", "canary/cuda:77/memory", "canary/cpu/memory"}) {
    const ProcessSample sample = sampler.sample(unknown);
    EXPECT_NE(sample.reason, "") << unknown;
    EXPECT_FALSE(sample.refused) << unknown << ": that is a mistake and not a refusal";
  }
}

TEST(Sampler, GivesAReasonIfThereIsNoTime) {
  Sampler sampler({.seconds = 0.002});
  EXPECT_NE(sampler.sample("mlp/b32_i64_h128_o10/cpu/fp32/error").reason.find("harness throughput"), std::string::npos);
  EXPECT_NE(sampler.sample("nonsense").reason, "");
  const ProcessSample simulated = sampler.sample("mlp/b32_i64_h128_o10/sim:hopper/fp32/throughput");
  EXPECT_TRUE(simulated.refused);
  EXPECT_NE(simulated.reason.find("not valid"), std::string::npos);
}

TEST(Sampler, AnswersLineByLineAndItsLinesCanBeParsed) {
  Sampler sampler({.seconds = 0.001});
  std::istringstream in("canary/clock\n\nnonsense\n");
  std::ostringstream out;
  answer_samples(in, out, sampler);
  std::istringstream lines(out.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(sample_of(line).id, "canary/clock");
  ASSERT_TRUE(std::getline(lines, line));
  const ProcessSample nonsense = sample_of(line);
  EXPECT_EQ(nonsense.id, "nonsense");
  EXPECT_NE(nonsense.reason, "");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Sampler, RefusesALineThatIsNotASample) {
  for (const char* line : {"", "{}", "no json", "{\"case\": 7}", "[1,2]"}) EXPECT_THROW(sample_of(line), Error) << line;
}

TEST(SamplerProcess, ReportsHowAProcessEnded) {
  const TemporaryFolder folder("test");
  const FakeBuild fake{.instead = {{"dies", "kill -KILL $$"}, {"lies", "id=other"}, {"talks", "echo nonsense"}}};
  const std::vector<std::string> command{fake.write(folder / "fake"), "sample"};
  const auto loss = [&](const std::string& id) -> std::string {
    SamplerProcess process(command, 20);
    try {
      process.ask(id);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(loss("one"), "");
  EXPECT_NE(loss("dies").find("died with signal 9"), std::string::npos) << loss("dies");
  EXPECT_NE(loss("lies").find("answered for other when asked for lies"), std::string::npos) << loss("lies");
  EXPECT_NE(loss("talks").find("which is not a sample"), std::string::npos) << loss("talks");
  EXPECT_THROW(SamplerProcess({(folder / "absent").string()}, 1), Error);
}

TEST(NoiseProfile, GivesThreeStandardErrorsOrThreeTimesTheSpreadBetweenRuns) {
  NoiseProfile noise;
  EXPECT_EQ(noise.minimum_effect_of("unknown", 24), 0);
  noise.cases["steady"] = {{0.02}, {0.001}};
  EXPECT_NEAR(noise.minimum_effect_of("steady", 24), std::expm1(3 * 0.02 / std::sqrt(0.955 * 24)), 1e-12);
  noise.cases["wandering"] = {{0.001, 0.001, 0.001}, {-0.02, 0.0, 0.02}};
  EXPECT_NEAR(noise.minimum_effect_of("wandering", 24), std::expm1(3 * 1.4826 * 0.02), 1e-12);
}

TEST(NoiseProfile, IsLearnedFromPairsAndReadBackFromItsFile) {
  const TemporaryFolder folder("test");
  NoiseProfile noise;
  noise.machine = "here";
  noise.add("a case", {{1.0, 1.0}, {1.0, std::exp(0.01)}, {1.0, std::exp(-0.01)}, {1.0, std::exp(0.02)}});
  noise.save(folder / "noise.json");
  const NoiseProfile again = NoiseProfile::load(folder / "noise.json");
  EXPECT_EQ(again.machine, "here");
  EXPECT_EQ(again.cases.at("a case").spreads, noise.cases.at("a case").spreads);
  EXPECT_EQ(again.cases.at("a case").shifts, noise.cases.at("a case").shifts);
  EXPECT_NEAR(noise.cases.at("a case").spreads[0], 1.4826 * 0.01, 1e-9);
}

TEST(NoiseProfile, RefusesAFileThatIsNotANoiseProfile) {
  const TemporaryFolder folder("test");
  for (const char* text : {"", "[]", "{}", R"({"noise":2,"machine":"","cases":{}})",
                           R"({"noise":1,"machine":"","cases":{"x":{"spreads":["NaN"],"shifts":[]}}})"}) {
    std::ofstream(folder / "noise.json") << text;
    EXPECT_THROW(NoiseProfile::load(folder / "noise.json"), ReportError) << text;
  }
}

}  // namespace
}  // namespace halfmark::bench
