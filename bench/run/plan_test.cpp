// Tests of the selection of cases and of their ids.
#include "bench/run/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/known_names.h"
#include "bench/run/suites.h"
#include "bench/run/work.h"
#include "kernels/number/error.h"

namespace halfmark::bench {
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

TEST(Plan, HasUniqueIdsThatParseToTheSameCase) {
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

TEST(Plan, HasNoChangedPolicyUnlessAsked) {
  for (const Case& one : plan(selection_of("full"))) EXPECT_EQ(one.policy->base, nullptr) << one.id();
}

TEST(Plan, RunsATypedPolicyWhereOnlyOtherRowsHaveIt) {
  const auto policies_of = [](const std::vector<std::string>& words) {
    std::set<std::string_view> names;
    for (const Case& one : plan(selection_of("quick", words)))
      if (one.harness->name == "accumulation") names.insert(one.policy->name);
    return names;
  };
  using Names = std::set<std::string_view>;
  EXPECT_EQ(policies_of({"linear", "fp16", "accumulation"}), Names{"fp16"});
  EXPECT_EQ(policies_of({"linear", "fp16-sum16", "fp16", "accumulation"}), (Names{"fp16", "fp16-sum16"}));
  EXPECT_EQ(policies_of({"linear", "bf16", "accumulation"}), Names{"bf16"});
  EXPECT_FALSE(policies_of({"linear", "accumulation"}).contains("fp16"));
}

TEST(Plan, LeavesOutTrainingsThatRepeatFp16UnlessTheyAreTyped) {
  const auto trains = [](const Selection& selection, const std::string& subject) {
    return std::ranges::any_of(plan(selection), [&](const Case& one) {
      return one.subject->name == subject && one.policy->name == "fp16-bn32" && one.harness->name == "convergence";
    });
  };
  const Selection full = selection_of("full");
  EXPECT_FALSE(trains(full, "gpt"));
  EXPECT_FALSE(trains(full, "lenet5"));
  EXPECT_TRUE(trains(full, "convnet"));
  EXPECT_TRUE(trains(full, "speech"));  // its batch norm is one of rows
  Selection typed = full;
  typed.words = {"gpt", "fp16-bn32"};
  EXPECT_TRUE(trains(typed, "gpt"));
  typed.words = {}, typed.policies = {"fp16-bn32"};
  EXPECT_TRUE(trains(typed, "lenet5"));
}

TEST(Words, MatchWholeSegments) {
  for (const Case& one : plan(selection_of("smoke", {"fp16"}))) EXPECT_EQ(one.policy->name, "fp16");
  std::set<std::string_view> policies;
  for (const Case& one : plan(selection_of("smoke", {"amp-*"}))) policies.insert(one.policy->name);
  EXPECT_EQ(policies, (std::set<std::string_view>{"amp-fp16", "amp-bf16"}));
}

TEST(Words, ForOnePartAreAlternativesAndForDifferentPartsMustAllMatch) {
  const std::vector<Case> cases = plan(selection_of("smoke", {"mlp", "linear", "fp16", "bf16", "error"}));
  EXPECT_EQ(cases.size(), 4u);
  for (const Case& one : cases) EXPECT_EQ(one.harness->name, "error");
}

TEST(Words, MatchKeysWithTheirValues) {
  const std::vector<Case> cases = plan(selection_of("quick", {"momentum=0.01"}));
  EXPECT_FALSE(cases.empty());
  for (const Case& one : cases) EXPECT_EQ(one.axes.at("momentum"), "0.01");
}

TEST(Words, MayNameTheDefaultValueThatAnIdOmits) {
  const std::vector<Case> cases = plan(selection_of("quick", {"convnet", "amp-fp16", "training", "steps=40"}));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].id(), "convnet/b16_c3_s16_w16/cpu/amp-fp16/training");
}

TEST(Words, WithSlashesMatchAdjacentSegments) {
  for (const Case& one : plan(selection_of("smoke", {"mlp/*/cpu/fp16"}))) {
    EXPECT_EQ(one.subject->name, "mlp");
    EXPECT_EQ(one.policy->name, "fp16");
  }
}

TEST(Words, APolicyRunsThoughTheSuiteHasNotGotIt) {
  const std::vector<Case> cases = plan(selection_of("quick", {"mlp", "bf16-master", "error"}));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].id(), "mlp/b32_i64_h128_o10/cpu/bf16-master/error");
  for (const Case& one : plan(selection_of("smoke", {"tf32"}))) {
    EXPECT_EQ(one.policy->name, "tf32");
    EXPECT_FALSE(one.axes.contains("control")) << one.id();
  }
  // One that the suite has is not added where the suite leaves it out.
  Selection listed = selection_of("quick", {"fp16"}), all = listed;
  all.words.clear(), all.policies = {"fp16"};
  EXPECT_LT(plan(listed).size(), plan(all).size());
}

