// The test frame for rows must itself detect faults. Each of these rows has one fault, which must be reported with
// operation, row, operand and place.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/cases/cases.h"
#include "kernels/ops/cases/row_checks.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels {
namespace {

Refusal takes_all(const Device&, const auto&) { return {}; }

// out = a + b computed correctly, for plain operands of one dtype.
void add_correctly(const Add& op) {
  op.out.materialize(Layout::plain);
  std::vector<double> values = op.a.values();
  const std::vector<double> b = op.b.values();
  for (size_t i = 0; i < values.size(); ++i) values[i] += b[i];
  op.out.set_values(values);
}

unsigned char* bytes_of(const Tensor& tensor) { return static_cast<unsigned char*>(const_cast<void*>(tensor.data())); }

// Everything except memory outside its operands.
ops_cases::Axes plain_axes(DType dtype) {
  ops_cases::Axes axes = ops_cases::tested_axes();
  axes.dtypes = {dtype};
  axes.forms = {{Layout::plain, Layout::any}};
  axes.elements = {{2, 16, 5, 3}};
  axes.matrices = {{9, 37}};
  axes.in_place = {false};
  axes.narrow_bias = {true};
  return axes;
}

template <class Op>
std::vector<std::string> findings_of(void (*run)(Device&, const Op&), const ops_cases::Axes& axes) {
  const std::shared_ptr<Device> device = open_device("cpu");
  const Kernel<Op> row{"planted", Speed::real, takes_all<Op>, run};
  ops_cases::RowUnderTest<Op> test(*device, row);
  test.run_all(axes, true);
  EXPECT_GT(test.taken(), 0);
  return test.findings();
}

// Every case must be reported, and the first finding must have this text.
void expect_found(void (*run)(Device&, const Add&), const ops_cases::Axes& axes, const std::string& words) {
  const std::vector<std::string> findings = findings_of(run, axes);
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings[0].find("add, row planted, "), std::string::npos) << findings[0];
  EXPECT_NE(findings[0].find(words), std::string::npos) << findings[0];
  EXPECT_GE(findings.size(), 2u) << "the matrix as well as the image";
}

// Each tensor and its sentinels are one allocation, so these rows write to memory that the process owns.
// AddressSanitizer sees the sentinels as poisoned and would abort the test.
#if HALFMARK_SANITIZED
#define HM_PLANTED(name) TEST(DISABLED_PlantedFault, name)
#else
#define HM_PLANTED(name) TEST(PlantedFault, name)
#endif

TEST(RowUnderTest, FindsNothingInACorrectRow) {
  for (const DType dtype : {DType::f32, DType::f16, DType::e4m3})
    EXPECT_EQ(findings_of<Add>([](Device&, const Add& op) { add_correctly(op); }, plain_axes(dtype)),
              std::vector<std::string>());
}

HM_PLANTED(OneElementAfterTheOutput) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        bytes_of(op.out)[op.out.bytes()] ^= 1;
      },
      plain_axes(DType::f32), "wrote outside operand out of 1920 bytes: 1 bytes from offset 1920");
}

HM_PLANTED(OneByteBeforeTheOutput) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        bytes_of(op.out)[-1] ^= 1;
      },
      plain_axes(DType::f16), "wrote outside operand out of 960 bytes: 1 bytes from offset -1");
}

HM_PLANTED(AnEightBitResultWrittenAsFp32) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        const std::vector<double> values = op.out.values();
        for (size_t i = 0; i < values.size(); ++i) {
          const auto value = static_cast<float>(values[i]);
          std::memcpy(bytes_of(op.out) + 4 * i, &value, 4);
        }
      },
      plain_axes(DType::e4m3), "wrote outside operand out of 480 bytes: 1440 bytes from offset 480");
}

HM_PLANTED(AVectorRoundedUpToSixteenBytes) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        const size_t rounded = (op.out.bytes() + 15) / 16 * 16 + 16;
        std::memset(bytes_of(op.out) + op.out.bytes(), 0, rounded - op.out.bytes());
      },
      plain_axes(DType::e4m3), "wrote outside operand out");
}

HM_PLANTED(AllBitsSetFarBehindTheOutput) {  // the code of a NaN, and a byte of the sentinels
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        std::memset(bytes_of(op.out) + op.out.bytes() + 1000, 0xff, 2);
      },
      plain_axes(DType::f16), "wrote outside operand out");
}

// Rows that read and write the same number of elements too many. Behind the output they write sentinels of the input,
// because relu and additions keep the payload of a NaN.
template <class T, int kVector>
void add_whole_vectors(Device&, const Add& op) {
  op.out.materialize(Layout::plain);
  const int64_t count = (op.out.elements() / kVector + 1) * kVector;
  for (int64_t i = 0; i < count; ++i) op.out.as<T>()[i] = op.a.as<T>()[i] + op.b.as<T>()[i];
}

