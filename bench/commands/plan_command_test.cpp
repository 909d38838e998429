// halfmark plan from end to end: its JSON, its text, exit codes, and one line for each error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/run/program_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

class PlanCommand : public ProcessTest {
 protected:
  // Numbers with the deviation 283 are squared, which fp16 cannot hold. The layer that squares and the one that reads it need
  // fp32.
  static constexpr const char* kNetwork = R"({"name": "squares", "input": [8], "batch": 4, "data": "normal", "layers": [
    {"layer": "linear", "name": "grow", "out": 8, "start": "normal", "deviation": 100},
    {"layer": "square", "name": "square"},
    {"layer": "layer_norm", "name": "norm"},
    {"layer": "linear", "name": "head", "out": 4}]})";

  void write_network() const { std::ofstream(folder_ / "squares.json") << kNetwork; }
  nlohmann::json plan_json(const std::string& arguments, int code = 0) const {
    const Result result = halfmark("plan " + arguments + " --device cpu --json");
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_TRUE(result.err.empty()) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

TEST_F(PlanCommand, RefusesMistakesWithOneLineAndExitCode2) {
  write_network();
  std::ofstream(folder_ / "empty.json") << "{}";
  expect_complaint("plan", "plan needs one subject");
  expect_complaint("plan mlp/b8_i16_h24_o10 convnet/b4_c1_s8_w4", "plan needs one subject");
  expect_complaint("plan --model squares.json --model squares.json mlp/b8_i16_h24_o10 lenet5/b2_c1_s28", "");
  expect_complaint("plan nonsense", "plan takes SUBJECT/SIZES");
  expect_complaint("plan mlp/b8_i16_h24_o10/cpu", "plan takes SUBJECT/SIZES");
  expect_complaint("plan mlp/b8_i16", "mlp");
  expect_complaint("plan --model absent.json", "absent.json: cannot be read");
  expect_complaint("plan --model empty.json", "empty.json");
  expect_complaint("plan mlp/b8_i16_h24_o10 --policy fp32", "policy fp32 has no layer below fp32");
  expect_complaint("plan mlp/b8_i16_h24_o10 --policy nonsense", "unknown policy 'nonsense'");
  expect_complaint("plan mlp/b8_i16_h24_o10 --policy fp16+precision=fc1=fp32", "leave out its precision=");
  expect_complaint("plan mlp/b8_i16_h24_o10 --device gpu", "unknown device 'gpu'");
  for (const char* passes : {"3", "0", "1000001", "40.5", "1e3", "x", "99999999999999999999"})
    expect_complaint(fmt::format("plan mlp/b8_i16_h24_o10 --passes {}", passes),
                     fmt::format("--passes: '{}' is not a whole number from 4 to 1000000", passes));
  expect_complaint("plan mlp/b8_i16_h24_o10 --passes=-1", "--passes: '-1' is not a whole number from 4 to 1000000");
  expect_complaint("plan mlp/b8_i16_h24_o10 --tolerance 0", "'0' is not a positive number");
  expect_complaint("plan mlp/b8_i16_h24_o10 --tolerance x", "'x' is not a positive number");
  expect_complaint("plan mlp/b8_i16_h24_o10 --nonsense", "unknown option --nonsense");
}

TEST_F(PlanCommand, WritesThePlanAsJson) {
  write_network();
  const nlohmann::json plan = plan_json("--model squares.json");
  std::set<std::string> keys;
  for (const auto& [key, value] : plan.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"all_in_fp32", "all_in_fp32_has_the_bits_of_fp32", "command", "device", "fp32",
                                         "layers", "layers_in_all", "meets", "minimal", "none_in_fp32", "numerics",
                                         "passes", "policy", "precision", "seed", "set_in_fp32", "subject", "tolerance",
                                         "tolerance_is_derived"}));
  EXPECT_EQ(plan["subject"], "squares/b4");
  EXPECT_EQ(plan["device"], "cpu");
  EXPECT_EQ(plan["policy"], "fp16");
  EXPECT_EQ(plan["precision"], "square=fp32,norm=fp32");
  EXPECT_EQ(plan["layers_in_all"], 4);
  EXPECT_EQ(plan["meets"], true);
  EXPECT_EQ(plan["minimal"], true);
  EXPECT_EQ(plan["all_in_fp32_has_the_bits_of_fp32"], true);
  EXPECT_EQ(plan["tolerance_is_derived"], true);
  EXPECT_EQ(plan["tolerance"], 8 * 0x1p-11 * 2) << "8 u sqrt(4)";
  EXPECT_EQ(plan["none_in_fp32"]["error"], "Infinity") << "as reports write it";
  EXPECT_LE(plan["set_in_fp32"]["error"].get<double>(), plan["tolerance"].get<double>());
  ASSERT_EQ(plan["layers"].size(), 2u);
  EXPECT_EQ(plan["layers"][0]["layer"], "square");
  EXPECT_EQ(plan["layers"][0]["cause"], "range");
  EXPECT_GT(plan["layers"][0]["largest"].get<double>(), 65504);
  EXPECT_EQ(plan["layers"][0]["rerun"]["changed"], "exponents of bf16");
  EXPECT_EQ(plan["layers"][1]["kind"], "layer_norm");
}

