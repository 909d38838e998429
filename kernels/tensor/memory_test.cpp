// Tests of the memory ledger: the peak of tensors alone, and the purpose of emulation.
#include "kernels/tensor/memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/devices.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {
namespace {

TEST(MemoryLedger, ThePeakOfTensorsIsItsOwnMomentWithoutScratch) {
  MemoryLedger ledger;
  ledger.add(Purpose::saved, 100), ledger.add(Purpose::workspace, 1000);  // the largest total
  ledger.remove(Purpose::workspace, 1000);
  ledger.add(Purpose::temporary, 50), ledger.add(Purpose::emulation, 7);  // the most tensors
  EXPECT_EQ(ledger.peak().total, 1100u);
  EXPECT_EQ(ledger.tensor_peak().total, 150u);
  EXPECT_EQ(ledger.tensor_peak().by_purpose[static_cast<size_t>(Purpose::temporary)], 50u);
  EXPECT_EQ(ledger.tensor_peak().by_purpose[static_cast<size_t>(Purpose::emulation)], 0u);
  ledger.remove(Purpose::temporary, 50);
  ledger.reset_peak();
  EXPECT_EQ(ledger.tensor_peak().total, 100u);
}

TEST(MemoryLedger, ARetaggedTensorCountsFromThenOn) {
  MemoryLedger ledger;
  ledger.add(Purpose::workspace, 40);
  EXPECT_EQ(ledger.tensor_peak().total, 0u);
  ledger.retag(Purpose::workspace, Purpose::saved, 40);
  EXPECT_EQ(ledger.tensor_peak().total, 40u);
}

// A layout that stores each row of three in a block of eight.
class Blocks : public OpaqueLayout {
 public:
  size_t bytes() const override { return size_t{2} * 8 * 4; }
  uint64_t hash() const override { return 1; }
  std::string text() const override { return "blocks of eight"; }
};

TEST(MemoryLedger, CountsWhatALayoutAddsAsPadding) {
  const auto device = open_device("cpu");
  const MemoryLedger& ledger = device->memory();
  const auto live = [&](Purpose purpose) { return ledger.live().by_purpose[static_cast<size_t>(purpose)]; };
  {
    Tensor tensor(*device, {2, 3}, DType::f32, Layout::any);
    tensor.materialize(std::make_shared<Blocks>());
    EXPECT_EQ(tensor.bytes(), 64u);
    EXPECT_EQ(live(Purpose::temporary), 24u);
    EXPECT_EQ(live(Purpose::padding), 40u);
    tensor.set_purpose(Purpose::saved);
    EXPECT_EQ(live(Purpose::temporary), 0u);
    EXPECT_EQ(live(Purpose::saved), 24u);
    EXPECT_EQ(ledger.live().total, 64u);
    EXPECT_EQ(ledger.tensor_peak().total, 24u);
    const PurposeScope scratch(Purpose::workspace);
    Tensor packed(*device, {2, 3}, DType::f32, Layout::any);
    packed.materialize(std::make_shared<Blocks>());
    EXPECT_EQ(live(Purpose::workspace), 64u) << "all of scratch is scratch";
    EXPECT_EQ(live(Purpose::padding), 40u);
  }
  EXPECT_EQ(ledger.live().total, 0u);
}

TEST(EmulationScope, TurnsWorkspaceIntoEmulationUntilItEnds) {
  {
    const EmulationScope outer(true);
    const EmulationScope inner(false);  // a real row called by an emulated one
    const PurposeScope scratch(Purpose::workspace);
    EXPECT_EQ(current_purpose(), Purpose::emulation);
    const PurposeScope result(Purpose::saved);
    EXPECT_EQ(current_purpose(), Purpose::saved);
  }
  const EmulationScope none(false);
  const PurposeScope scratch(Purpose::workspace);
  EXPECT_EQ(current_purpose(), Purpose::workspace);
}

}  // namespace
}  // namespace halfmark::kernels