template <class T, int kVector>
void relu_of_whole_vectors(Device&, const Relu& op) {
  op.out.materialize(Layout::plain);
  const int64_t count = (op.out.elements() / kVector + 1) * kVector;
  for (int64_t i = 0; i < count; ++i) op.out.as<T>()[i] = op.x.as<T>()[i] <= 0 ? T(0) : op.x.as<T>()[i];
}

void relu_on_codes_of_whole_vectors(Device&, const Relu& op) {
  op.out.materialize(Layout::plain);
  const int64_t count = (op.out.elements() / 32 + 1) * 32;
  const auto infinity = static_cast<int16_t>(format_of(op.x.dtype()).infinity_code());
  for (int64_t i = 0; i < count; ++i) op.out.as<int16_t>()[i] = formulas::relu_code(op.x.as<int16_t>()[i], infinity);
}

template <int kBefore, int kAfter>
void copy_too_much(Device&, const Reorder& op) {
  op.out.materialize(Layout::plain);
  std::memcpy(bytes_of(op.out) - kBefore, bytes_of(op.x) - kBefore, kBefore + op.x.bytes() + kAfter);
}

// Every case of the row must be reported.
template <class Op>
void expect_every_case_found(void (*run)(Device&, const Op&), DType dtype) {
  ops_cases::Axes axes = plain_axes(dtype);
  axes.elements.push_back({1, 5, 7, 3});
  axes.reorder_dtypes = {dtype}, axes.reorder_to = {Layout::plain};
  axes.special_values = false;
  const std::shared_ptr<Device> device = open_device("cpu");
  const Kernel<Op> row{"planted", Speed::real, takes_all<Op>, run};
  ops_cases::RowUnderTest<Op> test(*device, row);
  test.run_all(axes, true);
  EXPECT_GT(test.taken(), 1);
  EXPECT_EQ(test.findings().size(), static_cast<size_t>(test.taken()));
  for (const std::string& finding : test.findings())
    EXPECT_NE(finding.find("wrote outside operand out"), std::string::npos) << finding;
}

HM_PLANTED(SentinelsOfTheInputCopiedBehindTheOutput) {
  struct Plant {
    const char* what;
    void (*check)();
  };
  using enum DType;
  const Plant plants[] = {
      {"add in vectors of 16, f32", [] { expect_every_case_found<Add>(add_whole_vectors<float, 16>, f32); }},
      {"add in vectors of 8, f64", [] { expect_every_case_found<Add>(add_whole_vectors<double, 8>, f64); }},
      {"add of 1024 at a time", [] { expect_every_case_found<Add>(add_whole_vectors<float, 1024>, f32); }},
      {"relu in vectors of 16", [] { expect_every_case_found<Relu>(relu_of_whole_vectors<float, 16>, f32); }},
      {"relu on codes of f16", [] { expect_every_case_found<Relu>(relu_on_codes_of_whole_vectors, f16); }},
      {"relu on codes of bf16", [] { expect_every_case_found<Relu>(relu_on_codes_of_whole_vectors, bf16); }},
      {"64 bytes more, f32", [] { expect_every_case_found<Reorder>(copy_too_much<0, 64>, f32); }},
      {"64 bytes more, f16", [] { expect_every_case_found<Reorder>(copy_too_much<0, 64>, f16); }},
      {"64 bytes more, e4m3", [] { expect_every_case_found<Reorder>(copy_too_much<0, 64>, e4m3); }},
      {"1 byte more, f32", [] { expect_every_case_found<Reorder>(copy_too_much<0, 1>, f32); }},
      {"1 byte more, f16", [] { expect_every_case_found<Reorder>(copy_too_much<0, 1>, f16); }},
      {"1 byte more, e4m3", [] { expect_every_case_found<Reorder>(copy_too_much<0, 1>, e4m3); }},
      {"4096 bytes more, f32", [] { expect_every_case_found<Reorder>(copy_too_much<0, 4096>, f32); }},
      {"4096 bytes more, f16", [] { expect_every_case_found<Reorder>(copy_too_much<0, 4096>, f16); }},
      {"4096 bytes more, e4m3", [] { expect_every_case_found<Reorder>(copy_too_much<0, 4096>, e4m3); }},
      {"64 bytes before, f32", [] { expect_every_case_found<Reorder>(copy_too_much<64, 0>, f32); }},
      {"1 byte before, e5m2", [] { expect_every_case_found<Reorder>(copy_too_much<1, 0>, e5m2); }},
  };
  for (const Plant& plant : plants) {
    SCOPED_TRACE(plant.what);
    plant.check();
  }
}

