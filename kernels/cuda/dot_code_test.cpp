// What the compiler generates from dot.cu and dot_tcgen05.cu, without a GPU: each architecture's code contains exactly the intended matrix
// instructions, in PTX and, if nvdisasm is available, in machine code. The lists are written here independently, by
// shape and type, from the PTX ISA's "Target ISA Notes" of mma, wgmma and tcgen05.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reports/record/paths_testing.h"

namespace halfmark::kernels {
namespace {

using Lines = std::set<std::string>;

struct Ran {
  int status;
  std::string output;
};
Ran run_command(const std::string& command) {
  std::string output;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  std::array<char, 65536> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  return {pclose(pipe), output};
}

Lines found(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Lines all;
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) all.insert(i->str(1));
  return all;
}

Lines together(std::initializer_list<Lines> lists) {
  Lines all;
  for (const Lines& list : lists) all.insert(list.begin(), list.end());
  return all;
}

constexpr std::array<const char*, 2> kFp8{"e4m3", "e5m2"};
Lines for_fp8_pairs(const std::string& before, const std::string& after) {
  Lines all;
  for (const char* a : kFp8)
    for (const char* b : kFp8) {
      std::string line = before;
      line += std::string(".") + a + "." + b + after;
      all.insert(line);
    }
  return all;
}

const std::string kMma = "mma.sync.aligned.", kWgmma = "wgmma.mma_async.sync.aligned.";

Lines volta_and_turing() {
  return {kMma + "m8n8k4.row.col.f32.f16.f16.f32", kMma + "m8n8k4.row.col.f32.f16.f16.f16",
          kMma + "m8n8k4.row.col.f16.f16.f16.f16"};
}
Lines since_turing() { return {kMma + "m16n8k8.row.col.f32.f16.f16.f32", kMma + "m16n8k8.row.col.f16.f16.f16.f16"}; }
Lines since_ampere() {
  return {kMma + "m16n8k16.row.col.f32.f16.f16.f32",  kMma + "m16n8k16.row.col.f16.f16.f16.f16",
          kMma + "m16n8k8.row.col.f32.bf16.bf16.f32", kMma + "m16n8k16.row.col.f32.bf16.bf16.f32",
          kMma + "m16n8k4.row.col.f32.tf32.tf32.f32", kMma + "m16n8k8.row.col.f32.tf32.tf32.f32",
          kMma + "m8n8k4.row.col.f64.f64.f64.f64"};
}
Lines since_ada() {
  Lines all;
  for (const std::string shape : {"m16n8k16", "m16n8k32"})
    for (const std::string sum : {".f32", ".f16"}) all.merge(for_fp8_pairs(kMma + shape + ".row.col" + sum, sum));
  return all;
}
Lines since_hopper() {
  return {kMma + "m16n8k4.row.col.f64.f64.f64.f64", kMma + "m16n8k8.row.col.f64.f64.f64.f64",
          kMma + "m16n8k16.row.col.f64.f64.f64.f64"};
}
Lines hopper() {
  Lines all{kWgmma + "m64n8k8.f32.tf32.tf32", kWgmma + "m64n8k16.f32.f16.f16", kWgmma + "m64n8k16.f16.f16.f16",
            kWgmma + "m64n8k16.f32.bf16.bf16"};
  for (const std::string sum : {".f32", ".f16"}) all.merge(for_fp8_pairs(kWgmma + "m64n8k32" + sum, ""));
  return all;
}
Lines blackwell() {
  const std::string tcgen05 = "tcgen05.mma.cta_group::1.kind::";
  return {tcgen05 + "tf32",
          tcgen05 + "f16",
          tcgen05 + "f8f6f4",
          tcgen05 + "mxf8f6f4.block_scale.scale_vec::1X",
          tcgen05 + "mxf4.block_scale.scale_vec::2X",
          tcgen05 + "mxf4nvf4.block_scale.scale_vec::4X"};
}
Lines blackwell_rtx() {
  const std::string scaled = "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32";
  Lines all{kMma + scaled + ".e2m1.e2m1.f32.ue8m0",
            kMma + "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            kMma + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"};
  all.merge(for_fp8_pairs(kMma + scaled, ".f32.ue8m0"));
  return all;
}

struct Target {
  std::string name;  // of nvcc: "90a"
  Lines ptx;
  Lines machine;  // names of machine instructions, up to the type of the result
};

// Machine code: HMMA multiplies 16-bit operands and tf32, QMMA FP8, OMMA FP4, DMMA f64; wgmma becomes HGMMA and QGMMA,
// tcgen05.mma UTCHMMA, UTCQMMA and UTCOMMA. On Hopper and sm_100 FP8 mma.sync is HMMA; on Blackwell f64 has one shape.
std::vector<Target> targets() {
  const Lines ampere = together({since_turing(), since_ampere()});
  const Lines ampere_machine{"HMMA.1688.F32",      "HMMA.1688.F16",       "HMMA.16816.F32",     "HMMA.16816.F16",
                             "HMMA.1688.F32.BF16", "HMMA.16816.F32.BF16", "HMMA.1684.F32.TF32", "HMMA.1688.F32.TF32"};
  Lines qmma, qgmma, qmma_scaled;
  for (const std::string a : {".E4M3", ".E5M2"})
    for (const std::string b : {".E4M3", ".E5M2"}) {
      for (const std::string sum : {".F32", ".F16"}) {
        qmma.insert("QMMA.16816" + sum + a + b), qmma.insert("QMMA.16832" + sum + a + b);
        qgmma.insert("QGMMA.64x8x32" + sum + a + b);
      }
      qmma_scaled.insert("QMMA.SF.16832.F32" + a + b + ".E8");
    }
  // sm_103 names the form with a scale for 16 products otherwise.
  const auto blackwell_machine = [&](const char* with_scales_of_16) {
    return together({ampere_machine, {"DMMA.8x8x4", "UTCHMMA", "UTCQMMA", "UTCOMMA", with_scales_of_16}});
  };
  const Lines blackwell_ptx = together({ampere, since_ada(), since_hopper(), blackwell()});
  return {
      {"75",
       together({volta_and_turing(), since_turing()}),
       {"HMMA.1688.F32", "HMMA.1688.F16", "HMMA.884.F32.F32.STEP0", "HMMA.884.F32.F32.STEP1", "HMMA.884.F32.F32.STEP2",
        "HMMA.884.F32.F32.STEP3", "HMMA.884.F32.F16.STEP0", "HMMA.884.F32.F16.STEP1", "HMMA.884.F32.F16.STEP2",
        "HMMA.884.F32.F16.STEP3", "HMMA.884.F16.F16.STEP0", "HMMA.884.F16.F16.STEP1"}},
      {"80", ampere, together({ampere_machine, {"DMMA.884"}})},
      {"90a", together({ampere, since_ada(), since_hopper(), hopper()}),
       together({ampere_machine,
                 qgmma,
                 {"DMMA.8x8x4", "DMMA.16x8x4", "DMMA.16x8x8", "DMMA.16x8x16", "HGMMA.64x8x16.F16", "HGMMA.64x8x16.F32",
                  "HGMMA.64x8x16.F32.BF16", "HGMMA.64x8x8.F32.TF32"}})},
      {"100a", blackwell_ptx, blackwell_machine("UTCOMMA.4X")},
      {"103a", blackwell_ptx, blackwell_machine("UTCOMMA.BLOCK16")},
      {"120a", together({ampere, since_ada(), since_hopper(), blackwell_rtx()}),
       together({ampere_machine,
                 qmma,
                 qmma_scaled,
                 {"DMMA.8x8x4", "QMMA.SF.16832.F32.E2M1.E2M1.E8", "OMMA.SF.16864.F32.E2M1.E2M1.E8",
                  "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"}})},
  };
}

std::string command_named(const std::string& name) {
  const std::string beside = (std::filesystem::path(HALFMARK_NVCC).parent_path() / name).string();
  if (std::filesystem::exists(beside)) return beside;
  const Ran where = run_command("command -v " + name);
  return where.status == 0 ? where.output.substr(0, where.output.find('\n')) : "";
}

class SlowDotCode : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(HALFMARK_NVCC)) GTEST_SKIP() << "no nvcc at " << HALFMARK_NVCC;
    for (const std::string& source : sources())
      if (!std::filesystem::exists(source)) GTEST_SKIP() << "sources not found: " << source;
    folder_ =
        std::filesystem::temp_directory_path() / ("halfmark_dot_" + GetParam().name + "_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::string> sources() {
    const std::string folder = test_folders::source() + "/kernels/cuda/";
    return {folder + "dot.cu", folder + "dot_tcgen05.cu"};
  }
  // The output of nvcc with --ptx or --cubin.
  std::filesystem::path compiled(const std::string& how, const std::string& source) {
    const std::filesystem::path result = folder_ / "dot";
    const Ran ran = run_command("'" HALFMARK_NVCC "' -std=c++20 -I'" + test_folders::source() + "' -arch=sm_" +
                                GetParam().name + " --" + how + " -o '" + result.string() + "' '" + source + "'");
    EXPECT_EQ(ran.status, 0) << ran.output;
    return result;
  }

  std::filesystem::path folder_;
};

