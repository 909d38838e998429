// Predictions of small reports, against numbers computed by hand, and what they must not be mixed with.
#include "reports/predict/prediction.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "reports/predict/prediction_text.h"
#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

// A step of 2 TFLOP on 1 GB, by a matmul of these operands.
Record step_record(const std::string& policy, const std::string& dtypes, double flops = 2e12, double bytes = 1e9) {
  Record record;
  record.subject = "mlp/h64", record.device = "cpu", record.policy = policy, record.harness = "throughput";
  record.id = "mlp/h64/cpu/" + policy + "/throughput";
  record.measurements = {
      {.metric = "time.step", .at = "hot", .value = 5, .unit = "s", .better = Better::lower},
      {.metric = "speedup.step", .at = "hot", .value = 1.37, .better = Better::higher, .interval = Range{1.36, 1.38}},
      {.metric = "roofline.bytes", .at = "hot", .value = bytes, .unit = "B"}};
  if (flops > 0) record.measurements.push_back({.metric = "work.flops", .at = "train", .value = flops, .unit = "FLOP"});
  record.kernels = {{"matmul", "forward", dtypes, "onednn", "real", 1, {}},
                    {"relu", "forward", "e4m3->e4m3", "host", "real", 1, {}},
                    {"matmul", "evaluation", "e4m3,e4m3->f32", "onednn", "real", 1, {}}};
  return record;
}

Record error_record(const std::string& device, const std::string& policy, double nmse) {
  Record record;
  record.subject = "mlp/h64", record.device = device, record.policy = policy, record.harness = "error";
  record.id = fmt::format("mlp/h64/{}/{}/error", device, policy);
  record.measurements = {{.metric = "error.nmse", .at = "output", .value = nmse, .better = Better::lower}};
  return record;
}

NamedReport report_with(std::vector<Record> records, const std::string& name = "base.json") {
  NamedReport named{name, {}};
  named.report.records = std::move(records);
  return named;
}

Predictions predicted(const std::vector<NamedReport>& reports, const std::vector<std::string>& gpus) {
  return predict(reports, published_gpus_named(gpus));
}

PredictedStep only_step(const Record& record, const std::string& gpu) {
  const Predictions found = predicted({report_with({record})}, {gpu});
  EXPECT_EQ(found.groups.size(), 1u) << testing::PrintToString(found.impossible);
  return found.groups.empty() ? PredictedStep() : found.groups[0].steps.at(0);
}

std::string prediction_lines(const Predictions& predictions, size_t width = 300) {
  return predictions_text(predictions, {.width = width});
}

bool prints(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Prediction, IsTheRooflineOfThePublishedPeaks) {
  // A100: 19.5, 156 and 312 TFLOP/s, 2039 GB/s. 2e12 / 312e12 s = 6.410 ms; 1e9 / 2039e9 s = 0.490 ms.
  PredictedStep step = only_step(step_record("fp16", "f16,f16->f16"), "a100");
  EXPECT_DOUBLE_EQ(step.seconds, 2e12 / 312e12);
  EXPECT_NEAR(step.seconds, 6.410e-3, 1e-6);
  EXPECT_EQ(step.operands, "f16");
  EXPECT_FALSE(step.by_bandwidth);
  EXPECT_NEAR(only_step(step_record("fp32", "f32,f32->f32"), "a100").seconds, 102.56e-3, 1e-5);
  EXPECT_NEAR(only_step(step_record("tf32", "f32,f32->f32"), "a100").seconds, 12.821e-3, 1e-6);
  // 1e9 FLOP on 4e9 B: 4e9 / 2039e9 s = 1.962 ms, and 3.2 us of products.
  step = only_step(step_record("bf16", "bf16,bf16->bf16", 1e9, 4e9), "a100");
  EXPECT_NEAR(step.seconds, 1.962e-3, 1e-6);
  EXPECT_TRUE(step.by_bandwidth);
  // A layer without products needs its bytes only: 3.35e9 / 3.35e12 s = 1 ms on H100.
  Record layer = step_record("bf16", "", 0, 3.35e9);
  layer.kernels = {{"batch_norm", "forward", "bf16->bf16", "onednn", "real", 1, {}}};
  step = only_step(layer, "h100");
  EXPECT_DOUBLE_EQ(step.seconds, 1e-3);
  EXPECT_EQ(step.operands, "");
}