HM_PLANTED(AWriteBehindAnInput) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        bytes_of(op.b)[op.b.bytes() + 3] ^= 1;
      },
      plain_axes(DType::f32), "wrote outside operand b of 1920 bytes: 1 bytes from offset 1923");
}

HM_PLANTED(AWriteBehindAScratchTensorThatIsGoneAgain) {
  expect_found(
      [](Device& device, const Add& op) {
        add_correctly(op);
        Tensor scratch(device, {7}, DType::f32);
        for (size_t i = 0; i < 32; ++i) bytes_of(scratch)[i] ^= 1;
      },
      plain_axes(DType::f32), "wrote outside a scratch tensor of 28 bytes: 4 bytes from offset 28");
}

HM_PLANTED(AReadBehindAnInput) {  // which then shows in the result
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        const auto* b = op.b.as<float>();
        op.out.as<float>()[0] += 0 * b[op.b.elements()];
      },
      plain_axes(DType::f32), "element 0 of [2, 16, 5, 3] f32 is nan, fp64 says ");
}

TEST(PlantedFault, AChangedInput) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        bytes_of(op.a)[17] ^= 0x80;
      },
      plain_axes(DType::f32), "changed its input a of 1920 bytes: 1 bytes from offset 17");
}

TEST(PlantedFault, TheLastElementUnwritten) {
  expect_found(
      [](Device&, const Add& op) {
        op.out.materialize(Layout::plain);
        const Tensor whole(op.out.device(), op.out.shape(), op.out.dtype());
        Tensor copy = whole;
        add_correctly({.a = op.a, .b = op.b, .out = copy});
        std::memcpy(bytes_of(op.out), whole.data(), op.out.bytes() - size_of(op.out.dtype()));
      },
      plain_axes(DType::f16), "element 479 of [2, 16, 5, 3] f16 is nan");
}

TEST(PlantedFault, TheOldResultAddedIn) {
  expect_found(
      [](Device&, const Add& op) {
        op.out.materialize(Layout::plain);
        std::vector<double> values = op.out.values();
        add_correctly(op);
        const std::vector<double> sums = op.out.values();
        for (size_t i = 0; i < values.size(); ++i) values[i] += sums[i];
        op.out.set_values(values);
      },
      plain_axes(DType::f32), "element 0 of [2, 16, 5, 3] f32 is nan");
}

TEST(PlantedFault, TwoRoundingsInsteadOfOne) {
  expect_found(
      [](Device&, const Add& op) {
        add_correctly(op);
        std::vector<double> values = op.out.values();
        for (double& value : values) value = round_to(kBf16, value);
        op.out.set_values(values);
      },
      plain_axes(DType::f32), "element ");
}

TEST(PlantedFault, WrongOnlyInPlace) {
  ops_cases::Axes axes = plain_axes(DType::f32);
  const auto run = [](Device&, const Add& op) {
    add_correctly(op);
    if (op.out.data() == op.a.data()) op.out.as<float>()[1] += 1;
  };
  EXPECT_EQ(findings_of<Add>(run, axes), std::vector<std::string>());
  axes.in_place = {true};
  expect_found(run, axes, "in place: element 1 of [2, 16, 5, 3] f32 is ");
}

TEST(PlantedFault, AnException) {
  expect_found([](Device&, const Add&) { throw Error("no kernel image"); }, plain_axes(DType::f32),
               "threw: no kernel image");
}

TEST(PlantedFault, ARefusalWithoutAReason) {
  const std::shared_ptr<Device> device = open_device("cpu");
  const Kernel<Add> row{"planted", Speed::real, [](const Device&, const Add&) -> Refusal { return ""; },
                        [](Device&, const Add&) {}};
  ops_cases::RowUnderTest<Add> test(*device, row);
  test.run_all(plain_axes(DType::f32), true);
  EXPECT_EQ(test.taken(), 0);
  ASSERT_FALSE(test.findings().empty());
  EXPECT_NE(test.findings()[0].find("a refusal must say why"), std::string::npos) << test.findings()[0];
}

// A NaN that relu hides is detected only because the cases contain NaNs.
TEST(PlantedFault, ANaNHiddenByRelu) {
  const auto findings = findings_of<Relu>(
      [](Device&, const Relu& op) {
        op.out.materialize(Layout::plain);
        std::vector<double> values = op.x.values();
        for (double& value : values) value = value > 0 ? value : 0;
        op.out.set_values(values);
      },
      plain_axes(DType::f32));
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings[0].find("fp64 says nan"), std::string::npos) << findings[0];
}

}  // namespace
}  // namespace halfmark::kernels
