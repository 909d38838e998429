// Tests of the probe on simulated tensor cores with known properties: those of the table, and random ones. A finding
// may be "not observable" but never wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/probe/probe.h"
#include "bench/namespaces.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/devices.h"
#include "kernels/sim/sim_device.h"
#include "kernels/tensor/random.h"

namespace halfmark::bench {
namespace {

std::string value_of(const probe::Report& report, std::string_view parameter) {
  const probe::Finding* finding = report.find(parameter);
  return finding ? finding->value : std::string(probe::kNotObservable);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("-0123456789") == std::string::npos;
}

// Expects every finding that is observable to agree with the tensor core. Counts these findings.
size_t expect_nothing_wrong(const probe::Report& report, const TensorCore& core, const std::string& name) {
  size_t known = 0;
  const auto expect = [&](std::string_view parameter, const std::string& truth) {
    const std::string value = value_of(report, parameter);
    if (value == probe::kNotObservable || value.starts_with("all that")) return;
    EXPECT_EQ(value, truth) << name << ": " << parameter << " (" << report.find(parameter)->evidence << ")";
    ++known;
  };
  const bool interleaved = core.summation == Summation::interleaved;
  const int depth = core.depth(), block = std::max(core.scaling.block, 1);  // one element of each block is used
  const int products = interleaved ? depth / 2 : std::min(core.block.products, depth) / block;
  expect("products per block", std::to_string(products));
  expect("c", interleaved ? "added between partial sums" : "in the first sum");
  expect("kept fraction bits", std::to_string(core.block.kept_fraction_bits));
  expect("alignment", "terms cut toward zero");
  expect("exponents of products", "of the factors, added");
  const BlockRounding rounding = core.block.rounding;
  expect("bits of sums", rounding == BlockRounding::truncate_fp32    ? "23"
                         : rounding == BlockRounding::truncate_e8m13 ? "13"
                                                                     : "10");
  expect("rounding of sums", rounding == BlockRounding::near_even_fp16 ? "near_even" : "toward_zero");
  const std::string floor = value_of(report, "zero floor");
  if (is_number(floor)) {
    EXPECT_EQ(floor, std::to_string(core.block.zero_exponent)) << name << ": " << report.find("zero floor")->evidence;
    ++known;
  } else if (floor.starts_with("none above ")) {
    EXPECT_LE(core.block.zero_exponent, std::stoi(floor.substr(11))) << name;
  }
  return known;
}

probe::Report report_of(Device& device, const probe::DotChoice& choice, size_t k, size_t replays, bool match) {
  probe::Options options;
  options.replays = replays, options.match = match;
  probe::RecordingBox recorder(probe::dot_box(device, choice, k));
  return probe::examine(recorder, options);
}

const TensorCore* row_of(const std::string& architecture, const probe::DotChoice& choice) {
  const auto format = [](DType dtype) { return dtype == DType::f32 ? kTf32 : format_of(dtype); };
  return find_core(
      tensor_cores(), architecture, choice.instruction,
      {format(choice.a), format(choice.b), format_of(choice.c), format_of(choice.d), {choice.scale, choice.block}});
}

TEST(SlowProbeRows, FindsEveryRowOfEverySimulatedDevice) {
  constexpr size_t kReplays = 256;
  for (const std::string& device_name : sim_device_names()) {
    const auto device = open_device(device_name);
    for (const probe::DotChoice& choice : probe::dot_choices(*device)) {
      if (choice.a != choice.b) continue;  // mixed fp8 uses the same row
      const std::string name = device_name + " " + choice.name();
      const TensorCore& core = *row_of(device_name.substr(4), choice);
      const probe::Report report = report_of(*device, choice, 2 * probe::least_depth(choice), kReplays, false);
      if (choice.block && choice.scale == DType::e4m3) {
        // With scales from 2^-9 to 2^8, a mask is at most 2^30 times a unit, but 35 bits are kept.
        EXPECT_FALSE(report.model) << name;
        continue;
      }
      ASSERT_TRUE(report.model) << name << ": " << report.find("summation tree")->evidence;
      EXPECT_EQ(report.replayed, report.replays) << name << ": " << report.fingerprint;
      if (core.summation == Summation::fma_chain) {
        EXPECT_EQ(value_of(report, "accumulator"), "fp64") << name;
        EXPECT_EQ(value_of(report, "products"), "added unrounded (fused multiply-add)") << name;
        continue;
      }
      expect_nothing_wrong(report, core, name);
      std::vector<const char*> found{"products per block", "c", "kept fraction bits", "bits of sums",
                                     "rounding of sums"};
      // A block of one scale has one usable product: two terms do not show how a third would be aligned.
      if (core.scaling.block != core.depth()) found.insert(found.end(), {"alignment", "exponents of products"});
      for (const char* parameter : found)
        EXPECT_NE(value_of(report, parameter), probe::kNotObservable) << name << ": " << parameter;
      // The zero floor for f16 results can be reached with f16 products.
      if (core.operands == Operands::bf16 || (core.operands == Operands::f16 && core.result == kFp16)) {
        EXPECT_EQ(value_of(report, "zero floor"), std::to_string(core.block.zero_exponent)) << name;
      }
    }
  }
}

TEST(ProbeRows, NamesAllRowsThatItCannotDistinguish) {
  const auto device = open_device("sim:ada");
  const probe::DotChoice choice{MatrixInstruction::mma_m16n8k16, DType::f16, DType::f16, DType::f32, DType::f32};
  const probe::Report report = report_of(*device, choice, 32, 512, true);
  const auto names = [&](const std::string& row) {
    return std::find(report.matches.begin(), report.matches.end(), row) != report.matches.end();
  };
  EXPECT_TRUE(names("sim:ada mma.m16n8k16 f16>f32"));
  EXPECT_TRUE(names("sim:ampere mma.m16n8k16 f16>f32"));
  EXPECT_TRUE(names("sim:turing mma.m16n8k8 f16>f32"));
  EXPECT_FALSE(names("sim:turing mma.m8n8k4 f16>f32"));
  EXPECT_FALSE(names("sim:volta mma.m8n8k4 f16>f32"));
  EXPECT_FALSE(names("sim:hopper mma.m16n8k16 f16>f32"));
  EXPECT_FALSE(names("sim:hopper mma.m16n8k8 f16>f32"));  // also blocks of 8, but keeps one more bit
}

TEST(ProbeRows, MatmulOnASimulatedDeviceMatchesItsUsualInstruction) {
  const auto device = open_device("sim:hopper");
  probe::Options options;
  options.replays = 256;
  probe::RecordingBox recorder(probe::matmul_box(*device, probe::matmul_types_named("f16>f16"), {8, 8, 32}));
  const probe::Report report = probe::examine(recorder, options);
  EXPECT_EQ(report.replayed, report.replays);
  EXPECT_TRUE(std::find(report.matches.begin(), report.matches.end(), "sim:hopper mma.m16n8k16 f16>f16") !=
              report.matches.end());
}

// What training runs: the instruction gives f32, and the matmul rounds that once more to the dtype of the result.
TEST(SlowProbeRows, AResultThatIsRoundedOnceMoreIsNamedSo) {
  const auto matches = [](const std::string& device_name, std::string_view types) {
    const auto device = open_device(device_name);
    probe::Options options;
    options.replays = 512;
    probe::RecordingBox recording(probe::matmul_box(*device, probe::matmul_types_named(types), {8, 8, 32}));
    return probe::examine(recording, options).matches;
  };
  const auto has = [](const std::vector<std::string>& rows, std::string_view row) {
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  for (const std::string name : {"sim:hopper", "sim:ampere"}) {
    const std::string other = name == "sim:hopper" ? "sim:ampere" : "sim:hopper";
    const auto bf16 = matches(name, "bf16>bf16"), f16 = matches(name, "f16>f16+wide"), fp16 = matches(name, "f16>f16");
    EXPECT_TRUE(has(bf16, name + " mma.m16n8k16 bf16>f32, then rounded to bf16"));
    EXPECT_FALSE(has(bf16, other + " mma.m16n8k16 bf16>f32, then rounded to bf16"));
    EXPECT_TRUE(has(f16, name + " mma.m16n8k16 f16>f32, then rounded to fp16"));
    EXPECT_FALSE(has(f16, name + " mma.m16n8k16 f16>f16")) << "sums in f16";
    EXPECT_TRUE(has(fp16, name + " mma.m16n8k16 f16>f16"));
    EXPECT_FALSE(has(fp16, name + " mma.m16n8k16 f16>f32, then rounded to fp16"));
  }
  EXPECT_TRUE(has(matches("sim:hopper", "f64>f64"), "sim:hopper mma.m8n8k4 f64>f64")) << "c is the first addend";
}

TEST(ProbeRows, ASplitOfKHidesNothingAndInventsNothing) {
  const auto device = open_device("sim:hopper");
  probe::Options options;
  options.replays = 256, options.match = false;
  probe::RecordingBox recorder(
      probe::matmul_box(*device, probe::matmul_types_named("f16>f32+split2:fp16"), {8, 8, 64}));
  const probe::Report report = probe::examine(recorder, options);
  EXPECT_EQ(value_of(report, "slices of K"), "2");
  EXPECT_EQ(value_of(report, "partial sums"), "rounded to fp16");
  EXPECT_EQ(value_of(report, "rounding of sums"), "toward_zero");
  EXPECT_EQ(value_of(report, "rounding of sums of sums"), "near_even");
  // fp16 partial sums end at 2^-24, which hides the zero floor and flushing.
  for (const char* parameter : {"zero floor", "subnormal results", "subnormal c"})
    EXPECT_EQ(value_of(report, parameter), probe::kNotObservable) << parameter;
  EXPECT_EQ(report.replayed, report.replays);
}

// A simulated device with one given tensor core.
struct OneRow {
  TensorCore core;
  Architecture architecture{"synthetic", "only in this test"};
  std::vector<TensorCore> rows;
  SimDevice device;
  explicit OneRow(TensorCore row) : core(row), rows{row}, device(architecture, rows) {}
};

DType operand_dtype(Operands operands, uint64_t which) {
  if (operands == Operands::f16) return DType::f16;
  if (operands == Operands::bf16) return DType::bf16;
  return which % 2 ? DType::e4m3 : DType::e5m2;
}

TEST(SlowProbeRows, IsNeverWrongForTwoHundredRandomRows) {
  const RandomKey key(2024);
  size_t known = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const RandomKey draw = key.child(i);
    constexpr int kProducts[] = {1, 2, 4, 8, 16, 32};
    constexpr Operands kOperands[] = {Operands::f16, Operands::bf16, Operands::fp8};
    TensorCore core{
        "synthetic", MatrixInstruction::mma_m16n8k32, kOperands[draw.below(0, 3)], kFp32, kFp32, Summation::blocks, {},
        ""};
    core.block.products = kProducts[draw.below(1, 6)];
    core.block.kept_fraction_bits = 8 + static_cast<int>(draw.below(2, 23));
    core.block.zero_exponent = draw.below(3, 4) == 0 ? kNoZeroExponent : -10 - static_cast<int>(draw.below(4, 130));
    switch (draw.below(5, core.operands == Operands::bf16 ? 2 : 3)) {
      case 0:
        core.block.rounding = BlockRounding::truncate_fp32;
        break;
      case 1:
        core.block.rounding = BlockRounding::truncate_e8m13;
        break;
      default:
        core.block.rounding = BlockRounding::near_even_fp16;
        core.addend = core.result = kFp16;
    }
    if (draw.below(6, 5) == 0) core.summation = Summation::interleaved;
    OneRow one(core);
    const DType operand = operand_dtype(core.operands, draw.below(7, 2));
    const DType sum = core.result == kFp16 ? DType::f16 : DType::f32;
    const probe::Report report = report_of(one.device, {core.instruction, operand, operand, sum, sum}, 64, 128, false);
    const std::string name = "row " + std::to_string(i) + ", " + std::string(name_of(operand)) + ", " + text_of(core) +
                             ", floor " + std::to_string(core.block.zero_exponent);
    known += expect_nothing_wrong(report, core, name);
    ASSERT_TRUE(report.model) << name << ": " << report.find("summation tree")->evidence;
    EXPECT_EQ(report.replayed, report.replays) << name << ": " << report.fingerprint;
  }
  EXPECT_GE(known, 1200u);  // of 1600 findings, eight per row; the others are not observable with the types of the row
}

TEST(ProbeRows, ARowThatKeepsOneBitLessMatchesNothing) {
  for (const int kept : {22, 26}) {
    TensorCore core =
        *find_core(tensor_cores(), "hopper", MatrixInstruction::mma_m16n8k16, {kFp16, kFp16, kFp32, kFp32});
    core.architecture = "synthetic";
    core.block.kept_fraction_bits = kept;
    OneRow one(core);
    const probe::Report report =
        report_of(one.device, {core.instruction, DType::f16, DType::f16, DType::f32, DType::f32}, 32, 512, true);
    EXPECT_TRUE(report.matches.empty());
    EXPECT_FALSE(report.near.empty());
    EXPECT_EQ(value_of(report, "kept fraction bits"), std::to_string(kept));
  }
}

// Adds each element from k = 0 upwards, except in the last column, which starts at the other end. Some libraries do
// this at the edges of their tiles.
class UnevenDevice : public HostDevice {
 public:
  UnevenDevice() {
    kernels_.of<Matmul>().push_back(
        {"uneven", Speed::real, [](const Device&, const Matmul&) -> Refusal { return {}; }, run});
  }
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  static void run(Device&, const Matmul& op) {
    const int64_t m = op.out.shape()[0], n = op.out.shape()[1], depth = op.a.shape()[1];
    const float *a = op.a.as<float>(), *b = op.b.as<float>();
    float* out = op.out.as<float>();
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float sum = op.beta == 0 ? 0 : out[i * n + j];
        for (int64_t step = 0; step < depth; ++step) {
          const int64_t k = j == n - 1 ? depth - 1 - step : step;
          sum = std::fma(a[i * depth + k], b[k * n + j], sum);
        }
        out[i * n + j] = sum;
      }
  }
  KernelTable kernels_;
};

TEST(ProbeOfElements, UsesOneElementIfElementsAddDifferently) {
  UnevenDevice device;
  const probe::BlackBox box = probe::matmul_box(device, probe::matmul_types_named("f32>f32"), {4, 5, 24});
  EXPECT_EQ(box.elements, "0,4");
  EXPECT_TRUE(box.way.ends_with("element 0,0")) << box.way;
  probe::RecordingBox recorder(box);
  probe::Options options;
  options.replays = 512, options.match = false;
  const probe::Report report = probe::examine(recorder, options);
  EXPECT_EQ(value_of(report, "elements"), "add differently");
  EXPECT_EQ(value_of(report, "order"), "k increasing");
  EXPECT_EQ(report.replayed, 512u);
  const probe::BlackBox narrow =
      probe::matmul_box(device, probe::matmul_types_named("f32>f32"), {4, 1, 24});  // the last column only
  EXPECT_EQ(narrow.elements, probe::kAlike);
}

}  // namespace
}  // namespace halfmark::bench
