// The model of the tensor cores against a second one, on inputs designed to distinguish models: every row of the table,
// every class of inputs, one to three instructions in a chain. HALFMARK_LONG=1 draws a hundred times as many.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sim/exact_machines_testing.h"
#include "kernels/sim/tensor_core_inputs_testing.h"

namespace halfmark::kernels::exact {
namespace {

std::string text_of(const Row& row) {
  std::ostringstream text;
  text << std::hex << "a";
  for (const uint64_t code : row.a) text << ' ' << code;
  text << " b";
  for (const uint64_t code : row.b) text << ' ' << code;
  text << " c " << row.c;
  if (!row.scale_a.empty()) text << " scales a";
  for (const uint8_t code : row.scale_a) text << ' ' << static_cast<int>(code);
  if (!row.scale_b.empty()) text << " scales b";
  for (const uint8_t code : row.scale_b) text << ' ' << static_cast<int>(code);
  return text.str();
}

// NaN bits of FP64 instructions are not guaranteed.
bool same(const Machine& m, uint64_t x, uint64_t y) {
  return x == y ||
         (m.way == Way::fma && read(code_of(m.d), x).kind == Kind::nan && read(code_of(m.d), y).kind == Kind::nan);
}

class Adversarial : public testing::TestWithParam<Machine> {};

TEST_P(Adversarial, InputsGetTheAnswerOfTheExactModel) {
  const Machine& machine = GetParam();
  const TensorCore* core = core_of(machine);
  ASSERT_NE(core, nullptr);
  const DotTypes types = types_of(machine);
#if HALFMARK_SANITIZED
  const uint64_t rows = kRowsOfAClass / 4;  // only for what the sanitizers detect; release builds compare the results
#else
  const uint64_t rows = std::getenv("HALFMARK_LONG") ? 100 * kRowsOfAClass : kRowsOfAClass;
#endif
  const auto depth = static_cast<size_t>(depth_of(machine.instruction));
  for (const InputClass& input_class : kInputClasses) {
    if (!input_class.fits(machine)) continue;
    uint64_t mismatches = 0;
    std::set<uint64_t> answers;
    for (size_t instructions = 1; instructions <= 3; ++instructions)
      for (uint64_t number = 0; number < rows; ++number) {
        const Row row = row_of(input_class, machine, instructions * depth, number);
        const uint64_t expected = dot(machine, row.inputs());
        const uint64_t got = halfmark::kernels::dot(*core, types, row.a, row.b, row.c, row.scale_a, row.scale_b);
        if (answers.size() < 16) answers.insert(expected);
        if (same(machine, got, expected)) continue;
        if (++mismatches <= 2)
          ADD_FAILURE() << input_class.name << ", row " << number << std::hex << ": " << got
                        << ", the exact model gives " << expected << "\n"
                        << text_of(row);
      }
    EXPECT_EQ(mismatches, 0u) << "of " << 3 * rows << ' ' << input_class.name;
    EXPECT_GE(answers.size(), 2u) << input_class.name << " distinguishes nothing";
  }
}

std::vector<Machine> in_order_of_table() { return machines(); }

INSTANTIATE_TEST_SUITE_P(EveryRow, Adversarial, testing::ValuesIn(in_order_of_table()), [](const auto& row) {
  std::string name = text_of(row.param);
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
});

// The two tables.

std::string key(std::string_view architecture, MatrixInstruction instruction, const Format& a, const Format& b,
                const Format& c, const Format& d, const Scaling& scaling) {
  std::string text(architecture);
  for (const std::string_view word : {name_of(instruction), a.name, b.name, c.name, d.name})
    text += " " + std::string(word);
  if (scaling.block) text += " " + std::string(name_of(scaling.type)) + "/" + std::to_string(scaling.block);
  return text;
}

TEST(ExactMachines, AreTheRowsOfTheTableNoneMoreNoneLess) {
  std::multiset<std::string> ours, theirs;
  for (const Machine& m : machines()) {
    const DotTypes t = types_of(m);
    ours.insert(key(m.architecture, m.instruction, t.a, t.b, t.c, t.d, t.scaling));
  }
  for (const TensorCore& core : tensor_cores())
    for (const Format& a : formats())
      for (const Format& b : formats())
        if (takes(core.operands, a) && takes(core.operands, b))
          theirs.insert(key(core.architecture, core.instruction, a, b, core.addend, core.result, core.scaling));
  EXPECT_EQ(ours, theirs);
}

TEST(ExactMachines, HaveTheNumbersOfTheTable) {
  for (const Machine& m : machines()) {
    const TensorCore* core = core_of(m);
    ASSERT_NE(core, nullptr) << text_of(m);
    const bool agree = m.way == Way::blocks        ? core->summation == Summation::blocks
                       : m.way == Way::interleaved ? core->summation == Summation::interleaved
                       : m.way == Way::groups      ? core->summation == Summation::groups
                                                   : core->summation == Summation::fma_chain;
    EXPECT_TRUE(agree) << text_of(m);
    if (m.way == Way::fma) continue;
    EXPECT_EQ(core->block.products, m.block) << text_of(m);
    EXPECT_EQ(core->block.kept_fraction_bits, m.kept) << text_of(m);
    if (m.zero_floor != kUnreachable) {
      EXPECT_EQ(core->block.zero_exponent, m.zero_floor == kNoFloor ? kNoZeroExponent : m.zero_floor) << text_of(m);
    }
    EXPECT_EQ(core->block.rounding, m.output == Output::near_fp16   ? BlockRounding::near_even_fp16
                                    : m.output == Output::cut_e8m13 ? BlockRounding::truncate_e8m13
                                                                    : BlockRounding::truncate_fp32)
        << text_of(m);
  }
}

}  // namespace
}  // namespace halfmark::kernels::exact
