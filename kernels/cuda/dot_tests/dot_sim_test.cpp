// Dot products of the GPU bit by bit: against the simulated tensor core of its architecture and the exact model, on the
// inputs that distinguish models (kernels/sim/tensor_core_inputs_testing.h), and against published outputs of GPUs.
//
// On the software GPU the sums are those of the simulated tensor cores. What is compared there is everything between an
// operand in memory and a result in memory: fragments, descriptors, narrow codes, scales, chains, rows at the edge.
// HALFMARK_DOT_ROWS: rows of each instruction; the exact model answers the first kExactRows of a class.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/dot_table.h"
#include "kernels/cuda/gpu_testing.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/sim/exact_machines_testing.h"
#include "kernels/sim/tensor_core_inputs_testing.h"
#include "reports/record/paths_testing.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint64_t kUsualRows = 4000, kLongRows = 100'000, kExactRows = 20;

// Which simulated device a GPU is, and whose outputs have been published (tensor_core_hw in the data folder). The files of
// the L40S are copies of those of the Ada.
struct Generation {
  int capability;
  std::string_view simulated;
  std::vector<std::string_view> published;
};
const std::vector<Generation>& generations() {
  static const std::vector<Generation> all = {
      {75, "turing", {}},           {80, "ampere", {"A100"}},         {86, "ampere", {"A2"}},
      {89, "ada", {"Ada", "L40S"}}, {90, "hopper", {"H100", "H200"}}, {100, "blackwell", {"B200"}},
      {120, "blackwell-rtx", {}},   {121, "blackwell-rtx", {}}};
  return all;
}

const Generation* generation_of(int capability) {
  for (const Generation& one : generations())
    if (one.capability == capability) return &one;
  return nullptr;
}

// Codes by row, with the k operands of a row last.
struct Problems {
  int64_t rows = 0, k = 0;
  std::vector<uint64_t> a, b, c;
  std::vector<uint64_t> scale_a, scale_b;
};

Tensor tensor_of(Device& device, const Shape& shape, DType dtype, const std::vector<uint64_t>& codes) {
  std::vector<unsigned char> bytes(bytes_for(dtype, codes.size()));
  for (size_t i = 0; i < codes.size(); ++i) store_code(dtype, bytes.data(), i, codes[i]);
  Tensor tensor(device, shape, dtype);
  tensor.set_codes(bytes);
  return tensor;
}

std::vector<uint64_t> answers(Device& device, const DotRow& row, const Problems& p) {
  const Tensor a = tensor_of(device, {p.rows, p.k}, row.a, p.a), b = tensor_of(device, {p.rows, p.k}, row.b, p.b);
  const Tensor c = tensor_of(device, {p.rows}, row.c, p.c);
  Tensor scale_a, scale_b;
  if (row.block) {
    const Shape scales{p.rows, p.k / row.block};
    scale_a = tensor_of(device, scales, row.scale, p.scale_a),
    scale_b = tensor_of(device, scales, row.scale, p.scale_b);
  }
  Tensor out(device, {p.rows}, row.out);
  run(DotProducts{
      .a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b, .c = c, .out = out, .instruction = row.instruction});
  const std::vector<unsigned char> bytes = out.codes();
  std::vector<uint64_t> codes(static_cast<size_t>(p.rows));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = load_code(row.out, bytes.data(), i);
  return codes;
}

// The question to the simulated device. It knows two instructions only by their equals: e2m1 in a shape of bytes is
// multiplied as e4m3, which has all its values; c of f16 with a sum in f32 is the same number in f32.
void recode(std::vector<uint64_t>& codes, DType from, DType to) {
  for (uint64_t& code : codes) code = encode(to, decode(from, code));
}
std::vector<uint64_t> answers_of_sim(Device& sim, DotRow row, Problems p) {
  if (row.instruction == MatrixInstruction::mma_m16n8k32 && row.a == DType::e2m1) {
    recode(p.a, DType::e2m1, DType::e4m3), recode(p.b, DType::e2m1, DType::e4m3);
    row.a = row.b = DType::e4m3;
  }
  if (row.c == DType::f16 && row.out == DType::f32) {
    recode(p.c, DType::f16, DType::f32);
    row.c = DType::f32;
  }
  return answers(sim, row, p);
}

