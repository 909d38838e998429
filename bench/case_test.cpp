// Selection of cases, their ids, the stopping rule.
#include "bench/case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/fingerprint.h"
#include "bench/timing.h"
#include "kernels/number/error.h"

namespace halfmark {
namespace {

Selection selection_of(const std::string& suite, std::vector<std::string> words = {}) {
  Selection selection;
  selection.suite = suite;
  selection.devices = {"cpu"};
  selection.words = std::move(words);
  return selection;
}

std::string message_of(const Selection& selection) {
  try {
    plan(selection);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, HasUniqueIdsThatComeBackAsTheSameCase) {
  for (const Suite& suite : suites()) {
    std::set<std::string> ids;
    for (const Case& one : plan(selection_of(std::string(suite.name)))) {
      EXPECT_TRUE(ids.insert(one.id()).second) << one.id();
      const Case again = case_of(one.id());
      EXPECT_EQ(again.id(), one.id());
      EXPECT_EQ(again.subject, one.subject);
      EXPECT_EQ(again.policy, one.policy);
      EXPECT_EQ(again.harness, one.harness);
    }
    EXPECT_FALSE(ids.empty());
  }
}

TEST(Plan, NamesNoHiddenPolicy) {
  for (const Case& one : plan(selection_of("full"))) EXPECT_FALSE(one.policy->hidden) << one.id();
}

TEST(Words, MatchWholeSegments) {
  for (const Case& one : plan(selection_of("smoke", {"fp16"}))) EXPECT_EQ(one.policy->name, "fp16");
  std::set<std::string_view> policies;
  for (const Case& one : plan(selection_of("smoke", {"amp-*"}))) policies.insert(one.policy->name);
  EXPECT_EQ(policies, (std::set<std::string_view>{"amp-fp16", "amp-bf16"}));
}

TEST(Words, AboutOnePartAreAlternativesAndAboutDifferentPartsMustAllHold) {
  const std::vector<Case> cases = plan(selection_of("smoke", {"mlp", "linear", "fp16", "bf16", "error"}));
  EXPECT_EQ(cases.size(), 4u);
  for (const Case& one : cases) EXPECT_EQ(one.harness->name, "error");
}

TEST(Words, MatchKeysWithTheirValues) {
  const std::vector<Case> cases = plan(selection_of("quick", {"momentum=0.01"}));
  EXPECT_FALSE(cases.empty());
  for (const Case& one : cases) EXPECT_EQ(one.axes.at("momentum"), "0.01");
}

TEST(Words, MayNameTheValueThatAnIdLeavesOut) {
  const std::vector<Case> cases = plan(selection_of("quick", {"convnet", "amp-fp16", "training", "steps=40"}));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].id(), "convnet/b16_c3_s16_w16/cpu/amp-fp16/training");
}

TEST(Words, WithSlashesMatchNeighbouringSegments) {
  for (const Case& one : plan(selection_of("smoke", {"mlp/*/cpu/fp16"}))) {
    EXPECT_EQ(one.subject->name, "mlp");
    EXPECT_EQ(one.policy->name, "fp16");
  }
}

TEST(Words, ThatNobodyKnowsAreRefusedWithTheNearestNames) {
  EXPECT_NE(message_of(selection_of("smoke", {"fp61"})).find("fp16"), std::string::npos);
  EXPECT_NE(message_of(selection_of("smoke", {"liner"})).find("linear"), std::string::npos);
  EXPECT_NE(message_of(selection_of("smoke", {"training"})).find("no case of suite smoke"), std::string::npos);
}

TEST(Words, CanNameTheDevice) {
  Selection selection = selection_of("smoke", {"sim:hopper", "linear", "error"});
  selection.devices.clear();
  for (const Case& one : plan(selection)) EXPECT_EQ(one.device, "sim:hopper");
  selection.words = {"cuda:9"};
  EXPECT_NE(message_of(selection).find("unknown device 'cuda:9'"), std::string::npos);
}

TEST(Options, WidenTheSuite) {
  Selection selection = selection_of("smoke");
  selection.policies = {"tf32"};
  selection.harnesses = {"throughput"};
  const std::vector<Case> cases = plan(selection);
  EXPECT_FALSE(cases.empty());
  for (const Case& one : cases) {
    EXPECT_EQ(one.policy->name, "tf32");
    EXPECT_EQ(one.harness->name, "throughput");
  }
}

TEST(CaseOf, RefusesWhatIsNotACase) {
  const std::string id = plan(selection_of("smoke")).front().id();
  EXPECT_THROW(case_of("linear"), Error);
  EXPECT_THROW(case_of(id + "/momentum=0.1"), Error);
  EXPECT_THROW(case_of(id + "x"), Error);
}

TEST(Glob, StarStandsForAnything) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("a*c", "abbc"));
  EXPECT_TRUE(glob_matches("*fp16", "amp-fp16"));
  EXPECT_FALSE(glob_matches("fp16", "amp-fp16"));
  EXPECT_FALSE(glob_matches("a*c", "abcd"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbYbZc"));
}

TEST(StoppingRule, StopsAsSoonAsTheMedianIsKnown) {
  const Sampled sampled =
      sample_until({.target = 0.01, .min_samples = 6, .max_samples = 100, .budget = 1e9}, [] { return 2.0; });
  EXPECT_EQ(sampled.samples.size(), 6u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::target);
  EXPECT_EQ(sampled.half_width, 0);
}

TEST(StoppingRule, GoesOnToTheMostSamplesWhenTheyScatter) {
  int i = 0;
  const Sampled sampled = sample_until({.target = 0.01, .min_samples = 6, .max_samples = 50, .budget = 1e9},
                                       [&] { return i++ % 2 ? 1.0 : 3.0; });
  EXPECT_EQ(sampled.samples.size(), 50u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::samples);
  EXPECT_GT(sampled.half_width, 0.1);
}

TEST(StoppingRule, EndsWithTheBudgetButNotBeforeTheFewestSamples) {
  int i = 0;
  const auto scattered = [&] { return i++ % 2 ? 1.0 : 3.0; };
  const Sampled sampled =
      sample_until({.target = 0.01, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 1}, scattered);
  EXPECT_EQ(sampled.samples.size(), 6u);
  EXPECT_EQ(sampled.stopped_by, StoppedBy::budget);
  EXPECT_TRUE(std::isfinite(sampled.half_width));
}

TEST(StoppingRule, GoesOnPastTheBudgetUntilTheMedianCanBeShownOrPatienceEnds) {
  int i = 0;
  const auto calming = [&] { return ++i <= 6 && i % 2 ? 3.0 : 1.0; };  // disturbed at first
  const Sampled shown =
      sample_until({.target = 0, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 1e9}, calming);
  EXPECT_EQ(shown.stopped_by, StoppedBy::budget);
  EXPECT_GT(shown.samples.size(), 6u);
  EXPECT_LE(shown.half_width, kWidestHalfWidth);

  i = 0;
  const auto scattered = [&] { return i++ % 2 ? 1.0 : 3.0; };
  const Sampled given_up =
      sample_until({.target = 0, .min_samples = 6, .max_samples = 1000, .budget = 1, .patience = 40}, scattered);
  EXPECT_EQ(given_up.stopped_by, StoppedBy::budget);
  EXPECT_EQ(given_up.samples.size(), 20u);  // 2 seconds each in the mean
  EXPECT_GT(given_up.half_width, kWidestHalfWidth);
}

TEST(Fingerprint, ChangesWithOneBitAndNotWithTimes) {
  Findings findings;
  findings.measurements.push_back({.metric = "error.nmse", .at = "output", .value = 1});
  const std::string before = fingerprint_of(findings);
  Measurement time{.metric = "time.step", .value = 3};
  time.kind = Kind::sampled;
  findings.measurements.push_back(time);
  EXPECT_EQ(fingerprint_of(findings), before);
  findings.measurements[0].value = std::nextafter(1.0, 2.0);
  EXPECT_NE(fingerprint_of(findings), before);
}

}  // namespace
}  // namespace halfmark
