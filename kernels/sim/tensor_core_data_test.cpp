// The model of the tensor core, and the exact model that checks it, against outputs of real GPUs and against worked
// examples. README.md beside the data explains the columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sim/exact_machines_testing.h"
#include "reports/record/paths_testing.h"

namespace halfmark::kernels::exact {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

// Codes with a fixed number of hexadecimal digits, one after the other.
std::vector<uint64_t> codes(const std::string& hex, size_t digits) {
  std::vector<uint64_t> all;
  for (size_t i = 0; i + digits <= hex.size(); i += digits)
    all.push_back(std::stoull(hex.substr(i, digits), nullptr, 16));
  return all;
}
std::vector<uint8_t> bytes(const std::string& hex) {
  std::vector<uint8_t> all;
  for (const uint64_t code : codes(hex, 2)) all.push_back(static_cast<uint8_t>(code));
  return all;
}
size_t digits_of(Type type) {
  if (type == Type::e2m1) return 1;
  return type == Type::fp32 || type == Type::tf32 ? 8 : type == Type::fp16 || type == Type::bf16 ? 4 : 2;
}
Type type_named(std::string_view name) {
  if (name == "f16") return Type::fp16;
  if (name == "f32") return Type::fp32;
  for (const Code& code : kCodes)
    if (code.name == name) return code.type;
  throw Error("no such type in the exact model: " + std::string(name));
}

Machine machine(std::string_view architecture, MatrixInstruction instruction, Type a, Type b, Type d,
                std::string_view scale = "", int scale_block = 0) {
  for (const Machine& m : machines())
    if (m.architecture == architecture && m.instruction == instruction && m.a == a && m.b == b && m.c == d &&
        m.d == d && m.scale_block == scale_block &&
        (!scale_block || (m.scale == Type::e8m0 ? "ue8m0" : "ue4m3") == scale))
      return m;
  throw Error("no such machine: " + std::string(architecture) + " " + std::string(name_of(instruction)));
}

// fp32 to the nearest fp16, ties to even, by arithmetic on the codes.
uint64_t narrowed(uint64_t c) {
  const Value value = read(code_of(Type::fp32), c);
  EXPECT_EQ(value.kind, Kind::finite);
  if (is_zero(value)) return value.negative ? 0x8000 : 0;
  Sum sum;
  sum.add(value.significand, value.unit);
  return rounded(sum, kFp16Grid, true) | (value.negative ? 0x8000 : 0);
}

// Outputs of GPUs: arXiv 2512.07004, model_validation of north-numerical-computing/MATLAB-tensor-core.

struct Gpu {
  std::string_view name, architecture;
};
void PrintTo(const Gpu& gpu, std::ostream* stream) { *stream << gpu.name; }
constexpr Gpu kGpus[] = {{"V100", "volta"},  {"A100", "ampere"}, {"A2", "ampere"},     {"Ada", "ada"},
                         {"H100", "hopper"}, {"H200", "hopper"}, {"B200", "blackwell"}};
// The files called L40S contain the operands and outputs of those
// called Ada (RTX 1000 Ada), so they are no additional evidence.
constexpr std::string_view kCopy = "L40S", kOriginal = "Ada";

// 16- and 19-bit operands were passed through the WMMA interface, i.e. its largest mma.sync.
MatrixInstruction instruction_of(std::string_view architecture, Type operand, const std::string& column) {
  using enum MatrixInstruction;
  if (column == "d_f32_wgmma_czero") return wgmma_k32;
  if (architecture == "volta") return mma_m8n8k4;
  if (operand == Type::tf32) return mma_m16n8k8;
  return operand == Type::fp16 || operand == Type::bf16 ? mma_m16n8k16 : mma_m16n8k32;
}

const std::string kFolder = test_folders::data() + "/tensor_core_hw";

class GpuOutputs : public testing::TestWithParam<Gpu> {};

TEST_P(GpuOutputs, AreReproducedBitForBit) {
  const Gpu gpu = GetParam();
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no outputs of real GPUs in " << kFolder;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string(), head = "hw_" + std::string(gpu.name) + "_";
    if (!name.starts_with(head)) continue;
    ++files;
    const Type operand = type_named(name.substr(head.size(), name.rfind("_k") - head.size()));
    std::ifstream stream(entry.path());
    std::string line;
    std::getline(stream, line);
    const std::vector<std::string> header = split(line);
    ASSERT_GE(header.size(), 4u) << name;
    int rows = 0;
    std::map<std::string, int> mismatches, mismatches_of_exact_model;
    while (std::getline(stream, line)) {
      const std::vector<std::string> fields = split(line);
      ASSERT_EQ(fields.size(), header.size()) << name;
      ++rows;
      for (size_t column = 3; column < header.size(); ++column) {
        const bool half = header[column].starts_with("d_f16");
        const Type result = half ? Type::fp16 : Type::fp32;
        const Machine m = machine(gpu.architecture, instruction_of(gpu.architecture, operand, header[column]), operand,
                                  operand, result);
        std::vector<uint64_t> a = codes(fields[0], digits_of(operand)), b = codes(fields[1], digits_of(operand));
        const auto depth = static_cast<size_t>(depth_of(m.instruction));
        ASSERT_LE(a.size(), depth);
        a.resize(depth, 0), b.resize(depth, 0);
        uint64_t c = header[column] == "d_f32_wgmma_czero" ? 0 : std::stoull(fields[2], nullptr, 16);
        if (half) c = narrowed(c);
        const uint64_t d = std::stoull(fields[column], nullptr, 16);
        mismatches[header[column]] += halfmark::kernels::dot(*core_of(m), types_of(m), a, b, c) != d;
        mismatches_of_exact_model[header[column]] += dot(m, {a, b, c}) != d;
      }
    }
    EXPECT_EQ(rows, 600) << name;
    for (const auto& [column, count] : mismatches) EXPECT_EQ(count, 0) << name << ' ' << column;
    for (const auto& [column, count] : mismatches_of_exact_model)
      EXPECT_EQ(count, 0) << name << ' ' << column << ", the exact model";
    EXPECT_EQ(mismatches.size(), header.size() - 3) << name;
  }
  EXPECT_GT(files, 0) << "the folder has no data of this GPU";
}