exact::Type exact_type(DType dtype, bool operand) {
  if (dtype == DType::f64) return exact::Type::fp64;
  if (dtype == DType::f32) return operand ? exact::Type::tf32 : exact::Type::fp32;
  if (dtype == DType::f16) return exact::Type::fp16;
  if (dtype == DType::bf16) return exact::Type::bf16;
  if (dtype == DType::e4m3) return exact::Type::e4m3;
  if (dtype == DType::e5m2) return exact::Type::e5m2;
  if (dtype == DType::e2m1) return exact::Type::e2m1;
  throw Error("no type of the exact model for " + std::string(name_of(dtype)));
}

exact::Machine machine_of(std::string_view architecture, const DotRow& row) {
  using exact::Type;
  Type a = exact_type(row.a, true), b = exact_type(row.b, true), c = exact_type(row.c, false);
  const Type d = exact_type(row.out, false);
  const bool narrow = row.instruction == MatrixInstruction::mma_m16n8k32 && row.a == DType::e2m1;
  const bool widened = c == Type::fp16 && d == Type::fp32;
  for (exact::Machine m : exact::machines()) {
    if (m.architecture != architecture || m.instruction != row.instruction || m.d != d) continue;
    if (m.a != (narrow ? Type::e4m3 : a) || m.b != (narrow ? Type::e4m3 : b) || m.c != (widened ? Type::fp32 : c))
      continue;
    if (m.scale_block != row.block) continue;
    if (row.block && m.scale != (row.scale == DType::e8m0 ? Type::e8m0 : Type::e4m3)) continue;
    m.a = a, m.b = b, m.c = c;
    return m;
  }
  throw Error("the exact model has no such machine: " + std::string(architecture) + " " +
              std::string(name_of(row.instruction)));
}

// NaN bits of FP64 instructions are not guaranteed.
bool same(DType dtype, uint64_t x, uint64_t y) {
  return x == y || (dtype == DType::f64 && std::isnan(decode(dtype, x)) && std::isnan(decode(dtype, y)));
}

std::string text_of(const DotRow& row) {
  std::string text = std::string(name_of(row.instruction));
  for (const DType dtype : {row.a, row.b, row.c, row.out}) text += "_" + std::string(name_of(dtype));
  if (row.block) text += "_" + std::string(name_of(row.scale)) + "_" + std::to_string(row.block);
  for (char& letter : text)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return text;
}

