// The adversarial inputs would detect a wrong model: each mistake that a model can make, on each machine where it makes
// a difference, must change a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "kernels/sim/exact_machines_testing.h"
#include "kernels/sim/tensor_core_inputs_testing.h"

namespace halfmark::kernels::exact {
namespace {

bool fused(const Machine& m) { return m.way != Way::fma; }
bool chained(const Machine& m) { return m.way == Way::blocks || m.way == Way::groups; }
bool in_blocks(const Machine& m) { return m.way == Way::blocks; }
bool of_products(const Machine& m) { return m.way == Way::blocks || m.way == Way::interleaved; }
bool of_groups(const Machine& m) { return m.way == Way::groups; }
bool is_interleaved(const Machine& m) { return m.way == Way::interleaved; }
bool is_fma(const Machine& m) { return m.way == Way::fma; }
bool always(const Machine&) { return true; }
bool with_floor(const Machine& m) { return m.way == Way::blocks && m.zero_floor > kUnreachable; }
bool without_floor(const Machine& m) { return fused(m) && m.zero_floor == kNoFloor; }
bool to_fp16(const Machine& m) { return m.d == Type::fp16; }
// 13 kept bits and the carries of 32 products are fewer than fp32's 24.
bool to_fp16_with_long_sums(const Machine& m) { return to_fp16(m) && m.kept > 13; }
bool to_e8m13(const Machine& m) { return fused(m) && m.output == Output::cut_e8m13; }
bool on_tf32(const Machine& m) { return m.a == Type::tf32; }
bool mixed(const Machine& m) { return m.c != m.d; }
bool with_ue4m3(const Machine& m) { return m.scale_block && m.scale == Type::e4m3; }
bool with_ue8m0(const Machine& m) { return m.scale_block && m.scale == Type::e8m0; }

// The smallest bit of a product is below the result's smallest. A sum to E8M13 loses bits below 2^-139 in the
// alignment, before it is rounded.
bool can_underflow(const Machine& m) {
  if (m.way == Way::fma || to_e8m13(m)) return false;
  if (m.scale_block) return with_ue8m0(m);
  return Draw::lowest(m.a) + Draw::lowest(m.b) < (m.d == Type::fp16 ? -24 : -149);
}

// A product with a subnormal factor can be the largest term, with another term having bits below its last kept one.
bool subnormals_can_lead(const Machine& m) {
  if (!of_products(m)) return false;
  constexpr int kNever = -999;
  // Of fp8 unpacked to fp16 only e5m2 stays subnormal.
  const auto subnormal = [&](Type type) {
    return m.way == Way::interleaved && type == Type::e4m3 ? kNever : 1 - code_of(type).bias;
  };
  const int largest = std::max(subnormal(m.a) + Draw::highest(m.b), subnormal(m.b) + Draw::highest(m.a));
  const int product = Draw::lowest(m.a) + Draw::lowest(m.b);
  return (m.way == Way::blocks ? std::min(product, Draw::lowest(m.c)) : product) < largest - m.kept;
}

// The same for fp8 that is unpacked to fp16: of e4m3 times e5m2, in fp16's exponents.
bool e4m3_subnormals_can_lead(const Machine& m) { return is_interleaved(m) && m.a != m.b; }

struct Planted {
  Mistake mistake;
  std::string_view name;
  bool (*matters)(const Machine&);
};
void PrintTo(const Planted& planted, std::ostream* stream) { *stream << planted.name; }
constexpr Planted kPlanted[] = {
    {Mistake::one_bit_more, "OneBitMore", fused},
    {Mistake::one_bit_less, "OneBitLess", fused},
    {Mistake::other_rounding_of_output, "OtherRoundingOfOutput", fused},
    {Mistake::half_the_block, "HalfTheBlock", chained},
    {Mistake::twice_the_block, "TwiceTheBlock", chained},
    {Mistake::alignment_rounds_down, "AlignmentRoundsDown", fused},
    {Mistake::alignment_to_nearest, "AlignmentToNearest", fused},
    {Mistake::products_renormalised, "ProductsRenormalised", of_products},
    {Mistake::subnormals_normalised, "SubnormalsNormalised", subnormals_can_lead},
    {Mistake::subnormals_flushed, "SubnormalsFlushed", always},
    {Mistake::last_block_first, "LastBlockFirst", always},
    {Mistake::addend_afterwards, "AddendAfterwards", chained},
    {Mistake::floor_one_higher, "FloorOneHigher", with_floor},
    {Mistake::floor_one_lower, "FloorOneLower", with_floor},
    {Mistake::floor_where_there_is_none, "FloorWhereThereIsNone", without_floor},
    {Mistake::fp16_through_fp32, "Fp16ThroughFp32", to_fp16_with_long_sums},
    {Mistake::nan_payload_kept, "NanPayloadKept", fused},
    {Mistake::negative_zero_kept, "NegativeZeroKept", in_blocks},
    {Mistake::underflow_keeps_its_sign, "UnderflowKeepsItsSign", can_underflow},
    {Mistake::tf32_rounded, "Tf32Rounded", on_tf32},
    {Mistake::tf32_nan_stays, "Tf32NanStays", on_tf32},
    {Mistake::e8m13_as_fp32, "E8m13AsFp32", to_e8m13},
    {Mistake::e8m13_addend_passes, "E8m13AddendPasses", to_e8m13},
    {Mistake::not_interleaved, "NotInterleaved", is_interleaved},
    {Mistake::halves_swapped, "HalvesSwapped", is_interleaved},
    {Mistake::unpacked_keep_exponent, "UnpackedKeepExponent", e4m3_subnormals_can_lead},
    {Mistake::addend_in_first_half, "AddendInFirstHalf", is_interleaved},
    {Mistake::addend_cut, "AddendCut", is_interleaved},
    {Mistake::mixed_addend_as_fp16, "MixedAddendAsFp16", mixed},
    {Mistake::mixed_result_through_fp16, "MixedResultThroughFp16", mixed},
    {Mistake::groups_of_eight, "GroupsOfEight", of_groups},
    {Mistake::zero_group_counts, "ZeroGroupCounts", of_groups},
    {Mistake::cancelled_group_ignored, "CancelledGroupIgnored", of_groups},
    {Mistake::group_aligned_by_its_size, "GroupAlignedByItsSize", of_groups},
    {Mistake::scale_sign_counts, "ScaleSignCounts", with_ue4m3},
    {Mistake::scale_zero_is_zero, "ScaleZeroIsZero", with_ue8m0},
    {Mistake::scale_nan_ignored, "ScaleNanIgnored", of_groups},
    {Mistake::product_rounded, "ProductRounded", is_fma},
};

// The rows that tensor_core_adversarial_test.cpp uses in a short run, until one result differs.
std::string caught_by(const Machine& machine, Mistake mistake, uint64_t rows) {
  const auto depth = static_cast<size_t>(depth_of(machine.instruction));
  for (uint64_t number = 0; number < rows; ++number)
    for (const InputClass& input_class : kInputClasses) {
      if (!input_class.fits(machine)) continue;
      for (size_t instructions = 1; instructions <= 3; ++instructions) {
        const Row row = row_of(input_class, machine, instructions * depth, number);
        if (dot(machine, row.inputs()) != dot(machine, row.inputs(), mistake)) return std::string(input_class.name);
      }
    }
  return "";
}

class AMistake : public testing::TestWithParam<Planted> {};

TEST_P(AMistake, IsCaughtOnEveryMachineWhereItMakesADifference) {
  const Planted& planted = GetParam();
  int machines_seen = 0;
  for (const Machine& machine : machines()) {
    if (!planted.matters(machine)) continue;
    ++machines_seen;
    EXPECT_NE(caught_by(machine, planted.mistake, kRowsOfAClass), "") << planted.name << " on " << text_of(machine);
  }
  EXPECT_GT(machines_seen, 0);
}

TEST_P(AMistake, MakesNoDifferenceElsewhere) {
  const Planted& planted = GetParam();
  for (const Machine& machine : machines())
    if (!planted.matters(machine)) {
      EXPECT_EQ(caught_by(machine, planted.mistake, 1), "") << planted.name << " on " << text_of(machine);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, AMistake, testing::ValuesIn(kPlanted),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace halfmark::kernels::exact