INSTANTIATE_TEST_SUITE_P(Of, GpuOutputs, testing::ValuesIn(kGpus),
                         [](const auto& gpu) { return std::string(gpu.param.name); });

TEST(GpuOutputs, EveryFileIsOfAGpuThatIsTestedOrACopy) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no outputs of real GPUs in " << kFolder;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(std::ranges::any_of(
                    kGpus, [&](const Gpu& gpu) { return name.starts_with("hw_" + std::string(gpu.name) + "_"); }) ||
                name.starts_with("hw_" + std::string(kCopy) + "_"))
        << entry.path();
  }
}

// Each line of a copy is a line of the original, which may have one more column.
TEST(GpuOutputs, TheFilesOfTheL40SAreThoseOfTheRtx1000Ada) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no outputs of real GPUs in " << kFolder;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string(), head = "hw_" + std::string(kCopy) + "_";
    if (!name.starts_with(head)) continue;
    ++files;
    std::ifstream copy(entry.path()),
        original(kFolder + "/hw_" + std::string(kOriginal) + "_" + name.substr(head.size()));
    std::string line, line_of_original;
    while (std::getline(copy, line)) {
      ASSERT_TRUE(std::getline(original, line_of_original)) << name;
      ASSERT_TRUE((line_of_original + ",").starts_with(line + ",")) << name << ": " << line;
    }
    EXPECT_FALSE(std::getline(original, line_of_original)) << name;
  }
  EXPECT_EQ(files, 5);
}

// Worked examples of another exact model, for paths without published outputs of GPUs.