// The command of the plan measures what the plan says; without its --precision the output is not finite.
TEST_F(PlanCommand, NamesACommandThatRunsTheSet) {
  write_network();
  const std::string command = plan_json("--model squares.json")["command"];
  ASSERT_TRUE(command.starts_with("halfmark run ")) << command;
  const auto nonfinite_of = [&](const std::string& arguments) {
    EXPECT_EQ(halfmark(arguments + " --no-probes").code, 0) << arguments;
    const Report report = Report::load(folder_ / "report.json");
    EXPECT_EQ(report.records.size(), 1u);
    return find(report.records.at(0), "error.nonfinite", "output")->value;
  };
  EXPECT_EQ(nonfinite_of(command.substr(std::string("halfmark ").size())), 0);
  EXPECT_GT(nonfinite_of("run --model squares.json squares/b4 error --policy fp16 --device cpu"), 0);
}

TEST_F(PlanCommand, SaysTheSameInTextAndInJson) {
  write_network();
  const Result text = halfmark("plan --model squares.json --device cpu");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part :
       {"squares/b4 on cpu under fp16: 2 of 4 layers must run in fp32", "range", "--precision square=fp32,norm=fp32",
        "Without any one of these layers the tolerance was missed"})
    EXPECT_TRUE(says(text.out, part)) << part << "\n" << text.out;
  // bf16 has the exponents of fp32: nothing has to be kept.
  const nlohmann::json wide = plan_json("--model squares.json --policy bf16");
  EXPECT_EQ(wide["precision"], "");
  EXPECT_TRUE(wide["layers"].empty());
  EXPECT_TRUE(says(halfmark("plan --model squares.json --policy bf16 --device cpu").out, "none of 4 layers must run"));
}

TEST_F(PlanCommand, ExitsWith1IfNotEvenFp32MeetsTheTolerance) {
  write_network();
  const nlohmann::json plan = plan_json("--model squares.json --tolerance 1e-12", 1);
  EXPECT_EQ(plan["meets"], false);
  EXPECT_EQ(plan["tolerance_is_derived"], false);
  EXPECT_TRUE(plan["layers"].empty());
  EXPECT_TRUE(says(halfmark("plan --model squares.json --tolerance 1e-12 --device cpu").out, "no set of layers"));
}

TEST_F(PlanCommand, SaysWhereThePassesDoNotSuffice) {
  write_network();
  const nlohmann::json plan = plan_json("--model squares.json --passes 5");
  EXPECT_EQ(plan["minimal"], false);
  EXPECT_LE(plan["passes"], 5);
}

}  // namespace
}  // namespace halfmark::bench