TEST(Prediction, HasTheGainOverThePredictedFp32OfTheSameGpuReportAndSettings) {
  Record other = step_record("fp32", "f32,f32->f32", 8e12);
  other.axes = {{"labels", "i64"}};
  other.id += "/labels=i64";
  const NamedReport base =
      report_with({step_record("fp32", "f32,f32->f32"), step_record("fp16", "f16,f16->f16"), other});
  const NamedReport alone = report_with({step_record("fp16", "f16,f16->f16")}, "alone.json");
  const Predictions found = predicted({base, alone}, {"a100", "h100"});
  ASSERT_EQ(found.groups.size(), 2u);
  const std::vector<PredictedStep>& steps = found.groups[0].steps;
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0].gpu->name, "a100");
  EXPECT_FALSE(steps[0].gain) << "fp32 itself";
  ASSERT_TRUE(steps[1].gain);
  EXPECT_NEAR(*steps[1].gain, 312 / 19.5, 1e-9);
  EXPECT_EQ(steps[2].policy, "fp32 labels=i64");
  EXPECT_FALSE(steps[2].gain);
  EXPECT_EQ(steps[3].gpu->name, "h100");
  EXPECT_NEAR(*steps[4].gain, 989.5 / 67, 1e-9);
  EXPECT_FALSE(found.groups[1].steps[0].gain) << "no fp32 in that report";
}

TEST(Prediction, TakesThePeakOfTheOperandsWithTheirSums) {
  // Consumer cards add products of fp16 in fp32 at half rate.
  EXPECT_DOUBLE_EQ(only_step(step_record("fp16", "f16,f16->f16"), "rtx4090").seconds, 2e12 / 165.2e12);
  EXPECT_DOUBLE_EQ(only_step(step_record("fp16-sum16", "f16,f16->f16"), "rtx4090").seconds, 2e12 / 330.3e12);
  EXPECT_DOUBLE_EQ(only_step(step_record("fp8-delayed", "e4m3,e5m2,f32,f32->bf16"), "h100").seconds, 2e12 / 1979e12);
  // Of two types the fastest, because how the work divides is not recorded.
  Record mixed = step_record("amp-fp16", "f32,f32->f32");
  mixed.kernels.push_back({"conv2d_backward_weights", "backward", "f16,f16->f16", "cudnn", "real", 1, {}});
  EXPECT_EQ(only_step(mixed, "a100").operands, "f16");
  EXPECT_DOUBLE_EQ(only_step(mixed, "a100").seconds, 2e12 / 312e12);
}

TEST(Prediction, SaysThatAGpuHasNoSuchInstruction) {
  const auto why = [](const std::string& policy, const std::string& dtypes, const std::string& gpu) {
    const Predictions found = predicted({report_with({step_record(policy, dtypes)})}, {gpu});
    EXPECT_TRUE(found.groups.empty()) << gpu;
    return found.impossible.empty() ? std::string() : found.impossible[0].first;
  };
  EXPECT_EQ(why("fp8-delayed", "e4m3,e4m3->bf16", "a100"), "A100 has no FP8 matrix instruction");
  EXPECT_EQ(why("nvfp4", "e2m1,e2m1->bf16", "h100"), "H100 has no FP4 matrix instruction");
  EXPECT_EQ(why("bf16", "bf16,bf16->bf16", "v100"), "V100 has no BF16 matrix instruction");
  EXPECT_EQ(why("tf32", "f32,f32->f32", "t4"), "T4 has no TF32 matrix instruction");
  EXPECT_EQ(why("fp64", "f64,f64->f64", "h100"), "peaks.json has no f64 peak of h100");
  EXPECT_EQ(why("fp16-sum16", "f16,f16->f16", "h100"), "peaks.json has no f16-sum16 peak of h100");
  // One operand of a recipe is enough.
  Record mixed = step_record("fp8-delayed", "bf16,bf16->bf16");
  mixed.kernels.push_back({"scaled_matmul", "forward", "e4m3,e4m3->bf16", "cublaslt", "real", 1, {}});
  EXPECT_TRUE(predicted({report_with({mixed})}, {"a100"}).groups.empty());
  // The second operand of packed attention is a mask.
  Record attention = step_record("bf16", "bf16,bf16->bf16");
  attention.kernels.push_back({"packed_attention", "forward", "bf16,u8->bf16,f32", "cudnn", "real", 1, {}});
  EXPECT_FALSE(predicted({report_with({attention})}, {"a100"}).groups.empty());
  attention.kernels.back().dtypes = "e4m3,u8->bf16,f32";
  EXPECT_TRUE(predicted({report_with({attention})}, {"a100"}).groups.empty());
}