TEST(WorkedExamples, AreReproducedBitForBit) {
  const std::string file = test_folders::data() + "/tensor_core_worked_examples.csv";
  std::ifstream stream(file);
  if (!stream) GTEST_SKIP() << "no worked examples at " << file;
  std::string line;
  std::getline(stream, line);
  const std::vector<std::string> header = split(line);
  int rows = 0;
  while (std::getline(stream, line)) {
    const std::vector<std::string> fields = split(line);
    ASSERT_EQ(fields.size(), header.size());
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
    const std::string scale = row["scale"];  // "ue8m0/32" or empty
    const size_t slash = scale.find('/');
    const Type a_type = type_named(row["a_type"]), b_type = type_named(row["b_type"]);
    const Machine m =
        machine(row["device"], matrix_instruction_named(row["instruction"]), a_type, b_type, type_named(row["d_type"]),
                scale.substr(0, slash), scale.empty() ? 0 : std::stoi(scale.substr(slash + 1)));
    const std::vector<uint64_t> a = codes(row["a"], digits_of(a_type)), b = codes(row["b"], digits_of(b_type));
    const std::vector<uint8_t> scale_a = bytes(row["scale_a"]), scale_b = bytes(row["scale_b"]);
    const uint64_t c = std::stoull(row["c"], nullptr, 16), d = std::stoull(row["d"], nullptr, 16);
    EXPECT_EQ(halfmark::kernels::dot(*core_of(m), types_of(m), a, b, c, scale_a, scale_b), d) << line;
    EXPECT_EQ(dot(m, {a, b, c, scale_a, scale_b}), d) << "the exact model: " << line;
    ++rows;
  }
  EXPECT_EQ(rows, 30);
}

// Probes: inputs on which rival hypotheses differ. The models must implement the hypothesis that the README names.

using enum MatrixInstruction;
struct ProbeRow {  // the machines of a probe, by the text of its column `instruction`, and their hypothesis
  std::string_view probe, instruction;
  std::vector<std::string_view> architectures;
  MatrixInstruction machine_instruction;
  std::string_view hypothesis;  // "": ezero_ and the machine's exponent of a zero
};

std::vector<ProbeRow> probe_rows() {
  const std::vector<std::string_view> ampere_on{"ampere", "ada", "hopper", "blackwell", "blackwell-rtx"},
      hopper_on{"hopper", "blackwell", "blackwell-rtx"}, ampere{"ampere", "ada"};
  return {
      {"exponent_of_zero_f16", "volta mma", {"volta"}, mma_m8n8k4, ""},
      {"exponent_of_zero_f16", "turing mma", {"turing"}, mma_m16n8k8, ""},
      {"exponent_of_zero_f16", "ampere/ada mma", ampere, mma_m16n8k16, ""},
      {"exponent_of_zero_f16", "hopper/blackwell mma", hopper_on, mma_m16n8k16, ""},
      {"exponent_of_zero_f16", "hopper wgmma", {"hopper"}, wgmma_k16, ""},
      {"exponent_of_zero_f32", "ampere/ada mma.m16n8k16", ampere, mma_m16n8k16, ""},
      {"exponent_of_zero_f32", "hopper/blackwell mma.m16n8k16", hopper_on, mma_m16n8k16, ""},
      {"exponent_of_zero_f32", "hopper wgmma.m64nNk16", {"hopper"}, wgmma_k16, ""},
      {"exponent_of_zero_f32", "ampere/ada mma.m16n8k8", ampere, mma_m16n8k8, ""},
      {"exponent_of_zero_f32", "hopper/blackwell mma.m16n8k8", hopper_on, mma_m16n8k8, ""},
      {"exponent_of_zero_f32", "hopper wgmma.m64nNk8", {"hopper"}, wgmma_k8, ""},
      {"exponent_of_zero_fp8_f16", "ada", {"ada"}, mma_m16n8k32, ""},
      {"exponent_of_zero_fp8_f16", "hopper wgmma", {"hopper"}, wgmma_k32, ""},
      {"zero_times_huge", "ampere/ada", ampere, mma_m16n8k16, "zero_ignored"},
      {"zero_times_huge", "hopper/blackwell", hopper_on, mma_m16n8k16, "zero_ignored"},
      {"zero_times_huge", "hopper mma.m16n8k8", {"hopper"}, mma_m16n8k8, "zero_ignored"},
      {"sign_of_underflow", "ampere..blackwell mma.m16n8k16", ampere_on, mma_m16n8k16, "plus_zero"},
      {"sign_of_underflow", "ampere..blackwell mma.m16n8k8", ampere_on, mma_m16n8k8, "plus_zero"},
      {"sign_of_underflow", "any mma.m16n8k16.f16", ampere_on, mma_m16n8k16, "plus_zero"},
      {"all_negative_zero", "any mma", ampere_on, mma_m16n8k16, "plus_zero"},
      {"mma_sync_fp8_sm90", "mma", {"hopper", "blackwell"}, mma_m16n8k32, "interleaved_hmma_then_fadd"},
      {"block_size_hopper_f16", "hopper", hopper_on, mma_m16n8k16, "one_block_of_16"},
      {"tf32_input", "any mma", ampere_on, mma_m16n8k8, "truncate"},
      {"group_exponent_nvf4", "sm_120", {"blackwell-rtx"}, mma_m16n8k64, "allzero_group_ignored"},
  };
}

