// Tests of the probe on devices that do what libraries do around a matrix instruction: operands that are rounded first, parts of
// K, c that is added afterwards, b transposed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/probe/known_answers.h"
#include "accuracy/probe/probe.h"
#include "bench/namespaces.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/devices.h"

namespace halfmark::bench {
namespace {

std::string found_value(const probe::Report& report, std::string_view parameter) {
  const probe::Finding* finding = report.find(parameter);
  return finding ? finding->value : std::string(probe::kNotObservable);
}

// A device whose products are those of a simulated instruction, with the steps that libraries take around it.
struct Around {
  probe::DotChoice choice;
  bool tf32 = false;      // operands are rounded to nearest even to tf32 first
  int64_t part = 0;       // so many products are added by the instruction, their sums in fp32; 0: all
  Format sum = kFp32;     // what c is added to
  bool c_in_sum = false;  // c is added in `sum`, else in fp32
  bool real_only_with_transposed_b = false;  // else plain loops run
};

class LibraryDevice : public HostDevice {
 public:
  LibraryDevice(const std::string& simulated, Around around) : around_(around), simulated_(open_device(simulated)) {
    kernels_.of<Matmul>().push_back({"library", Speed::real,
                                     [](const Device& device, const Matmul& op) -> Refusal {
                                       const Around& own = static_cast<const LibraryDevice&>(device).around_;
                                       if (own.real_only_with_transposed_b && !op.transpose_b)
                                         return "multiplies only with k contiguous in a and in b";
                                       return {};
                                     },
                                     [](Device& device, const Matmul& op) { product(device, op, true); }});
    kernels_.of<Matmul>().push_back({"loops", Speed::emulated,
                                     [](const Device&, const Matmul&) -> Refusal { return {}; },
                                     [](Device& device, const Matmul& op) { product(device, op, false); }});
  }
  std::string name() const override { return "cpu"; }
  std::vector<std::pair<std::string, std::string>> describe() const override { return {}; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  static double added(const Format& format, double x, double y) { return round_to(format, add_to_odd(x, y)); }

  static void product(Device& device, const Matmul& op, bool in_blocks) {
    const auto& own = static_cast<const LibraryDevice&>(device);
    const int64_t m = op.out.shape()[0], n = op.out.shape()[1], depth = op.a.shape()[1];
    const std::vector<double> a = op.a.values(), b = op.b.values(), c = op.out.values();
    const auto operand = [&](double x) { return own.around_.tf32 ? round_to(kTf32, x) : x; };
    const auto at = [](int64_t index) { return static_cast<size_t>(index); };
    std::vector<double> sums(at(m * n));
    const int64_t part = in_blocks && own.around_.part ? own.around_.part : depth;
    for (int64_t first = 0; first < depth; first += part) {
      std::vector<probe::Question> questions;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          probe::Question question;
          for (int64_t k = first; k < std::min(first + part, depth); ++k) {
            question.a.push_back(operand(a[at(i * depth + k)]));
            question.b.push_back(operand(b[at(op.transpose_b ? j * depth + k : k * n + j)]));
          }
          questions.push_back(std::move(question));
        }
      std::vector<double> values(questions.size());
      if (in_blocks) {
        const probe::BlackBox box = probe::dot_box(*own.simulated_, own.around_.choice, questions[0].a.size());
        const std::vector<uint64_t> codes = box.answers(questions);
        for (size_t i = 0; i < codes.size(); ++i) values[i] = decode(box.d_type, codes[i]);
      } else {
        for (size_t i = 0; i < values.size(); ++i)
          for (size_t k = 0; k < questions[i].a.size(); ++k)
            values[i] = added(kFp32, values[i], questions[i].a[k] * questions[i].b[k]);
      }
      for (size_t i = 0; i < sums.size(); ++i) sums[i] = first ? added(kFp32, sums[i], values[i]) : values[i];
    }
    const Format& last = own.around_.c_in_sum ? own.around_.sum : kFp32;
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = added(last, round_to(own.around_.sum, sums[i]), op.beta == 0 ? 0 : c[i]);
    Tensor out = op.out;
    out.set_codes(Tensor::from(device, out.shape(), out.dtype(), sums).codes());
  }

