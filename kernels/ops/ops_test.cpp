// Every row of every device of this build is tested because it is listed. Each row runs on every case that it does not
// refuse, with guard bytes around every tensor, and is compared with plain fp64 loops. Nothing is registered by hand; a
// row that runs no case fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/cases/cases.h"
#include "kernels/ops/cases/row_checks.h"

namespace halfmark::kernels {
namespace {

// Opened once and shared by the tests of one device.
Device& device_named(const std::string& name) {
  static auto* devices = new std::map<std::string, std::shared_ptr<Device>>;
  auto& device = (*devices)[name];
  if (!device) device = open_device(name);
  return *device;
}

struct RowTest {
  std::string device, operation, row;
  size_t number;
  void (*run)(const RowTest&);
};

void expect_no_findings(const ops_cases::Findings& row) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < row.findings().size() && i < kShown; ++i) ADD_FAILURE() << row.findings()[i];
  if (row.findings().size() > kShown) ADD_FAILURE() << "and " << row.findings().size() - kShown << " more";
  std::string said;
  for (const std::string& reason : row.refusals()) said += "\n  " + reason;
  EXPECT_GT(row.taken(), 0) << "the row supported no case, so it was not tested; it said" << said;
}

bool is_lost_trial(const std::string& reason) { return reason.starts_with("has no engine that passes"); }

// The stand-ins of libraries compute what they are told to: there a call that fails, and a result that differs from that
// of another row, are mistakes of the row.
void expect_no_failures(const ops_cases::Findings& row) {
  for (const std::string& reason : row.refusals())
    EXPECT_FALSE(reason.starts_with("failed") || is_lost_trial(reason)) << reason;
}

template <Operation Op>
void try_row(const RowTest& test) {
  Device& device = device_named(test.device);
  ops_cases::RowUnderTest<Op> row(device, device.kernels().of<Op>()[test.number]);
  // Tensor cores, including simulated ones, truncate operands beyond tf32; these rows round as Math says.
  const bool reference = test.row == "reference";
  const bool rounds_as_stated =
      test.row == "upcast" || test.row.starts_with("after-product") || test.row.starts_with("after-convolution");
  const bool strict = reference || (test.device == "cpu" && rounds_as_stated);
  row.run_all(ops_cases::tested_axes(), strict);
  // The reference rows of all host devices are the same code.
  if (!reference || test.device == "cpu") row.run_all(ops_cases::long_axes(), strict);
  // What a library of a GPU computes is up to it. A row that it does not serve well enough runs nothing, and says why.
  const auto lost = std::ranges::find_if(row.refusals(), is_lost_trial);
  if (device.numerics().empty() && row.taken() == 0 && lost != row.refusals().end()) GTEST_SKIP() << *lost;
  expect_no_findings(row);
  if (!device.numerics().empty()) expect_no_failures(row);
}

// The devices whose rows this program tests: all, or those whose names begin with this text.
#ifndef HALFMARK_ROWS_OF
#define HALFMARK_ROWS_OF ""
#endif

void add_row(std::vector<RowTest>& tests, const std::string& device, std::string_view operation, std::string_view row,
             size_t number, void (*run)(const RowTest&)) {
#if HALFMARK_SANITIZED
  if (row == "reference" && device != "cpu") return;  // the same code, and slow
#endif
  tests.push_back({device, std::string(operation), std::string(row), number, run});
}

std::vector<RowTest> every_row() {
  std::vector<RowTest> tests;
  for (const DeviceRow& row : known_devices()) {
    if (!row.absent.empty() || !row.name.starts_with(HALFMARK_ROWS_OF)) continue;
    device_named(row.name).kernels().each([&]<class Op>(const KernelList<Op>& list) {
      for (size_t i = 0; i < list.size(); ++i) add_row(tests, row.name, Op::name, list[i].name, i, try_row<Op>);
    });
  }
  return tests;
}

void PrintTo(const RowTest& test, std::ostream* out) {
  *out << test.device << " " << test.operation << " " << test.row;
}

class EveryRow : public testing::TestWithParam<RowTest> {};

TEST_P(EveryRow, AgreesWithFp64) { GetParam().run(GetParam()); }

std::string readable(const testing::TestParamInfo<RowTest>& info) {
  std::string name = info.param.device + "_" + info.param.operation + "_" + info.param.row;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryRow, testing::ValuesIn(every_row()), readable);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryRow);  // no device has such a name: Ops.HasDevices says so

TEST(Ops, HasDevices) {
  if (every_row().empty()) GTEST_SKIP() << "no device here has a name that begins with " HALFMARK_ROWS_OF;
}

