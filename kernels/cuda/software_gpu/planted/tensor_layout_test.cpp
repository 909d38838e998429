// The descriptors and layouts of tcgen05.mma against those of the plugin, which were written apart from them.
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/cuda/dot_tcgen05.h"
#include "kernels/cuda/software_gpu/fragments.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"
#include "kernels/cuda/software_gpu/tensor_descriptors.h"

namespace halfmark::kernels::software_gpu {
namespace {

TensorKind kind_in(std::string_view opcode) {
  const std::string_view kind = opcode.substr(opcode.find("kind::") + 6);
  if (kind == "tf32") return TensorKind::tf32;
  if (kind == "f16") return TensorKind::f16;
  if (kind == "f8f6f4") return TensorKind::f8f6f4;
  if (kind.starts_with("mxf8f6f4.")) return TensorKind::mxf8f6f4;
  return kind.starts_with("mxf4.") ? TensorKind::mxf4 : TensorKind::mxf4nvf4;
}

TEST(TensorLayout, InstructionDescriptorsMeanWhatThePluginMeans) {
  int rows = 0;
  for (const cuda::DotRow& row : cuda::kDotRows.row) {
    if (!cuda::is_tcgen05(row.instruction)) continue;
    ++rows;
    const cuda::DotText text = cuda::ptx_of(row);
    TensorProduct p;
    EXPECT_EQ(read_instruction_descriptor(kind_in(text.text), row.block, cuda::tcgen05_instruction(row), p), "")
        << text.text;
    const MatrixTypes types{
        row.instruction, row.a, row.b, row.c, row.out, row.block, row.block ? row.scale : DType::e8m0};
    EXPECT_TRUE(p.types == types) << text.text;
    EXPECT_EQ(p.m, cuda::kTcgen05Problems);
    EXPECT_EQ(p.n, cuda::kTcgen05Problems);
    EXPECT_EQ(p.k, cuda::dot_depth(row.instruction));
    EXPECT_EQ(p.bits, cuda::dot_bits(row.a));
    EXPECT_EQ(p.scale_byte_a, 0);
    EXPECT_EQ(p.scale_byte_b, 0);
    EXPECT_FALSE(p.negate_a || p.negate_b);
  }
  EXPECT_EQ(rows, 19);
}

TEST(TensorLayout, EveryWrongBitOfAnInstructionDescriptorMeansAnotherThing) {
  for (const cuda::DotRow& row : cuda::kDotRows.row) {
    if (!cuda::is_tcgen05(row.instruction)) continue;
    const TensorKind kind = kind_in(cuda::ptx_of(row).text);
    TensorProduct right;
    ASSERT_EQ(read_instruction_descriptor(kind, row.block, cuda::tcgen05_instruction(row), right), "");
    for (int bit = 0; bit < 32; ++bit) {
      TensorProduct p;
      const uint32_t descriptor = cuda::tcgen05_instruction(row) ^ 1u << bit;
      if (!read_instruction_descriptor(kind, row.block, descriptor, p).empty()) continue;
      EXPECT_FALSE(p.types == right.types && p.m == right.m && p.n == right.n && p.scale_byte_a == right.scale_byte_a &&
                   p.scale_byte_b == right.scale_byte_b && p.negate_a == right.negate_a && p.negate_b == right.negate_b)
          << cuda::ptx_of(row).text << " bit " << bit;
    }
  }
}

TEST(TensorLayout, MatrixDescriptorsLeadToThePluginsPlaces) {
  const uint64_t descriptor = cuda::tcgen05_matrix(1024);
  EXPECT_EQ(check_matrix_descriptor(descriptor), "");
  for (int line = 0; line < cuda::kTcgen05Problems; ++line)
    for (int byte = 0; byte < cuda::kTcgen05Bytes; ++byte)
      EXPECT_EQ(descriptor_address(descriptor, line, byte),
                1024u + static_cast<uint32_t>(cuda::tcgen05_offset(line, byte)));
  for (const int bit : {14, 30, 46, 47, 49, 52, 53, 60, 61, 63})
    EXPECT_NE(check_matrix_descriptor(descriptor ^ uint64_t{1} << bit), "") << bit;
}

TEST(TensorLayout, ScalesAreWhereThePluginStoresThem) {
  for (int line = 0; line < cuda::kTcgen05Problems; ++line)
    for (int index = 0; index < 4; ++index) {
      const ScalePlace at = scale_place(line, index, 0);
      EXPECT_EQ(cuda::tcgen05_scale_line(static_cast<int>(at.column), at.lane), line);
      EXPECT_EQ(at.byte, index);
    }
}

TEST(TensorLayout, SaysWhatAKindHasNot) {
  TensorProduct p;
  const uint32_t f16 = 1u << 4 | 16u << 17 | 8u << 24;
  EXPECT_EQ(read_instruction_descriptor(TensorKind::f16, 0, f16, p), "");
  const auto says = [&](TensorKind kind, int block, uint32_t descriptor, const char* words) {
    EXPECT_NE(read_instruction_descriptor(kind, block, descriptor, p).find(words), std::string::npos) << descriptor;
  };
  says(TensorKind::tf32, 0, f16, "operand types");
  says(TensorKind::tf32, 0, (f16 | 2u << 7 | 2u << 10) & ~(3u << 4), "type of D");
  says(TensorKind::f16, 0, (f16 | 1u << 7 | 1u << 10) & ~(3u << 4), "bf16 in f16");
  says(TensorKind::f16, 0, f16 ^ 12u << 24, "M = 64");
  says(TensorKind::f16, 0, f16 ^ 17u << 17, "N = 8");
  says(TensorKind::mxf4, 32, 1u << 7 | 1u << 10 | 16u << 17 | 1u << 27, "ue4m3");
  says(TensorKind::mxf4, 32, 1u << 7 | 1u << 10 | 16u << 17 | 1u << 23 | 1u << 27 | 1u << 29, "odd byte");
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