class Dots : public Gpu, public testing::WithParamInterface<size_t> {
 protected:
  const DotRow& row() const { return kDotRows.row[GetParam()]; }
  // Why the GPU does not do this; empty: it does.
  std::string refusal() {
    Problems p;
    p.rows = 1, p.k = dot_depth(row().instruction);
    const auto k = static_cast<size_t>(p.k);
    p.a.assign(k, 0), p.b = p.a, p.c = {0};
    if (row().block) p.scale_a.assign(k / static_cast<size_t>(row().block), 0x38), p.scale_b = p.scale_a;
    try {
      answers(gpu(), row(), p);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return {};
  }
};

Problems drawn(const exact::InputClass& input_class, const exact::Machine& machine, size_t k, uint64_t first,
               uint64_t rows) {
  Problems p;
  p.rows = static_cast<int64_t>(rows), p.k = static_cast<int64_t>(k);
  for (uint64_t number = first; number < first + rows; ++number) {
    const exact::Row one = row_of(input_class, machine, k, number);
    p.a.insert(p.a.end(), one.a.begin(), one.a.end()), p.b.insert(p.b.end(), one.b.begin(), one.b.end());
    p.c.push_back(one.c);
    p.scale_a.insert(p.scale_a.end(), one.scale_a.begin(), one.scale_a.end());
    p.scale_b.insert(p.scale_b.end(), one.scale_b.begin(), one.scale_b.end());
  }
  return p;
}

// With e2m1 in a shape of bytes as e4m3, in which no e2m1 is subnormal: a subnormal operand aligns a sum by the exponent
// of its code.
uint64_t exact_answer(exact::Machine machine, const exact::InputClass& input_class, size_t k, uint64_t number) {
  exact::Row row = row_of(input_class, machine, k, number);
  if (machine.instruction == MatrixInstruction::mma_m16n8k32 && machine.a == exact::Type::e2m1) {
    recode(row.a, DType::e2m1, DType::e4m3), recode(row.b, DType::e2m1, DType::e4m3);
    machine.a = machine.b = exact::Type::e4m3;
  }
  return dot(machine, row.inputs());
}

TEST_P(Dots, AnswerAsTheSimulatedTensorCoreBitForBit) {
  const Generation* known = generation_of(architecture());
  if (!known) GTEST_SKIP() << "no simulated device for sm_" << architecture();
  if (const std::string why = refusal(); !why.empty()) GTEST_SKIP() << why;
  const std::shared_ptr<Device> sim = open_device("sim:" + std::string(known->simulated));
  const exact::Machine machine = machine_of(known->simulated, row());
  std::vector<const exact::InputClass*> classes;
  for (const exact::InputClass& one : exact::kInputClasses)
    if (one.fits(machine)) classes.push_back(&one);
  const char* wanted = std::getenv("HALFMARK_DOT_ROWS");
  const uint64_t rows = wanted                         ? std::strtoull(wanted, nullptr, 10)
                        : std::getenv("HALFMARK_LONG") ? kLongRows
                                                       : kUsualRows;
  const uint64_t of_class = (rows + classes.size() - 1) / classes.size();
  constexpr uint64_t kChunk = 2000;
  uint64_t compared = 0, other = 0, other_than_exact = 0;
  for (size_t number = 0; number < classes.size(); ++number)
    for (uint64_t first = 0; first < of_class; first += kChunk) {
      // Chains of one to three instructions, and a number of rows that is no multiple of a tile.
      const size_t k = static_cast<size_t>(dot_depth(row().instruction)) * (1 + (number + first / kChunk) % 3);
      const Problems p = drawn(*classes[number], machine, k, first, std::min(kChunk, of_class - first));
      const std::vector<uint64_t> got = answers(gpu(), row(), p), expected = answers_of_sim(*sim, row(), p);
      for (size_t i = 0; i < got.size(); ++i, ++compared) {
        if (!same(row().out, got[i], expected[i]) && ++other <= 3)
          ADD_FAILURE() << classes[number]->name << ", row " << first + i << ", k = " << k << std::hex << ": " << got[i]
                        << ", " << sim->name() << " gives " << expected[i];
        if (first + i >= kExactRows) continue;
        const uint64_t exact = exact_answer(machine, *classes[number], k, first + i);
        if (!same(row().out, got[i], exact) && ++other_than_exact <= 3)
          ADD_FAILURE() << classes[number]->name << ", row " << first + i << ", k = " << k << std::hex << ": " << got[i]
                        << ", the exact model gives " << exact;
      }
    }
  EXPECT_EQ(other, 0u) << "of " << compared << " answers";
  EXPECT_EQ(other_than_exact, 0u);
  EXPECT_GE(compared, rows);
}

INSTANTIATE_TEST_SUITE_P(Row, Dots, testing::Range(size_t{0}, DotRows::kCount),
                         [](const auto& row) { return text_of(kDotRows.row[row.param]); });

// Published outputs. 16-bit operands and tf32 went through the largest mma.sync, the rest of k filled with zeros.

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

std::vector<uint64_t> codes_of(const std::string& hex, DType dtype) {
  const auto digits = static_cast<size_t>(dot_bits(dtype)) / 4;
  std::vector<uint64_t> codes;
  for (size_t at = 0; at + digits <= hex.size(); at += digits)
    codes.push_back(std::stoull(hex.substr(at, digits), nullptr, 16));
  return codes;
}

DType operand_of_file(const std::string& name) {  // "hw_H100_e4m3_k32"
  for (const auto& [word, dtype] :
       {std::pair{"_f16_", DType::f16}, std::pair{"_bf16_", DType::bf16}, std::pair{"_tf32_", DType::f32},
        std::pair{"_e4m3_", DType::e4m3}, std::pair{"_e5m2_", DType::e5m2}})
    if (name.find(word) != std::string::npos) return dtype;
  throw Error(name + ": unknown operands");
}

const DotRow* row_of_column(DType operand, const std::string& column) {
  using enum MatrixInstruction;
  const bool narrow = dot_bits(operand) == 8;
  const MatrixInstruction instruction = column == "d_f32_wgmma_czero" ? wgmma_k32
                                        : operand == DType::f32       ? mma_m16n8k8
                                        : narrow                      ? mma_m16n8k32
                                                                      : mma_m16n8k16;
  const DType result = column.starts_with("d_f16") ? DType::f16 : DType::f32;
  for (const DotRow& row : kDotRows.row)
    if (row.instruction == instruction && row.a == operand && row.b == operand && row.out == result && !row.block)
      return &row;
  return nullptr;
}

class PublishedDots : public Gpu {};

TEST_F(PublishedDots, AreReproducedBitForBit) {
  const Generation* known = generation_of(architecture());
  if (!known || known->published.empty())
    GTEST_SKIP() << "no outputs of a GPU of sm_" << architecture() << " have been published";
  const std::string folder = test_folders::data() + "/tensor_core_hw";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no outputs of GPUs in " << folder << " ($HALFMARK_DATA/tensor_core_hw)";
  int columns = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (std::ranges::none_of(known->published,
                             [&](std::string_view gpu) { return name.starts_with("hw_" + std::string(gpu) + "_"); }))
      continue;
    const DType operand = operand_of_file(name);
    std::ifstream stream(entry.path());
    std::string line;
    std::getline(stream, line);
    const std::vector<std::string> header = fields_of(line);
    std::vector<std::vector<std::string>> lines;
    while (std::getline(stream, line)) lines.push_back(fields_of(line));
    ASSERT_EQ(lines.size(), 600u) << name;
    for (size_t column = 3; column < header.size(); ++column) {
      const DotRow* row = row_of_column(operand, header[column]);
      ASSERT_TRUE(row) << name << " " << header[column];
      Problems p;
      p.rows = static_cast<int64_t>(lines.size()), p.k = dot_depth(row->instruction);
      for (const auto& fields : lines) {
        std::vector<uint64_t> a = codes_of(fields[0], operand), b = codes_of(fields[1], operand);
        a.resize(static_cast<size_t>(p.k), 0), b.resize(static_cast<size_t>(p.k), 0);
        p.a.insert(p.a.end(), a.begin(), a.end()), p.b.insert(p.b.end(), b.begin(), b.end());
        p.c.push_back(header[column] == "d_f32_wgmma_czero" ? 0 : std::stoull(fields[2], nullptr, 16));
      }
      if (row->c == DType::f16) recode(p.c, DType::f32, DType::f16);
      const std::vector<uint64_t> got = answers(gpu(), *row, p);
      int wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != std::stoull(lines[i][column], nullptr, 16);
      EXPECT_EQ(wrong, 0) << name << " " << header[column];
      ++columns;
    }
  }
  EXPECT_GT(columns, 0) << folder << " has no outputs of sm_" << architecture();
}

}  // namespace
}  // namespace halfmark::kernels::cuda