void expect_rows(const std::string& device, std::string_view operation, const std::vector<std::string_view>& names) {
  // A device without matrix instructions has no such rows; block scales exist from Blackwell on.
  if (operation != DotProducts::name) {
    EXPECT_FALSE(names.empty()) << device << " has no row for " << operation;
  }
  std::set<std::string_view> seen;
  for (const std::string_view name : names)
    EXPECT_TRUE(seen.insert(name).second) << device << " " << operation << " " << name << " twice";
}

TEST(Ops, EveryDeviceHasARowForEveryOperation) {
  for (const DeviceRow& row : known_devices()) {
    if (!row.absent.empty()) continue;
    device_named(row.name).kernels().each([&]<class Op>(const KernelList<Op>& list) {
      std::vector<std::string_view> names;
      for (const Kernel<Op>& kernel : list) names.push_back(kernel.name);
      expect_rows(row.name, Op::name, names);
    });
  }
}

TEST(Ops, ARunIsLoggedWithItsRowAndTheRefusalsBeforeIt) {
  Device& device = device_named("sim:hopper");
  const Tensor a = Tensor::zeros(device, {4, 8}, DType::f32), b = Tensor::zeros(device, {8, 4}, DType::f32);
  Tensor out(device, {4, 4}, DType::f32);
  KernelLog log;
  {
    const PhaseScope phase("forward");
    run(Matmul{.a = a, .b = b, .out = out});
    run(Matmul{.a = a, .b = b, .out = out});
  }
  const std::vector<LoggedKernel> entries = log.entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].row, "reference");
  EXPECT_EQ(entries[0].phase, "forward");
  EXPECT_EQ(entries[0].dtypes, "f32,f32->f32");
  EXPECT_EQ(entries[0].calls, 2u);
  EXPECT_EQ(entries[0].read, 2u * (4 * 8 + 8 * 4) * 4);
  EXPECT_EQ(entries[0].written, 2u * 4 * 4 * 4);
  ASSERT_GE(entries[0].refusals.size(), 1u);
  EXPECT_TRUE(entries[0].refusals[0].starts_with(
      "tensor-core: hopper has no instruction for fp32 times fp32 summed in fp32; it has "))
      << entries[0].refusals[0];
  EXPECT_TRUE(log.any_emulated());
}

// Parameters of 8 fp32 numbers with velocity and a copy in bf16: a step reads parameter, gradient and velocity, and
// writes parameter, velocity and copy. A product that is added to its output reads it.
TEST(Ops, ATensorThatIsUpdatedInPlaceIsReadAndWritten) {
  Device& device = device_named("cpu");
  const auto zeros = [&](DType dtype) { return Tensor::zeros(device, {8}, dtype); };
  std::vector<UpdatedTensors> tensors(1);
  tensors[0] = {.parameter = zeros(DType::f32),
                .gradient = zeros(DType::f32),
                .first = zeros(DType::f32),
                .second = {},
                .compensation = {},
                .low = zeros(DType::bf16)};
  const Tensor a = Tensor::zeros(device, {4, 2}, DType::f32), b = Tensor::zeros(device, {2, 4}, DType::f32);
  Tensor out = Tensor::zeros(device, {4, 4}, DType::f32);
  KernelLog log;
  run(SgdStep{.tensors = tensors, .momentum = 0.5});
  run(Matmul{.a = a, .b = b, .out = out, .beta = 1});
  const std::vector<LoggedKernel> entries = log.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].read, 3u * 8 * 4);
  EXPECT_EQ(entries[0].written, 2u * 8 * 4 + 8 * 2);
  EXPECT_EQ(entries[1].read, (8u + 8 + 16) * 4);
  EXPECT_EQ(entries[1].written, 16u * 4);
}

// Every element of two tensors of 40,000 is to become 1 - 3/8 of a last place, which each rounds by a number of its own.
TEST(Ops, EveryElementOfAStepIsRoundedByItsOwnNoise) {
  constexpr int64_t kCount = 40'000;
  for (const DeviceRow& device_row : known_devices()) {
    if (!device_row.absent.empty() || !device_row.name.starts_with(HALFMARK_ROWS_OF)) continue;
    Device& device = device_named(device_row.name);
    for (const Kernel<SgdStep>& kernel : device.kernels().of<SgdStep>()) {
      if (kernel.name == "reference" && device_row.name != "cpu") continue;  // the same code
      for (const DType dtype : {DType::f16, DType::bf16}) {
        const double place = format_of(dtype).unit_roundoff();  // of numbers from 1/2 to 1
        std::vector<UpdatedTensors> tensors(2);
        for (UpdatedTensors& t : tensors) {
          t.parameter = Tensor::from(device, {kCount}, dtype, std::vector<double>(kCount, 1));
          t.gradient = Tensor::from(device, {kCount}, dtype, std::vector<double>(kCount, 1));
        }
        const SgdStep op{.tensors = tensors, .rate = 0.375 * place, .noise = 7, .storage = Storage::stochastic};
        if (kernel.refuses && kernel.refuses(device, op)) continue;
        run_with(kernel, op);
        device.synchronize();
        const std::vector<double> first = tensors[0].parameter.values(), second = tensors[1].parameter.values();
        double down = 0, as_in_second = 0, as_32768_before = 0;
        for (size_t i = 0; i < first.size(); ++i) {
          ASSERT_TRUE(first[i] == 1 || first[i] == 1 - place) << first[i];
          down += first[i] != 1, as_in_second += first[i] == second[i];
          as_32768_before += i >= 32768 && first[i] == first[i - 32768];
        }
        const std::string name = device_row.name + " " + std::string(kernel.name);
        const auto six_deviations = [](double count, double share) {
          return 6 * std::sqrt(count * share * (1 - share));
        };
        // Two independent numbers are equal with 0.375^2 + 0.625^2.
        const double equal = 0.375 * 0.375 + 0.625 * 0.625, later = kCount - 32768.0;
        EXPECT_NEAR(down, kCount * 0.375, six_deviations(kCount, 0.375)) << name;
        EXPECT_NEAR(as_in_second, kCount * equal, six_deviations(kCount, equal))
            << name << ": tensors share their noise";
        EXPECT_NEAR(as_32768_before, later * equal, six_deviations(later, equal)) << name << ": the noise repeats";
      }
    }
  }
}

