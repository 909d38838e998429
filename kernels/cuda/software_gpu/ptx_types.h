// The types of PTX, sections 5.2 and 9.2 of the PTX ISA 9.0: how wide, and what kind of number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace halfmark::kernels::software_gpu {

enum class PtxType : uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  bf16,
  f16x2,
  bf16x2,
  f32,
  f64,
};

enum class PtxKind : uint8_t { predicate, bits, unsigned_integer, signed_integer, floating };

struct PtxTypeRow {
  PtxType type;
  std::string_view name;  // as written after the dot
  int bits;               // of an element in memory or a register; 1 for pred
  PtxKind kind;
};

inline constexpr PtxTypeRow kPtxTypes[] = {
    {PtxType::pred, "pred", 1, PtxKind::predicate},
    {PtxType::b8, "b8", 8, PtxKind::bits},
    {PtxType::b16, "b16", 16, PtxKind::bits},
    {PtxType::b32, "b32", 32, PtxKind::bits},
    {PtxType::b64, "b64", 64, PtxKind::bits},
    {PtxType::u8, "u8", 8, PtxKind::unsigned_integer},
    {PtxType::u16, "u16", 16, PtxKind::unsigned_integer},
    {PtxType::u32, "u32", 32, PtxKind::unsigned_integer},
    {PtxType::u64, "u64", 64, PtxKind::unsigned_integer},
    {PtxType::s8, "s8", 8, PtxKind::signed_integer},
    {PtxType::s16, "s16", 16, PtxKind::signed_integer},
    {PtxType::s32, "s32", 32, PtxKind::signed_integer},
    {PtxType::s64, "s64", 64, PtxKind::signed_integer},
    {PtxType::f16, "f16", 16, PtxKind::floating},
    {PtxType::bf16, "bf16", 16, PtxKind::floating},
    {PtxType::f16x2, "f16x2", 32, PtxKind::floating},
    {PtxType::bf16x2, "bf16x2", 32, PtxKind::floating},
    {PtxType::f32, "f32", 32, PtxKind::floating},
    {PtxType::f64, "f64", 64, PtxKind::floating},
};

constexpr const PtxTypeRow& row_of(PtxType type) { return kPtxTypes[static_cast<int>(type)]; }
constexpr int bits_of(PtxType type) { return row_of(type).bits; }
constexpr PtxKind kind_of(PtxType type) { return row_of(type).kind; }
constexpr std::optional<PtxType> ptx_type_named(std::string_view name) {
  for (const PtxTypeRow& row : kPtxTypes)
    if (row.name == name) return row.type;
  return {};
}

}  // namespace halfmark::kernels::software_gpu