TEST(Prediction, SaysWhyARecordHasNone) {
  Record old = step_record("bf16", "bf16,bf16->bf16");
  old.measurements.erase(old.measurements.begin() + 2);
  Record failed = step_record("fp32", "f32,f32->f32");
  failed.status = Status::failed, failed.reason = "out of memory";
  Record nameless = step_record("tf32", "f32,f32->f32");
  nameless.kernels.clear();
  const NamedReport errors = report_with({error_record("cpu", "fp32", 1e-13)}, "errors.json");
  const NamedReport simulated = report_with({error_record("sim:ampere", "fp32", 1e-13)}, "sim.json");
  const Predictions found = predicted({report_with({old, failed, nameless}), errors, simulated}, {"a100"});
  EXPECT_TRUE(found.groups.empty());
  const std::string text = prediction_lines(found);
  EXPECT_TRUE(prints(text, "has no roofline.bytes: measured by an older halfmark: mlp/h64/cpu/bf16/throughput\n"));
  EXPECT_TRUE(prints(text, "failed: out of memory: mlp/h64/cpu/fp32/throughput\n")) << text;
  EXPECT_TRUE(prints(text, "names no kernel of a matrix product or convolution: mlp/h64/cpu/tf32/throughput\n"))
      << text;
  EXPECT_TRUE(prints(text, "not predicted: errors.json has no record of the harness throughput\n")) << text;
  EXPECT_FALSE(prints(text, "sim.json has no record")) << text;
  EXPECT_FALSE(prints(text, "least step")) << text;
  EXPECT_FALSE(prints(text, "rest on")) << text;
}

// Work and bytes are those of the operations, whatever computes them.
TEST(Prediction, TakesTheCountsOfARecordWhoseKernelsEmulateTheArithmetic) {
  Record emulated = step_record("fp16", "f16,f16->f16");
  emulated.status = Status::suspect, emulated.reason = "emulated arithmetic", emulated.kernels[0].speed = "emulated";
  const Predictions found = predicted({report_with({emulated})}, {"a100"});
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].steps.at(0).operands, "f16");
}

// Work and bytes are counts: other processes on the machine do not change them.
TEST(Prediction, TakesTheCountsOfARecordWhoseTimeIsSuspect) {
  Record busy = step_record("fp16", "f16,f16->f16");
  busy.status = Status::suspect, busy.reason = "other processes took 1.2 cores";
  EXPECT_DOUBLE_EQ(only_step(busy, "a100").seconds, 2e12 / 312e12);
}

TEST(Prediction, NeedsRoomForTheTensors) {
  Record memory = error_record("cpu", "fp16", 0);
  memory.harness = "memory", memory.id = "mlp/h64/cpu/fp16/memory";
  memory.measurements = {{.metric = "memory.tensors", .at = "train", .value = 50e9, .unit = "B"}};
  const Predictions found =
      predicted({report_with({step_record("fp16", "f16,f16->f16"), step_record("fp32", "f32,f32->f32"), memory})},
                {"a100", "a100-40gb"});
  ASSERT_EQ(found.groups.size(), 1u);
  ASSERT_EQ(found.groups[0].steps.size(), 3u) << "fp16 of a100-40gb is missing";
  ASSERT_EQ(found.impossible.size(), 1u);
  EXPECT_EQ(found.impossible[0].first, "a100-40gb has 40 GB of memory, the tensors of a step need 50 GB");
}