TEST_P(SlowDotCode, HoldsExactlyTheIntendedInstructions) {
  std::ostringstream text;
  for (const std::string& source : sources()) text << std::ifstream(compiled("ptx", source)).rdbuf();
  EXPECT_EQ(found(text.str(), "\\b((?:mma\\.sync|wgmma\\.mma_async|tcgen05\\.mma)[a-z0-9_.:X]*)"), GetParam().ptx);
}

TEST_P(SlowDotCode, IsMachineCodeOfTheMatrixUnitsWithoutSubroutines) {
  const std::string nvdisasm = command_named("nvdisasm");
  if (nvdisasm.empty()) GTEST_SKIP() << "no nvdisasm, neither beside nvcc nor in PATH";
  Lines machine, calls;
  for (const std::string& source : sources()) {
    const Ran ran = run_command("'" + nvdisasm + "' -c '" + compiled("cubin", source).string() + "'");
    ASSERT_EQ(ran.status, 0) << ran.output;
    machine.merge(found(ran.output, "\\b([A-Z]+MMA[A-Za-z0-9.]*)"));
    // Around alloc and dealloc ptxas checks the columns; what it calls then only traps.
    calls.merge(found(ran.output, "\\b(CALL[A-Z.]*)(?![^;]*tcgen05_guardrail_trap)"));
  }
  EXPECT_EQ(machine, GetParam().machine);
  EXPECT_EQ(calls, Lines{});
}

void PrintTo(const Target& target, std::ostream* out) { *out << "sm_" << target.name; }
std::string readable(const testing::TestParamInfo<Target>& info) { return "sm_" + info.param.name; }

INSTANTIATE_TEST_SUITE_P(Dot, SlowDotCode, testing::ValuesIn(targets()), readable);

}  // namespace
}  // namespace halfmark::kernels
