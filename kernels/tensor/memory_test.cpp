// Tests of the memory ledger: the peak of tensors alone, and the purpose of emulation.
#include "kernels/tensor/memory.h"

#include <gtest/gtest.h>

namespace halfmark::kernels {
namespace {

TEST(MemoryLedger, ThePeakOfTensorsIsItsOwnMomentWithoutScratch) {
  MemoryLedger ledger;
  ledger.add(Purpose::saved, 100), ledger.add(Purpose::workspace, 1000);  // the largest total
  ledger.remove(Purpose::workspace, 1000);
  ledger.add(Purpose::temporary, 50), ledger.add(Purpose::emulation, 7);  // the most tensors
  EXPECT_EQ(ledger.peak().total, 1100u);
  EXPECT_EQ(ledger.tensor_peak(), 150u);
  ledger.remove(Purpose::temporary, 50);
  ledger.reset_peak();
  EXPECT_EQ(ledger.tensor_peak(), 100u);
}

TEST(MemoryLedger, ARetaggedTensorCountsFromThenOn) {
  MemoryLedger ledger;
  ledger.add(Purpose::workspace, 40);
  EXPECT_EQ(ledger.tensor_peak(), 0u);
  ledger.retag(Purpose::workspace, Purpose::saved, 40);
  EXPECT_EQ(ledger.tensor_peak(), 40u);
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