TEST(Prediction, HasTheErrorOfTheSimulatorOfItsArchitecture) {
  const NamedReport base = report_with({step_record("fp16", "f16,f16->f16"), error_record("cpu", "fp16", 9e-9)});
  NamedReport simulated =
      report_with({error_record("sim:hopper", "fp16", 2e-7), error_record("sim:hopper", "bf16", 3e-5),
                   error_record("sim:volta", "fp16", 4e-7)},
                  "sim.json");
  Predictions found = predicted({base, simulated}, {"h100", "a100"});
  ASSERT_EQ(found.groups.size(), 1u);
  ASSERT_EQ(found.groups[0].steps.size(), 2u);
  EXPECT_EQ(found.groups[0].steps[0].gpu->name, "a100");
  EXPECT_FALSE(found.groups[0].steps[0].error) << "neither that of the CPU nor of another architecture";
  EXPECT_EQ(found.groups[0].steps[1].error, 2e-7);
  EXPECT_EQ(found.groups[0].steps[1].error_from, "sim:hopper of sim.json");
  const std::string text = prediction_lines(found);
  EXPECT_TRUE(prints(text, "2e-07")) << text;
  EXPECT_FALSE(prints(text, "9e-09")) << text;
  EXPECT_TRUE(prints(text, "output NMSE: sim:hopper of sim.json: computed by a simulator")) << text;
  EXPECT_TRUE(prints(text, "halfmark run mlp/h64 error --policy fp16 --device sim:ampere -o sim-ampere.json")) << text;
  // The worst of several, and NaN is worst.
  Record nan = error_record("sim:hopper", "fp16", std::nan(""));
  nan.axes = {{"eval", "half"}}, nan.id += "/eval=half";
  simulated.report.records.insert(simulated.report.records.begin(), nan);
  found = predicted({base, simulated}, {"h100"});
  EXPECT_TRUE(std::isnan(found.groups[0].steps[0].error.value_or(0)));
  // Another network of this name, and a failed case, have no error of this one.
  for (Record& record : simulated.report.records) record.definition = "90ab";
  NamedReport other = base;
  for (Record& record : other.report.records) record.definition = "3f1c";
  EXPECT_FALSE(predicted({other, simulated}, {"h100"}).groups[0].steps[0].error);
  for (Record& record : simulated.report.records) record.status = Status::failed;
  EXPECT_FALSE(predicted({base, simulated}, {"h100"}).groups[0].steps[0].error);
}

TEST(Prediction, IsRefusedForAGpuThatWasMeasured) {
  NamedReport measured = report_with({step_record("fp16", "f16,f16->f16")}, "gpu.json");
  measured.report.records[0].device = "cuda:0";
  measured.report.environment = {{"devices", {{"cuda:0", {{"name", "NVIDIA A100-SXM4-80GB"}}}}}};
  Predictions found = predicted({measured}, {"a100", "a100-40gb", "h100"});
  ASSERT_EQ(found.measured.size(), 1u);
  EXPECT_EQ(found.measured[0], "a100: measured on cuda:0 in gpu.json");
  EXPECT_TRUE(prints(prediction_lines(found), "not predicted: a100: measured on cuda:0 in gpu.json\n"));
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].steps.size(), 2u) << "the others are predicted from it";
  for (const PredictedStep& step : found.groups[0].steps) EXPECT_NE(step.gpu->name, "a100");
  // Present and not measured, another board, or a software GPU of the tests.
  measured.report.records[0].device = "cpu";
  EXPECT_TRUE(predicted({measured}, {"a100"}).measured.empty());
  measured.report.records[0].device = "cuda:0";
  measured.report.environment["devices"]["cuda:0"]["name"] = "NVIDIA A100 80GB PCIe";
  EXPECT_TRUE(predicted({measured}, {"a100"}).measured.empty());
  measured.report.environment["devices"]["cuda:0"]["name"] = "NVIDIA A100-SXM4-80GB";
  measured.report.records[0].numerics = "software GPU: PTX interpreted on the CPU";
  found = predicted({measured}, {"a100"});
  EXPECT_TRUE(found.measured.empty());
  EXPECT_TRUE(found.groups.empty()) << "it counts no work of a GPU";
}

