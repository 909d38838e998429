// The reader of PTX: what it understands, and that everything else is an error with file and line.
#include "kernels/cuda/software_gpu/ptx_module.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/software_gpu/ptx_testing.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

std::string error_of(const std::string& text) {
  try {
    read_module(text, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PtxModule, ReadsVariablesWithInitialisers) {
  const Module module = read_module(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".const .align 4 .b8 table[8] = {75, 0, 1};\n"
      ".visible .global .align 8 .u32 pairs[2][2] = {{1, 2}, {3, -4}};\n"
      ".global .f32 one = 0f3F800000;\n.extern .shared .align 16 .b8 dynamic[];\n",
      "file");
  EXPECT_EQ(module.capability, 90);
  EXPECT_EQ(module.suffix, 'a');
  ASSERT_EQ(module.variables.size(), 4u);
  EXPECT_EQ(module.variables[0].bytes, 8u);
  EXPECT_EQ(module.variables[0].initial[0], std::byte{75});
  EXPECT_EQ(module.variables[0].initial[2], std::byte{1});
  int32_t pairs[4];
  std::memcpy(pairs, module.variables[1].initial.data(), sizeof pairs);
  EXPECT_EQ(pairs[2], 3);
  EXPECT_EQ(pairs[3], -4);
  EXPECT_EQ(module.variables[1].alignment, 8u);
  EXPECT_EQ(module.variables[2].initial[3], std::byte{0x3F});
  EXPECT_TRUE(module.variables[3].is_extern);
}

TEST(PtxModule, ReadsParametersAndBounds) {
  const Module module = read_module(
      ".version 9.0\n.target sm_75\n.entry k(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align "
      "4 c)\n"
      ".maxntid 32, 4, 1\n{\n.shared .align 16 .b8 s[100];\n.local .align 4 .b8 l[8];\nret;\n}\n",
      "file");
  const Kernel& kernel = module.kernels.at("k");
  ASSERT_EQ(kernel.parameters.size(), 3u);
  EXPECT_EQ(kernel.parameters[1].offset, 8u);
  EXPECT_EQ(kernel.parameters[2].offset, 24u);
  EXPECT_EQ(kernel.parameter_bytes, 32u);
  EXPECT_EQ(kernel.max_threads[1], 4u);
  EXPECT_EQ(kernel.shared_bytes, 100u);
  EXPECT_EQ(kernel.local_bytes, 8u);
}

// Braces in comments and quotes end no body.
TEST(PtxModule, ReadsABodyLaterAsItIsReadAtOnce) {
  const std::string text =
      ".version 9.0\n.target sm_75\n"
      ".entry first(.param .u64 a)\n{ // }\n.reg .b32 %r<3>;\n.pragma \"}\";\n{ /* } */\nmov.u32 %r1, 1;\n}\nret;\n}\n"
      ".global .align 4 .u32 between;\n"
      ".entry second()\n{\n.reg .b64 %rd<2>;\nmov.u64 %rd1, between;\nret;\n}\n"
      ".shared .align 4 .b8 later[64];\n"
      ".entry third()\n{\nret;\nfrobnicate;\n}\n";
  Module module = read_module_without_bodies(text, "file");
  ASSERT_EQ(module.kernels.size(), 3u);
  ASSERT_EQ(module.variables.size(), 2u);
  EXPECT_EQ(module.kernels.at("first").parameters.size(), 1u);
  Module at_once = read_module(text.substr(0, text.find(".entry third")), "file");
  for (const char* name : {"second", "first"}) {
    Kernel& kernel = module.kernels.at(name);
    EXPECT_TRUE(kernel.code.empty());
    for (int i = 0; i < 2; ++i) read_body_of(text, module, kernel);  // once is enough
    const Kernel& expected = at_once.kernels.at(name);
    EXPECT_EQ(kernel.code.size(), expected.code.size());
    EXPECT_EQ(kernel.texts, expected.texts);
    EXPECT_EQ(kernel.register_bytes, expected.register_bytes);
    EXPECT_EQ(kernel.shared_bytes, 0u);
  }
  for (int i = 0; i < 2; ++i) {
    try {
      read_body_of(text, module, module.kernels.at("third"));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("file:23: unknown instruction 'frobnicate'", 0), 0u) << error.what();
    }
    EXPECT_TRUE(module.kernels.at("third").code.empty());
  }
  try {
    read_module_without_bodies(".version 9.0\n.target sm_75\n.entry k()\n{\n{ ret; }\n", "file");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "file:4: the text ends within {");
  }
}