TEST(Words, AnExperimentNamedAloneRunsOnItsOwnSubjects) {
  const std::vector<Case> cases = plan(selection_of("quick", {"mask", "fp16"}));
  EXPECT_FALSE(cases.empty());
  for (const Case& one : cases) {
    EXPECT_EQ(one.subject->name, "softmax");
    EXPECT_EQ(one.policy->name, "fp16");
    EXPECT_EQ(one.harness->name, "mask");
  }
  // A named subject, and a harness that the suite has, are taken as before.
  EXPECT_EQ(plan(selection_of("quick", {"mask", "softmax/b8_d16", "fp16"})).size(), 1u);
  for (const Case& one : plan(selection_of("quick", {"error"}))) EXPECT_EQ(one.harness->name, "error");
}

TEST(Words, ThatAreUnknownAreRefusedWithTheNearestNames) {
  EXPECT_NE(message_of(selection_of("smoke", {"fp61"})).find("fp16"), std::string::npos);
  EXPECT_NE(message_of(selection_of("smoke", {"liner"})).find("linear"), std::string::npos);
  for (const char* word : {"logis*", "globalp*"})
    EXPECT_NE(message_of(selection_of("quick", {word})).find("no case of suite quick"), std::string::npos) << word;
  const auto expect = [](const std::vector<std::string>& words, const std::string& part) {
    EXPECT_NE(message_of(selection_of("quick", words)).find(part), std::string::npos)
        << message_of(selection_of("quick", words));
  };
  expect({"speed=4"}, "unknown word 'speed=4'");
  expect({"training", "rate=fast"}, "'rate=fast': rate of training can be own, 0.0001, 0.0003");
  expect({"training", "rate=-1"}, "0.1, or a number from 0 to 1e+06");
  expect({"training", "steps=1.5"}, "or a whole number from 1 to 1000000");
  expect({"error", "steps=10"},
         "'steps=10': no selected harness has the axis steps, it is one of training, convergence");
  expect({"mlp", "training", "memory", "steps=10"}, "no case of memory has steps=10");
  expect({"training", "storage=f16"}, "'storage=f16': storage of training can be own, nearest, stochastic, kahan");
}

TEST(Words, AValueOfAnAxisRunsThoughTheSuiteHasNotGotIt) {
  const auto ids = [](const std::string& suite, const std::vector<std::string>& words) {
    std::set<std::string> found;
    for (const Case& one : plan(selection_of(suite, words))) found.insert(one.id());
    return found;
  };
  using Ids = std::set<std::string>;
  const std::string mlp = "mlp/b32_i64_h128_o10", training = mlp + "/cpu/bf16/training/";
  EXPECT_EQ(ids("quick", {mlp, "bf16", "training", "rate=0.020"}), (Ids{training + "rate=0.02"}));
  EXPECT_EQ(ids("quick", {mlp, "bf16", "training", "rate=0.02", "steps=12"}), (Ids{training + "rate=0.02/steps=12"}))
      << "both must hold";
  EXPECT_EQ(ids("quick", {mlp, "bf16", "training", "steps=12", "steps=100"}),
            (Ids{training + "steps=12", training + "steps=100", training + "replicate=1/steps=100",
                 training + "replicate=2/steps=100"}))
      << "what the suite has stays a selection";
  // A harness that is typed stays, with those of the axes that it has.
  EXPECT_EQ(ids("quick", {mlp, "bf16", "error", "training", "steps=12"}),
            (Ids{mlp + "/cpu/bf16/error", training + "steps=12"}));
  EXPECT_EQ(ids("quick", {mlp, "bf16", "convergence", "training", "seeds=3", "steps=12"}),
            (Ids{mlp + "/cpu/bf16/convergence/seeds=3/steps=12", training + "steps=12"}));
  EXPECT_EQ(ids("quick", {mlp, "bf16", "training", "steps=100", "replicate=7"}),
            (Ids{training + "replicate=7/steps=100"}));
  EXPECT_EQ(ids("quick", {"batchnorm2d/b4_c3_s4", "fp16", "storage=f16"}),
            (Ids{"batchnorm2d/b4_c3_s4/cpu/fp16/batchnorm_drift/storage=f16"}));
  for (const std::string& id : ids("quick", {"bf16", "training", "rate=0.3"})) {
    EXPECT_NE(id.find("/rate=0.3"), std::string::npos) << id;
    EXPECT_EQ(id.find("control"), std::string::npos) << id << ": a control has its own settings";
    EXPECT_EQ(case_of(id).id(), id);
  }
}

