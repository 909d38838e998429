// A dtype that device code does not read is refused by every row, in the place of any operand: rows name the dtypes that
// they take, so one that is added later is refused until it is implemented.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/ops/cases/axes.h"
#include "kernels/ops/cases/cases.h"

namespace halfmark::kernels {
namespace {

bool is_read(DType dtype) {
  for (const DType one : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2})
    if (dtype == one) return true;
  return false;
}

// Gives one operand another dtype, of as many elements, for as long as it lives: operations refer to their operands.
struct Exchange {
  explicit Exchange(int number) : place(number) {}
  ~Exchange() {
    if (exchanged) *exchanged = before;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int place, at = 0;
  Tensor* exchanged = nullptr;
  Tensor before;
  void input(std::string_view, const Tensor& tensor) {
    if (at++ != place || tensor.empty() || !is_read(tensor.dtype())) return;
    exchanged = const_cast<Tensor*>(&tensor), before = tensor;
    *exchanged = Tensor(tensor.device(), tensor.shape(), DType::e4m3fnuz, tensor.layout());
  }
  void output(std::string_view name, const Tensor& tensor) { input(name, tensor); }
  void attribute(const auto&) {}
  void next() {}
};

// By the row, or by the operation itself.
template <class Op>
bool is_refused(const Device& device, const Kernel<Op>& row, const Op& op) {
  try {
    op.check();
  } catch (const Error&) {
    return true;
  }
  return row.refuses(device, op).has_value();
}

constexpr int kMostOperands = 16, kCasesOfARow = 6;

template <class Op>
int expect_refused(Device& device, const Kernel<Op>& row) {
  int cases = 0;
  const ops_cases::CaseRequest request{device, ops_cases::tested_axes(), true, true, row.rounds_between};
  ops_cases::Cases<Op>::each(request, [&](const std::string& name, const Op& op, const ops_cases::Comparison&) {
    if (cases == kCasesOfARow || row.refuses(device, op)) return;
    ++cases;
    for (int place = 0; place < kMostOperands; ++place) {
      Exchange exchange(place);
      op.visit(exchange);
      if (!exchange.exchanged) continue;
      EXPECT_TRUE(is_refused(device, row, op)) << Op::name << " " << row.name << " " << name << ", operand " << place;
    }
  });
  return cases;
}

class NewDTypes : public Gpu {};

TEST_F(NewDTypes, AreRefusedByEveryRowInThePlaceOfEveryOperand) {
  std::map<std::string, int> cases;  // of each row that takes any
  gpu().kernels().each([&]<class Op>(const KernelList<Op>& list) {
    for (const Kernel<Op>& row : list) cases[std::string(row.name)] += expect_refused(gpu(), row);
  });
  for (const char* row : {"cublaslt", "cublas", "cudnn", "cuda", "cuda-direct"}) EXPECT_GT(cases[row], 3) << row;
}

}  // namespace
}  // namespace halfmark::kernels
