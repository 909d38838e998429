// What the CPU's list of rows guarantees as a whole.
#include "kernels/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "kernels/devices.h"
#include "kernels/ops/cases/cases.h"

namespace halfmark::kernels {
namespace {

struct F16Visitor {
  bool& found;
  void input(std::string_view, const Tensor& tensor) {
    found = found || (!tensor.empty() && tensor.dtype() == DType::f16);
  }
  void output(std::string_view name, const Tensor& tensor) { input(name, tensor); }
  void attribute(const auto&) {}
};

bool any_f16(const Operation auto& op) {
  bool found = false;
  op.visit(F16Visitor{found});
  return found;
}

// A cast or a reorder copies numbers with the processor's own conversions and computes nothing.
template <class Op>
constexpr bool kMovesOnly =
    std::is_same_v<Op, Cast> || std::is_same_v<Op, CastTensors> || std::is_same_v<Op, Reorder> ||
    std::is_same_v<Op, CopyChannels> || std::is_same_v<Op, Permute> || std::is_same_v<Op, NarrowIndices> ||
    std::is_same_v<Op, Embedding>;

// All of its operands are f32.
template <class Op>
constexpr bool kHasNoF16 = std::is_same_v<Op, DelayedScalingStep>;

TEST(CpuDevice, NeverCallsFp16ArithmeticReal) {
  const auto device = open_device("cpu");
  const ops_cases::Axes axes = ops_cases::tested_axes();
  const ops_cases::CaseRequest request{*device, axes, false};
  device->kernels().each([&]<class Op>(const KernelList<Op>& list) {
    if constexpr (kMovesOnly<Op> || kHasNoF16<Op>) return;
    int seen = 0;
    ops_cases::Cases<Op>::each(request, [&](const std::string& name, const Op& op, const ops_cases::Comparison&) {
      if (!any_f16(op)) return;
      ++seen;
      for (const Kernel<Op>& kernel : list) {
        if (kernel.speed != Speed::real) continue;
        EXPECT_TRUE(kernel.refuses(*device, op)) << kernel.name << " takes " << name;
      }
    });
    EXPECT_TRUE(seen > 0 || list.empty()) << Op::name << " was tried with no f16 operand";
  });
}

}  // namespace
}  // namespace halfmark::kernels