TEST(CaseIds, AnAxisWithTwoValuesIsRefused) {
  const std::string training = "mlp/b8_i16_h24_o10/cpu/bf16/training/";
  try {
    case_of(training + "steps=100/steps=200");
    FAIL() << "one of the two values was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("axis steps has two values"), std::string::npos) << error.what();
  }
  EXPECT_EQ(case_of(training + "steps=100/replicate=7").id(), training + "replicate=7/steps=100");
}

TEST(Words, AnExactSubjectIsRunThoughTheSuiteHasNotGotIt) {
  size_t outside = 0;
  for (const Subject& subject : subjects()) {
    std::set<std::string> of_family, alone;
    for (const Case& one : plan(selection_of("smoke", {subject.name}))) of_family.insert(one.subject->name);
    EXPECT_EQ(of_family, (std::set<std::string>{subject.name}));
    const std::vector<Case> cases = plan(selection_of("smoke", {subject.id()}));
    for (const Case& one : cases) alone.insert(one.subject->id());
    EXPECT_EQ(alone, (std::set<std::string>{subject.id()}));
    EXPECT_EQ(cases.size(), 18u) << subject.id() << ": the policies and harnesses of the suite's first row";
    const std::vector<Case> suite = plan(selection_of("smoke"));
    outside += std::ranges::none_of(suite, [&](const Case& one) { return one.subject == &subject; });
  }
  EXPECT_GT(outside, 0u);
  for (const Case& one : plan(selection_of("smoke", {"relu", "fp16", "throughput"})))
    EXPECT_EQ(one.harness->name, "throughput");
  const size_t sizes = static_cast<size_t>(
      std::ranges::count_if(subjects(), [](const Subject& subject) { return subject.name == "relu"; }));
  EXPECT_EQ(plan(selection_of("smoke", {"relu", "fp16", "error"})).size(), sizes) << "every size of a family";
}

TEST(Words, ASubjectRunsAtAnySize) {
  const auto ids = [](const std::vector<std::string>& words) {
    std::set<std::string> found;
    for (const Case& one : plan(selection_of("quick", words))) found.insert(one.subject->id());
    return found;
  };
  using Ids = std::set<std::string>;
  EXPECT_EQ(ids({"conv2d/b1_c2_o2_s9_k3", "throughput"}), (Ids{"conv2d/b1_c2_o2_s9_k3"}));
  EXPECT_EQ(ids({"conv2d/k3x3_b1_c2_o2_s9_t1", "fp16", "error"}), (Ids{"conv2d/b1_c2_o2_s9_k3"})) << "one id";
  EXPECT_EQ(ids({"linear/b1_i2_o3/cpu/fp32/error"}), (Ids{"linear/b1_i2_o3"}));
  EXPECT_EQ(ids({"linear/b1_i2_o3", "linear/b64_i1024_o1024", "error"}),
            (Ids{"linear/b1_i2_o3", "linear/b64_i1024_o1024"}));
  for (const Case& one : plan(selection_of("smoke", {"relu/b1_c1_s3"})))
    EXPECT_EQ(&case_of(one.id()).subject->name, &one.subject->name) << "an id selects the same subject";
  EXPECT_NE(
      message_of(selection_of("quick", {"conv2d/b1_c3_o2_s9_k3_g2"})).find("2 groups do not divide 3 input channels"),
      std::string::npos);
  EXPECT_NE(message_of(selection_of("quick", {"conv2d/b7*"})).find("unknown word 'conv2d/b7*'"), std::string::npos);
  EXPECT_NE(message_of(selection_of("quick", {"resnt/b2"})).find("did you mean resnet/b2"), std::string::npos);
  EXPECT_NE(message_of(selection_of("quick", {"mynet/b16"})).find("a model of your own is read with --model FILE"),
            std::string::npos);
}

TEST(Words, AnExactHarnessIsRunThoughTheSuiteHasNotGotIt) {
  const auto subjects_under = [](const std::vector<std::string>& words) {
    std::set<std::string> names;
    for (const Case& one : plan(selection_of("smoke", words))) {
      EXPECT_EQ(one.harness->name, "training");
      names.insert(one.subject->name);
    }
    return names;
  };
  EXPECT_EQ(subjects_under({"training"}), subjects_under({"training", "*"})) << "the suite's main subjects";
  EXPECT_EQ(subjects_under({"training", "mlp"}), (std::set<std::string>{"mlp"}));
  EXPECT_EQ(subjects_under({"training", "logistic"}), (std::set<std::string>{"logistic"})) << "in no row of the suite";
  EXPECT_EQ(plan(selection_of("quick", {"batchnorm2d/b16_c64_s28", "batchnorm_drift", "fp16"})).size(), 1u)
      << "both are in the suite, but not together";
  std::set<std::string> pairs;
  for (const Case& one : plan(selection_of("smoke", {"logistic", "mlp", "error", "training", "fp32"})))
    pairs.insert(one.subject->name + "/" + std::string(one.harness->name));
  EXPECT_EQ(pairs, (std::set<std::string>{"logistic/error", "logistic/training", "mlp/error", "mlp/training"}));
  Selection selection = selection_of("smoke", {"logistic"});
  selection.harnesses = {"training"};
  for (const Case& one : plan(selection))
    EXPECT_EQ(one.subject->name + "/" + std::string(one.harness->name), "logistic/training");
}

