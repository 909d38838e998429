#include "kernels/cuda/software_gpu/tensor_descriptors.h"

#include <optional>

namespace halfmark::kernels::software_gpu {
namespace {

uint32_t descriptor_field(uint64_t descriptor, int first, int last) {
  return static_cast<uint32_t>(descriptor >> first & ((uint64_t{1} << (last - first + 1)) - 1));
}

bool has_scales(TensorKind kind) {
  return kind == TensorKind::mxf8f6f4 || kind == TensorKind::mxf4 || kind == TensorKind::mxf4nvf4;
}
bool of_four_bits(TensorKind kind) { return kind == TensorKind::mxf4 || kind == TensorKind::mxf4nvf4; }

std::optional<DType> operand_type(TensorKind kind, uint32_t code) {
  switch (kind) {
    case TensorKind::tf32:
      if (code == 2) return DType::f32;
      break;
    case TensorKind::f16:
      if (code == 0) return DType::f16;
      if (code == 1) return DType::bf16;
      break;
    case TensorKind::f8f6f4:
    case TensorKind::mxf8f6f4:  // 3, 4, 5: e2m3, e3m2 and e2m1, which are padded in shared memory
      if (code == 0) return DType::e4m3;
      if (code == 1) return DType::e5m2;
      break;
    case TensorKind::mxf4:
    case TensorKind::mxf4nvf4:
      if (code == 1) return DType::e2m1;
      break;
  }
  return {};
}

MatrixInstruction instruction_of(TensorKind kind) {
  if (kind == TensorKind::tf32) return MatrixInstruction::tcgen05_k8;
  if (kind == TensorKind::f16) return MatrixInstruction::tcgen05_k16;
  return of_four_bits(kind) ? MatrixInstruction::tcgen05_k64 : MatrixInstruction::tcgen05_k32;
}

}  // namespace

std::string read_instruction_descriptor(TensorKind kind, int block, uint32_t d, TensorProduct& p) {
  const std::string name = "the instruction descriptor " + std::to_string(d);
  if (descriptor_field(d, 0, 3))
    return name + " has sparsity or saturation in bits 0 to 3, which the software GPU has not";
  if (descriptor_field(d, 15, 16)) return name + " transposes, which the software GPU has not";
  if (descriptor_field(d, 6, 6)) return name + " has the reserved bit 6";
  p.negate_a = descriptor_field(d, 13, 13), p.negate_b = descriptor_field(d, 14, 14);
  const auto a = operand_type(kind, descriptor_field(d, 7, 9));
  const auto b = operand_type(kind, descriptor_field(d, 10, of_four_bits(kind) ? 11 : 12));
  if (!a || !b) return name + " has operand types that the kind has not or the software GPU has not";
  p.n = static_cast<int>(descriptor_field(d, 17, 22)) * 8;
  DType result = DType::f32;
  DType scale = DType::e8m0;
  if (has_scales(kind)) {
    if (descriptor_field(d, 24, 26) || descriptor_field(d, 31, 31) ||
        (of_four_bits(kind) && descriptor_field(d, 12, 12)))
      return name + " has a reserved bit or K = 96";
    p.m = static_cast<int>(descriptor_field(d, 27, 28)) * 128;
    p.scale_byte_a = static_cast<int>(descriptor_field(d, 29, 30)),
    p.scale_byte_b = static_cast<int>(descriptor_field(d, 4, 5));
    if (descriptor_field(d, 23, 23) == 0) {
      if (kind != TensorKind::mxf4nvf4 || block != 16) return name + " has scales of ue4m3, which the kind has not";
      scale = DType::e4m3;
    }
    // Which byte of the 32 bits is the first: any of four single ones, of two pairs, or the only four.
    const int step = kind == TensorKind::mxf8f6f4 ? 1 : 64 / block;
    if (p.scale_byte_a % step || p.scale_byte_b % step) return name + " has scales that begin in an odd byte";
  } else {
    if (descriptor_field(d, 23, 23) || descriptor_field(d, 29, 31)) return name + " has a reserved bit";
    p.m = static_cast<int>(descriptor_field(d, 24, 28)) * 16;
    const uint32_t code = descriptor_field(d, 4, 5);
    if (code > 1 || (code == 0 && kind == TensorKind::tf32)) return name + " has a type of D that the kind has not";
    result = code ? DType::f32 : DType::f16;
    if (code == 0 && *a == DType::bf16) return name + " adds bf16 in f16";
  }
  if (p.m != 128) return name + " has M = " + std::to_string(p.m) + "; the software GPU has 128";
  if (p.n < 16 || p.n > 256 || p.n % 16) return name + " has N = " + std::to_string(p.n);
  p.types = {instruction_of(kind), *a, *b, result, result, block, scale};
  p.k = depth_of(p.types.instruction);
  p.bits = 256 / p.k;
  return {};
}

std::string check_matrix_descriptor(uint64_t d) {
  const std::string name = "the matrix descriptor " + std::to_string(d);
  if (descriptor_field(d, 46, 48) != 1) return name + " has not 0b001 in bits 46 to 48";
  if (descriptor_field(d, 14, 15) || descriptor_field(d, 30, 31) || descriptor_field(d, 53, 60))
    return name + " has a reserved bit";
  if (descriptor_field(d, 49, 51) || descriptor_field(d, 52, 52) || descriptor_field(d, 61, 63))
    return name + " has a swizzle, a base offset or absolute addresses, which the software GPU has not";
  return {};
}

ScalePlace scale_place(int line, int index, int first_byte) {
  return {static_cast<uint32_t>(line / 32), line % 32, first_byte + index};
}

}  // namespace halfmark::kernels::software_gpu
