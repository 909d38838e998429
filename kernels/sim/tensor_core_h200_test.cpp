// Outputs of an NVIDIA H200 (sm_90, driver 580.159.04, code of ptxas 13.0) for mma.sync of e4m3 with e5m2, on rows that tell
// whether a subnormal e4m3 number is aligned by the exponent of its code or as the fp16 number to which it is unpacked.
// Measured by cuda_tests (Dots.AnswerAsTheSimulatedTensorCoreBitForBit), whose inputs these are.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

struct Output {
  MatrixInstruction instruction;
  Format a_format, b_format, result;
  std::string_view a, b;  // two hexadecimal digits for each operand, in increasing k
  uint64_t c, d;
};

std::vector<uint64_t> codes_of(std::string_view digits) {
  std::vector<uint64_t> codes;
  for (size_t i = 0; i < digits.size(); i += 2)
    codes.push_back(std::stoull(std::string(digits.substr(i, 2)), nullptr, 16));
  return codes;
}

TEST(TensorCoreOutputs, OfAnH200ForE4m3WithE5m2AreReproduced) {
  using enum MatrixInstruction;
  const Output outputs[] = {
      {mma_m16n8k16, kE4m3, kE5m2, kFp32, "82018117029008088111018595028317", "64870107048482818184030284880187",
       0x40800000, 0x35e00000},
      {mma_m16n8k16, kE4m3, kE5m2, kFp32, "4e10081fa8a88898af28dede8e8f8584128ec0c075751a1b0f0f080820205555",
       "8895870757d782849b0fc848f373f4740507d050bf3fe363e7676beb61e143c3", 0xbb000000, 0x412ffb68},
      {mma_m16n8k16, kE4m3, kE5m2, kFp32,
       "e9e98281810f028118180281810382030303840101818197272701028101878172728181030702033d3d810181010101",
       "2bab040101830401d15188068181010463e3028201810281cf4f01028301818124a4810f8287038343c3020184810181", 0x80000000,
       0xb6580000},
      {mma_m16n8k16, kE4m3, kE5m2, kFp32, "038f010fc7018f8f03b78f8f830f8f0f", "6f0f0b0b072323018107838b9f8f870b",
       0x38ffffff, 0x4227ff43},
      {mma_m16n8k16, kE4m3, kE5m2, kFp32, "07278f0f03030187010181011f019f07", "5b878f0707018183018101810b018b01",
       0xb3ffffff, 0x404400b0},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "7a7a0b8b8b0486025f5f0c09818a0b065f5f088717048b88d0d087878710049e3c3c0b04048a8c934545840c17888c14",
       "01810f97a0928db3af2f1f1fbb829008af2f170c082f188f40c08eae2f101781ef6f880c86a1170fdc5c8f148f211808", 0x81ff,
       0x0468},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "e6e6068b018706835f5f030481810181a8a8828b01070283d4d404870384810c50508781838901033c3c018401838103",
       "83030101010188078e0e0f0e8281088170f00f818288020418980f0f08810f0120a0818181821181c848820801828181", 0x0000,
       0x801c},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "c7c7848784938f88cbcb028f8c0f878fb3b305048c0504076060810883810104f7f7121903018806ebeb8f84048b810b",
       "d757891f178f818f48c8878f080d8a177efe8f9a032308849818179d9f90088f81018c03888f02830f8f880f08828f0f", 0x807f,
       0x006b},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "f7f782150080878bf7f7848719000084f7f7008707808880f7f7048f13000c0ff7f7070f0a018080f7f7800180078485",
       "83030889008008908303970c81803f198303f01088048f8083031197175b04888303058d0217507183034821809f1fa6", 0x8200,
       0x008a},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "f4f4048005008880f4f4878300008000f4f4008187858708f4f4058b0d040000f4f4009780088782f4f48b800000a100",
       "8101a0f09000908081010619d5a5688081010097178817238101a082080b008081010088901f880c8101a780e8020167", 0x0100,
       0x05a1},
      {mma_m16n8k16, kE5m2, kE4m3, kFp16,
       "f3f304938e8b0087f3f380898f8b0084f3f3000000878087f3f3808c8a8c0784f3f3000f8a048793f3f3000803000008",
       "8303a08481023602830380080f8a800f830398319f270088830300108b081f878303c00f02048388830300028f80d088", 0x0080,
       0x0003},
      {mma_m16n8k32, kE4m3, kE5m2, kFp32,
       "9701909079781010271c0f0f4848e8e8d8d83e3eb808818c28888181a8189898c08147478f8f49491f010f010298e0e081810101cdcda1a"
       "096975e5ec6c70908",
       "8801c4449b1bcd4d990bcc4caf2f1898a727b0308c0b81a00881dd5d04874aca0881b131ce4eb4340b0111010917ab2b010101012babcb4"
       "bcf4fae2e30b0d454",
       0x3a0d53c2, 0xbdbfbdd4},
      {mma_m16n8k32, kE4m3, kE5m2, kFp32,
       "7c7dc9c8d817c7c74f17d9d8f7f6e9e8f6f78f82a7a7e8099c9c626256579730bdbcb7a68181d8a8f0f00001c3c260613f9f9797fefe8f8"
       "f978b505002885050",
       "af2f4ccc0424ce4e901347c7b030bc3cb8388414e262868be060c34340c004a24bcb0430f272872baf2ff777c5453bbb9c07e76736b66ce"
       "c8404c7470608c040",
       0xb7bc6eb1, 0x4205cc63},
  };
  for (const Output& one : outputs) {
    const DotTypes types{one.a_format, one.b_format, one.result, one.result};
    const TensorCore* core = find_core(tensor_cores(), "hopper", one.instruction, types);
    ASSERT_NE(core, nullptr);
    EXPECT_EQ(dot(*core, types, codes_of(one.a), codes_of(one.b), one.c), one.d) << one.a;
  }
}

}  // namespace
}  // namespace halfmark::kernels