TEST(Words, ASubjectThatTheSuiteHasAsAControlRunsUnderOtherPoliciesToo) {
  Selection selection = selection_of("quick", {"mlp/b8_i16_h24_o10", "training"});
  selection.policies = {"fp32", "bf16"};
  std::set<std::string> ids;
  for (const Case& one : plan(selection)) ids.insert(one.id());
  EXPECT_EQ(ids, (std::set<std::string>{"mlp/b8_i16_h24_o10/cpu/fp32/training", "mlp/b8_i16_h24_o10/cpu/bf16/training",
                                        "mlp/b8_i16_h24_o10/cpu/bf16/training/control=small_rate"}));
}

TEST(Words, CanNameTheDevice) {
  Selection selection = selection_of("smoke", {"sim:hopper", "linear", "error"});
  selection.devices.clear();
  for (const Case& one : plan(selection)) EXPECT_EQ(one.device, "sim:hopper");
  selection.words = {"cuda:9"};
  EXPECT_NE(message_of(selection).find("unknown device 'cuda:9'"), std::string::npos);
}

TEST(Words, APolicyMayBeginLikeADevice) {
  const std::vector<Case> cases = plan(selection_of("full", {"mlp/b8_i16_h24_o10", "cpu-amp-fp16", "error"}));
  ASSERT_FALSE(cases.empty());
  for (const Case& one : cases) EXPECT_EQ(one.policy->name, "cpu-amp-fp16");
}

TEST(Words, AGlobOverSeveralPartsIsNoWord) {
  EXPECT_NE(message_of(selection_of("quick", {"mlp/*/fp16/error"})).find("the parts of an id are words of their own"),
            std::string::npos);
}

TEST(Options, ExtendTheSuite) {
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

TEST(SuiteFull, HasEverySubjectPolicyAndHarness) {
  std::set<std::string> seen, models, trained;
  for (const Case& one : plan(selection_of("full"))) {
    seen.insert({one.subject->id(), std::string(one.policy->name), std::string(one.harness->name)});
    if (one.harness->name == "convergence") trained.insert(one.subject->name);
  }
  for (const Subject& subject : subjects()) {
    EXPECT_TRUE(seen.contains(subject.id())) << subject.id();
    // logistic cannot learn the images, and losses alone have random labels or nothing to train.
    if (subject.has_labels() && subject.data != DataKind::logits && subject.name != "logistic" &&
        work_of(subject).parameters > 0)
      models.insert(subject.name);
  }
  for (const Policy& policy : policies()) EXPECT_TRUE(seen.contains(std::string(policy.name)));
  // Experiments have a suite of their own.
  for (const Case& one : plan(selection_of("experiments"))) seen.insert(std::string(one.harness->name));
  for (const Harness& harness : all_harnesses()) EXPECT_TRUE(seen.contains(std::string(harness.name))) << harness.name;
  for (const std::string& model : models)
    EXPECT_TRUE(trained.contains(model)) << model << " needs a small form in a row of convergence in suites.cpp";
}

TEST(CaseOf, RefusesInvalidIds) {
  const std::string id = plan(selection_of("smoke")).front().id();
  EXPECT_THROW(case_of("linear"), Error);
  EXPECT_THROW(case_of(id + "/momentum=0.1"), Error);
  EXPECT_THROW(case_of(id + "x"), Error);
  EXPECT_EQ(case_of("mlp/b8_i16_h24_o10/cpu/fp32/training/rate=0.050/steps=4e1").id(),
            "mlp/b8_i16_h24_o10/cpu/fp32/training/rate=0.05");
}

TEST(Harnesses, SayInALineWhatEachOfTheirAxesIs) {
  for (const Harness& harness : all_harnesses())
    for (const Axis& axis : harness.axes) {
      EXPECT_FALSE(axis.about.empty()) << harness.name << " " << axis.name;
      EXPECT_EQ(axis.about.find('\n'), axis.about.npos) << harness.name << " " << axis.name;
    }
}

}  // namespace
}  // namespace halfmark::bench
