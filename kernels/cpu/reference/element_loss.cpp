// Reference rows of the element-wise losses: fp64 from the operands as stored, every output rounded once.
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/losses.h"

namespace halfmark::kernels::reference {
namespace {

template <class Row>
void element_loss(Device&, const ElementLoss<Row>& op) {
  const std::vector<double> x = read<double>(op.output), y = read<double>(op.target);
  const std::vector<double> weights = op.weights ? read<double>(*op.weights) : std::vector<double>();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (op.weights && weights[i] == 0) continue;
    sum += Row::value(x[i], y[i], op.a, op.b) * (op.weights ? weights[i] : 1);
  }
  settle(op.loss, op.loss);
  write(op.loss, std::vector<double>{op.weights ? sum : sum / static_cast<double>(x.size())});
}

template <class Row>
void element_loss_backward(Device&, const ElementLossBackward<Row>& op) {
  const std::vector<double> x = read<double>(op.output), y = read<double>(op.target);
  const std::vector<double> weights = op.weights ? read<double>(*op.weights) : std::vector<double>();
  const double factor = op.weights ? op.dloss : op.dloss / static_cast<double>(x.size());
  std::vector<double> gradient(x.size());
  parallel_for(op.output.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      gradient[i] = op.weights && weights[i] == 0
                        ? 0
                        : Row::slope(x[i], y[i], op.a, op.b) * (op.weights ? weights[i] : 1) * factor;
  });
  settle(op.doutput, op.output);
  write(op.doutput, gradient);
}

}  // namespace

void add_element_loss_rows(KernelTable& table) {
  losses::All::each([&]<class Row>() {
    add_row<ElementLoss<Row>>(table, element_loss<Row>);
    add_row<ElementLossBackward<Row>>(table, element_loss_backward<Row>);
  });
}

}  // namespace halfmark::kernels::reference