TEST(Probes, GetTheAnswerOfTheHypothesisThatTheModelHolds) {
  const std::string file = test_folders::data() + "/tensor_core_probes.csv";
  std::ifstream stream(file);
  if (!stream) GTEST_SKIP() << "no probes at " << file;
  std::string line;
  std::getline(stream, line);
  ASSERT_EQ(line, "probe,instruction,fmt_a,fmt_b,fmt_c,k,a,b,c,predictions");
  int rows = 0;
  while (std::getline(stream, line)) {
    const std::vector<std::string> fields = split(line);
    ASSERT_EQ(fields.size(), 10u);
    ++rows;
    std::map<std::string, std::string> predictions;
    std::stringstream list(fields[9]);
    for (std::string entry; std::getline(list, entry, ';');)
      predictions[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    const Type operand = type_named(fields[2]), result = type_named(fields[4]);
    const std::vector<uint64_t> a = codes(fields[6], digits_of(operand)), b = codes(fields[7], digits_of(operand));
    const std::vector<uint8_t> scale_a = bytes(predictions["scale_a"]), scale_b = bytes(predictions["scale_b"]);
    const uint64_t c = std::stoull(fields[8], nullptr, 16);
    int asked = 0;
    for (const ProbeRow& probe : probe_rows()) {
      if (probe.probe != fields[0] || !fields[1].starts_with(probe.instruction)) continue;
      for (const std::string_view architecture : probe.architectures) {
        ++asked;
        const Machine m = machine(architecture, probe.machine_instruction, operand, operand, result,
                                  scale_a.empty() ? "" : "ue4m3", scale_a.empty() ? 0 : 16);
        const std::string hypothesis = !probe.hypothesis.empty()  ? std::string(probe.hypothesis)
                                       : m.zero_floor == kNoFloor ? "ezero_none"
                                                                  : "ezero_" + std::to_string(m.zero_floor);
        ASSERT_TRUE(predictions.contains(hypothesis)) << hypothesis << " is not in: " << line;
        const uint64_t expected = std::stoull(predictions[hypothesis], nullptr, 16);
        EXPECT_EQ(halfmark::kernels::dot(*core_of(m), types_of(m), a, b, c, scale_a, scale_b), expected)
            << architecture << ' ' << hypothesis << ": " << line;
        EXPECT_EQ(dot(m, {a, b, c, scale_a, scale_b}), expected)
            << "the exact model, " << architecture << ' ' << hypothesis << ": " << line;
      }
    }
    EXPECT_GT(asked, 0) << "no machine covers this probe: " << line;
  }
  EXPECT_GT(rows, 0);
}

}  // namespace
}  // namespace halfmark::kernels::exact