// Every row of a predicted table is marked, and no measured number is in one.
TEST(Prediction, IsMarkedInEveryRowAndMixedWithNoMeasurement) {
  const std::vector<NamedReport> reports = {
      report_with({step_record("fp32", "f32,f32->f32"), step_record("fp16", "f16,f16->f16")})};
  const std::string before = compare(reports, {.width = 300});
  const std::string text = prediction_lines(predicted(reports, {"a100", "h100"}));
  EXPECT_EQ(compare(reports, {.width = 300}), before);
  EXPECT_FALSE(prints(before, "a100 predicted"));
  for (const char* measured : {"5 s", "1.37x"}) {
    EXPECT_TRUE(prints(before, measured)) << before;
    EXPECT_FALSE(prints(text, measured)) << text;
  }
  EXPECT_TRUE(prints(text, "predicted, not measured\n")) << text;
  const std::string table = text.substr(0, text.find("what the predictions rest on"));
  std::istringstream lines(table);
  int rows = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("a100 ") || line.starts_with("h100 ")) {
      EXPECT_TRUE(line.starts_with("a100 predicted  ") || line.starts_with("h100 predicted  ")) << line;
      ++rows;
    }
  EXPECT_EQ(rows, 4);
  EXPECT_TRUE(prints(text, "6.41 ms")) << text;
  EXPECT_TRUE(prints(text, "16.00x") || prints(text, "16x")) << text;
}

TEST(Prediction, SaysWhatItRestsOn) {
  const std::string text =
      prediction_lines(predicted({report_with({step_record("fp16", "f16,f16->f16")})}, {"h100"}), 3000);
  EXPECT_TRUE(prints(text, "FLOP and bytes: of the records mlp/h64/cpu/POLICY/throughput in base.json\n")) << text;
  EXPECT_TRUE(
      prints(text,
             "h100: H100 SXM 80 GB. f16 989.5 TFLOP/s (FP16 Tensor Core; half of 1979 with sparsity), memory 3350 "
             "GB/s (GPU Memory Bandwidth): NVIDIA H100 Tensor Core GPU, data sheet, column H100 SXM;"))
      << text;
  EXPECT_TRUE(prints(text, "Launches of kernels are not in it")) << text;
  EXPECT_TRUE(prints(text, "Caches are not in it")) << text;
  EXPECT_FALSE(prints(text, "tf32 494.5")) << "only the peaks that were used";
  Record reordered = step_record("fp16", "f16,f16->f16");
  reordered.kernels.push_back({"reorder", "evaluation", "f16->f16", "onednn", "real", 1, {}});
  const char* const layouts = "base.json; the bytes include changes of layout (reorder) on that device";
  EXPECT_FALSE(prints(prediction_lines(predicted({report_with({reordered})}, {"h100"})), layouts));
  reordered.kernels.back().phase = "forward";
  EXPECT_TRUE(prints(prediction_lines(predicted({report_with({reordered})}, {"h100"})), layouts));
}

TEST(Prediction, FitsTheTerminal) {
  std::vector<NamedReport> reports = {
      report_with({step_record("fp32", "f32,f32->f32"), step_record("amp-fp16", "f16,f16->f16"),
                   step_record("fp8-delayed", "e4m3,e4m3->bf16"), error_record("sim:blackwell-rtx", "fp32", 1e-13)})};
  for (Record& record : reports[0].report.records) {
    record.subject = "convnet/b16_c3_s16_w16";
    record.id = fmt::format("{}/{}/{}/{}", record.subject, record.device, record.policy, record.harness);
  }
  for (const size_t width : {60u, 80u}) {
    const std::string text = prediction_lines(predicted(reports, {"*", "rtx2080ti", "a100-40gb", "rtx5090"}), width);
    EXPECT_TRUE(prints(text, "rtx5090"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

}  // namespace
}  // namespace halfmark::reports