TEST(PtxModule, SaysWhereAnInstructionIsThatItDoesNotKnow) {
  const struct {
    const char* body;
    const char* words;
  } rows[] = {
      {"frobnicate.u32 %r20, %r21;", "unknown instruction 'frobnicate.u32': frobnicate.u32 %r20, %r21;"},
      {"add.rn.u32 %r20, %r21, %r22;", "unknown instruction 'add.rn.u32'"},
      {"add.s32.ftz %r20, %r21, %r22;", "unknown instruction 'add.s32.ftz'"},
      {"add.f32.rn %f1, %f2, %f3;", "unknown instruction 'add.f32.rn'"},
      {"fma.f32 %f1, %f2, %f3, %f4;", "unknown instruction 'fma.f32'"},
      {"cvt.f16.f32 %h1, %f1;", "unknown instruction 'cvt.f16.f32'"},
      {"cvt.rn.f64.f32 %d1, %f1;", "unknown instruction 'cvt.rn.f64.f32'"},
      {"ld.global.v4.f64 {%d1, %d2, %d3, %d4}, [%rd1];", "unknown instruction 'ld.global.v4.f64'"},
      {"ld.global.v2.u32 {%r20, %r21, %r22}, [%rd1];", "unknown instruction"},
      {"st.const.u32 [%rd1], %r20;", "unknown instruction 'st.const.u32'"},
      {"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%f1}, {%r20}, {%r20}, {%f1};", "unknown instruction"},
      {"bar.red.popc.u32 %r20, 0, %p1;", "unknown instruction"},
      {"call (%r20), f, (%r21);", "'"},
      {"add.s32 %r20, %rd1, %r22;", "a register of 64 bits where the instruction takes 32"},
      {"add.s64 %r20, %rd1, %rd2;", "a destination of 32 bits where the instruction has 64"},
      {"add.f32 %f1, %f2, 0d3FF0000000000000;", "an f64 number"},
      {"add.s32 %r20, %r99, 1;", "'%r99' is no register of this kernel"},
      {"mov.u32 %r20, %pm0;", "'%pm0' is no register of this kernel and no known special register"},
      {"bra nowhere;", "no label nowhere"},
      {".section x;", "'.section' is not known in a kernel"},
  };
  for (const auto& row : rows) {
    const std::string error = error_of(module_of_body(row.body, "sm_90a"));
    EXPECT_NE(error.find(row.words), std::string::npos) << row.body << ": " << error;
    // The body begins at this line of the module.
    EXPECT_EQ(error.rfind("file:", 0), 0u) << error;
    EXPECT_NE(error.find("file:19:"), std::string::npos) << row.body << ": " << error;
  }
}

TEST(PtxModule, SaysWhatItDoesNotKnowOutsideKernels) {
  EXPECT_EQ(error_of(".version 9.0\n.target sm_75\n.func f() { ret; }\n"),
            "file:3: '.func' is not known at module level");
  EXPECT_EQ(error_of(".version 9.0\n.target sm_75\n.global .texref t;\n"),
            "file:3: unknown property .texref of a variable");
  EXPECT_EQ(error_of(".version 9.0\n"), "file:1: no .target");
}

TEST_F(SoftwareGpu, PtxThatIsNotUnderstoodIsAnErrorOfTheLaunch) {
  const KernelRun run = run_kernel(module_of_body("frobnicate;"), nullptr, nullptr, 0, dim3(1), dim3(1));
  EXPECT_EQ(run.launch, cudaErrorInvalidPtx);
  EXPECT_NE(run.text.find("unknown instruction 'frobnicate'"), std::string::npos) << run.text;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