  Around around_;
  std::shared_ptr<Device> simulated_;
  KernelTable kernels_;
};

constexpr probe::DotChoice kBf16Dots{MatrixInstruction::wgmma_k16, DType::bf16, DType::bf16, DType::f32, DType::f32},
    kF16Dots{MatrixInstruction::wgmma_k16, DType::f16, DType::f16, DType::f32, DType::f32},
    kTf32Dots{MatrixInstruction::wgmma_k8, DType::f32, DType::f32, DType::f32, DType::f32},
    kE4m3Dots{MatrixInstruction::wgmma_k32, DType::e4m3, DType::e4m3, DType::f32, DType::f32};

probe::Report report_of(Device& device, std::string_view types, probe::MatmulShape shape) {
  probe::Options options;
  options.replays = 512;
  probe::RecordingBox recorder(
      probe::matmul_box(device, probe::in_form_of_real_speed(device, probe::matmul_types_named(types), shape), shape));
  return probe::examine(recorder, options);
}

bool names(const std::vector<std::string>& rows, std::string_view row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

TEST(ProbeRowsWithSteps, CThatIsAddedAfterwardsIsApartFromTheSumsOfARow) {
  LibraryDevice device("sim:hopper", {kBf16Dots});
  const probe::Report report = report_of(device, "bf16>f32", {8, 8, 32});
  EXPECT_EQ(found_value(report, "c"), "added last");
  EXPECT_EQ(report.replayed, report.replays);
  EXPECT_TRUE(report.matches.empty());
  ASSERT_EQ(report.around.size(), 1u);
  EXPECT_EQ(report.around[0].steps, "c is added afterwards, in fp32 to nearest even");
  EXPECT_TRUE(names(report.around[0].rows, "sim:hopper wgmma.k16 bf16>f32"));
  EXPECT_TRUE(names(report.around[0].rows, "sim:hopper mma.m16n8k16 bf16>f32"));
  EXPECT_FALSE(names(report.around[0].rows, "sim:ampere mma.m16n8k16 bf16>f32"));
  EXPECT_GT(report.around[0].questions, 512u);
}

TEST(ProbeRowsWithSteps, TheFormatOfASumIsAStepToo) {
  // Rounded to the result before c is added, as some libraries do, and only after.
  LibraryDevice before("sim:hopper", {.choice = kBf16Dots, .sum = kBf16, .c_in_sum = true});
  const probe::Report early = report_of(before, "bf16>bf16", {8, 8, 32});
  ASSERT_EQ(early.around.size(), 1u);
  EXPECT_EQ(early.around[0].steps, "the sum is rounded to bf16; c is added afterwards, in bf16 to nearest even");
  EXPECT_TRUE(names(early.around[0].rows, "sim:hopper wgmma.k16 bf16>f32"));
  LibraryDevice half("sim:hopper",
                     {.choice = {MatrixInstruction::wgmma_k16, DType::f16, DType::f16, DType::f16, DType::f16},
                      .sum = kFp16,
                      .c_in_sum = true});
  const probe::Report sixteen = report_of(half, "f16>f16", {8, 8, 32});
  ASSERT_EQ(sixteen.around.size(), 1u);
  EXPECT_EQ(sixteen.around[0].steps, "c is added afterwards, in fp16 to nearest even");
  EXPECT_TRUE(names(sixteen.around[0].rows, "sim:hopper wgmma.k16 f16>f16"));
  LibraryDevice after("sim:hopper", {kF16Dots});
  const probe::Report late = report_of(after, "f16>f16+wide", {8, 8, 32});
  ASSERT_EQ(late.around.size(), 1u);
  EXPECT_EQ(late.around[0].steps, "c is added afterwards, in fp32 to nearest even; the result is rounded to fp16");
  EXPECT_TRUE(names(late.around[0].rows, "sim:hopper wgmma.k16 f16>f32"));
  EXPECT_FALSE(names(late.around[0].rows, "sim:hopper wgmma.k16 f16>f16"));
}

TEST(ProbeRowsWithSteps, OperandsThatAreRoundedFirstAreRoundedForTheRowsToo) {
  LibraryDevice device("sim:hopper", {.choice = kTf32Dots, .tf32 = true});
  const probe::Report report = report_of(device, "tf32>f32", {8, 8, 32});
  EXPECT_EQ(found_value(report, "operands"), "rounded to nearest even to tf32");
  EXPECT_TRUE(report.matches.empty());
  ASSERT_EQ(report.around.size(), 1u);
  EXPECT_EQ(report.around[0].steps,
            "operands are first rounded to nearest even to tf32; c is added afterwards, in fp32 to nearest even");
  EXPECT_TRUE(names(report.around[0].rows, "sim:hopper wgmma.k8 f32>f32"));
  EXPECT_FALSE(names(report.around[0].rows, "sim:ampere mma.m16n8k8 f32>f32"));
}

TEST(ProbeRowsWithSteps, ARowThatKeepsOneBitMoreDoesNotMatch) {
  LibraryDevice device("sim:ampere",
                       {.choice = {MatrixInstruction::mma_m16n8k16, DType::bf16, DType::bf16, DType::f32, DType::f32}});
  const probe::Report report = report_of(device, "bf16>f32", {8, 8, 32});
  ASSERT_EQ(report.around.size(), 1u);
  EXPECT_FALSE(names(report.around[0].rows, "sim:hopper mma.m16n8k8 bf16>f32")) << "the same blocks of 8";
  EXPECT_TRUE(names(report.around[0].rows, "sim:ampere mma.m16n8k16 bf16>f32"));
}

// What a library does that promotes sums of few bits to fp32 after some products.
TEST(SlowProbeRows, FindPartsOfKInFp32) {
  LibraryDevice device("sim:hopper", {.choice = kE4m3Dots, .part = 128, .real_only_with_transposed_b = true});
  const probe::Report report = report_of(device, "e4m3>f32", {4, 4, 512});
  EXPECT_EQ(found_value(report, "products per block"), "32");
  EXPECT_EQ(found_value(report, "slices of K"), "4");
  EXPECT_EQ(found_value(report, "bits of sums"), "13");
  EXPECT_EQ(found_value(report, "rounding of sums"), "toward_zero");
  EXPECT_EQ(found_value(report, "bits of sums of sums"), "23");
  EXPECT_EQ(found_value(report, "rounding of sums of sums"), "near_even");
  EXPECT_EQ(report.replayed, report.replays);
  ASSERT_EQ(report.around.size(), 1u);
  EXPECT_EQ(report.around[0].steps,
            "4 parts of K, of 128 products each, are added in fp32 to nearest even; c is added afterwards, in fp32 to "
            "nearest even");
  EXPECT_TRUE(names(report.around[0].rows, "sim:hopper wgmma.k32 e4m3>f32"));
}

TEST(SlowProbeRows, AskWithBTransposedWhereOnlyThenARowOfRealSpeedRuns) {
  const std::string types = "e4m3>f32";
  for (const bool only : {false, true}) {
    LibraryDevice device("sim:hopper", {.choice = kE4m3Dots, .real_only_with_transposed_b = only});
    const probe::Report report = report_of(device, types, {8, 8, 64});
    EXPECT_EQ(report.transpose_b, only);
    EXPECT_EQ(report.way, only ? "matmul 8x8x64, b transposed" : "matmul 8x8x64");
    EXPECT_EQ(found_value(report, "products per block"), "32") << "not of the loops";
    EXPECT_EQ(report.replayed, report.replays);

    probe::CheckOptions options;
    options.seconds = 0, options.types = {types}, options.shape = {16, 32, 64}, options.instructions = false;
    const probe::DeviceCheck check =
        probe::check_device(device, options, [](const probe::DeviceCheck&, const std::string&) { return true; });
    ASSERT_EQ(check.subjects.size(), 1u);
    EXPECT_EQ(check.subjects[0].name, only ? "matmul e4m3>f32 16x32x64, b transposed" : "matmul e4m3>f32 16x32x64");
    EXPECT_TRUE(check.subjects[0].expected.starts_with("the model that the probe found")) << check.subjects[0].expected;
    EXPECT_GT(check.subjects[0].results, 0u);
    EXPECT_EQ(check.subjects[0].wrong, 0u);
  }
  LibraryDevice device("sim:hopper", {.choice = kE4m3Dots, .real_only_with_transposed_b = true});
  const auto fingerprint = probe::fingerprint_of(device, types);
  ASSERT_TRUE(fingerprint);
  EXPECT_NE(fingerprint->find("products per block=32"), std::string::npos) << *fingerprint;
}

TEST(ProbeOfForms, ASimulatedDeviceIsAskedAsItIsAndTakesBTransposed) {
  const auto device = open_device("sim:hopper");
  for (const char* name : {"e4m3>f32+fast", "e4m3*e5m2>f32+fast", "e5m2*e4m3>f32+fast"}) {
    probe::MatmulTypes types = probe::matmul_types_named(name);
    EXPECT_FALSE(probe::in_form_of_real_speed(*device, types, {8, 8, 64}).transpose_b) << "no row has real speed";
    std::vector<std::string> hashes;
    for (const bool transpose : {false, true}) {
      types.transpose_b = transpose;
      probe::Options options;
      options.replays = 512, options.match = false;
      probe::RecordingBox recorder(probe::matmul_box(*device, types, {8, 8, 64}));
      const probe::Report report = probe::examine(recorder, options);
      EXPECT_EQ(report.replayed, report.replays) << name;
      hashes.push_back(report.hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]) << name;
  }
}

}  // namespace
}  // namespace halfmark::bench
