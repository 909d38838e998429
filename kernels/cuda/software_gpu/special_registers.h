// The special registers of section 10 of the PTX ISA that kernels may read.
#pragma once

#include <string_view>

#include "kernels/cuda/software_gpu/program.h"

namespace halfmark::kernels::software_gpu {

struct SpecialRow {
  std::string_view name;
  Special special;
  int bits;
};

inline constexpr SpecialRow kSpecialRegisters[] = {
    {"%tid.x", Special::tid_x, 32},
    {"%tid.y", Special::tid_y, 32},
    {"%tid.z", Special::tid_z, 32},
    {"%ntid.x", Special::ntid_x, 32},
    {"%ntid.y", Special::ntid_y, 32},
    {"%ntid.z", Special::ntid_z, 32},
    {"%ctaid.x", Special::ctaid_x, 32},
    {"%ctaid.y", Special::ctaid_y, 32},
    {"%ctaid.z", Special::ctaid_z, 32},
    {"%nctaid.x", Special::nctaid_x, 32},
    {"%nctaid.y", Special::nctaid_y, 32},
    {"%nctaid.z", Special::nctaid_z, 32},
    {"%laneid", Special::laneid, 32},
    {"%warpid", Special::warpid, 32},
    {"%lanemask_eq", Special::lanemask_eq, 32},
    {"%lanemask_le", Special::lanemask_le, 32},
    {"%lanemask_lt", Special::lanemask_lt, 32},
    {"%lanemask_ge", Special::lanemask_ge, 32},
    {"%lanemask_gt", Special::lanemask_gt, 32},
    {"%clock", Special::clock, 32},
    {"%clock64", Special::clock64, 64},
    {"%globaltimer", Special::globaltimer, 64},
    {"%dynamic_smem_size", Special::dynamic_smem_size, 32},
    {"%total_smem_size", Special::total_smem_size, 32},
    {"%smid", Special::smid, 32},
    {"%nsmid", Special::nsmid, 32},
    {"WARP_SZ", Special::warpsize, 32},
};

constexpr const SpecialRow* special_named(std::string_view name) {
  for (const SpecialRow& row : kSpecialRegisters)
    if (row.name == name) return &row;
  return nullptr;
}
constexpr int bits_of(Special special) {
  for (const SpecialRow& row : kSpecialRegisters)
    if (row.special == special) return row.bits;
  return 0;
}

}  // namespace halfmark::kernels::software_gpu