TEST(Ops, WrongShapesAndTwoDevicesAreErrors) {
  Device& cpu = device_named("cpu");
  Device& sim = device_named("sim:hopper");
  const Tensor a = Tensor::zeros(cpu, {2, 3}, DType::f32), b = Tensor::zeros(cpu, {2, 3}, DType::f32),
               far = Tensor::zeros(sim, {3, 2}, DType::f32);
  Tensor out(cpu, {2, 2}, DType::f32);
  EXPECT_THROW(run(Matmul{.a = a, .b = b, .out = out}), Error);
  EXPECT_THROW(run(Matmul{.a = a, .b = far, .out = out}), Error);

  // 8 entries of scale for rows of 4: the third row would use the first four of them a second time.
  const Tensor x = Tensor::zeros(cpu, {3, 4}, DType::f32), scale = Tensor::zeros(cpu, {8}, DType::f32), none;
  Tensor same(cpu, {3, 4}, DType::f32), sums(cpu, {8}, DType::f32), mean, inverse(cpu, {3}, DType::f32);
  EXPECT_THROW(run(NormalizeRows{.x = x,
                                 .scale = scale,
                                 .shift = none,
                                 .out = same,
                                 .mean = mean,
                                 .inverse = inverse,
                                 .width = 4,
                                 .centred = false}),
               Error);
  EXPECT_THROW(run(NormalizeRowsBackward{.x = x,
                                         .dy = x,
                                         .scale = scale,
                                         .mean = none,
                                         .inverse = inverse,
                                         .dx = same,
                                         .dscale = sums,
                                         .dshift = mean,
                                         .width = 4,
                                         .centred = false}),
               Error);
}

TEST(Ops, EveryPartOfAWindowHasTheSameLimit) {
  Device& cpu = device_named("cpu");
  const Tensor x = Tensor::zeros(cpu, {1, 1, 1, 1}, DType::f32), w = Tensor::zeros(cpu, {1, 1, 1, 1}, DType::f32);
  Tensor out(cpu, {1, 1, 1, 1}, DType::f32);
  for (int Window::*part : {&Window::stride_h, &Window::stride_w, &Window::pad_h, &Window::pad_w, &Window::dilation_h,
                            &Window::dilation_w}) {
    Window window;
    window.*part = 32768;
    try {
      Conv2d{.x = x, .w = w, .out = out, .window = window}.check();
      FAIL() << "32768 was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("must be below 32768, not 32768"), std::string::npos) << error.what();
    }
  }
}

TEST(Ops, NobodyTakesItSaysEveryReason) {
  Device& cpu = device_named("cpu");
  const Tensor a = Tensor::zeros(cpu, {2, 2}, DType::f64), b = Tensor::zeros(cpu, {2, 2}, DType::f64);
  Tensor out(cpu, {2, 2}, DType::f64);
  try {
    run(Matmul{.a = a, .b = b, .out = out, .math = {.multiply = kFp64}});
    FAIL() << "fp64 products cannot be summed in fp32 with one rounding";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("reference: products of fp64 need an fp64 accumulator"), std::string::npos)
        << error.what();
  }
}

TEST(Ops, WritingAnOutputRaisesItsVersion) {
  Device& cpu = device_named("cpu");
  const Tensor x = Tensor::zeros(cpu, {4}, DType::f32);
  Tensor out(cpu, {4}, DType::f32);
  const uint64_t before = out.version();
  run(Relu{.x = x, .out = out});
  EXPECT_GT(out.version(), before);
}

}  // namespace
}  // namespace halfmark::kernels
