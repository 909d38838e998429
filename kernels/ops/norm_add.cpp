#include "kernels/ops/norm_add.h"

#include <algorithm>
#include <string>

#include "kernels/number/error.h"
#include "kernels/tensor/memory.h"

namespace halfmark::kernels {
namespace {

// The row for operands of which the norm, or the addition, is emulated, and the one for others.
template <bool emulated>
Refusal refuses_parts(const Device&, const NormalizeRowsBackwardAdd& op) {
  const Layout layout = op.x.layout(), result = op.out.layout();
  if ((layout != Layout::plain && layout != Layout::nhwc) || op.addend.layout() != layout ||
      (result != layout && result != Layout::any))
    return "takes x, addend and result of one layout, plain or nhwc";
  const PurposeScope scope(Purpose::workspace);
  Tensor dx(op.x.device(), op.x.shape(), op.x.dtype(), layout);
  Tensor out = op.out;
  try {
    const bool is_emulated = chosen(op.norm(dx)).speed == Speed::emulated ||
                             chosen(Add{.a = dx, .b = op.addend, .out = out}).speed == Speed::emulated;
    if (is_emulated == emulated) return {};
  } catch (const Unsupported& reason) {
    return std::string("no row has a part: ") + reason.what();
  }
  return std::string("the parts on this device are ") + (emulated ? "real" : "emulated");
}
void run_parts(Device&, const NormalizeRowsBackwardAdd& op) { run_separately(op); }

}  // namespace

void run_separately(const NormalizeRowsBackwardAdd& op) {
  Tensor dx;
  {
    const PurposeScope scope(Purpose::workspace);
    dx = Tensor(op.x.device(), op.x.shape(), op.x.dtype(), op.x.layout());
  }
  run(op.norm(dx));
  run(Add{.a = dx, .b = op.addend, .out = op.out});
}

void add_norm_add_rows(KernelTable& table) {
  KernelList<NormalizeRowsBackwardAdd>& rows = table.of<NormalizeRowsBackwardAdd>();
  const auto is_real = [](const auto& row) { return row.speed == Speed::real; };
  // Whether a result repeats is known of the operations that the row runs. Simulated devices have no real ones, GPUs no others.
  if (std::ranges::any_of(table.of<NormalizeRowsBackward>(), is_real) && std::ranges::any_of(table.of<Add>(), is_real))
    rows.push_back({"separate", Speed::real, refuses_parts<false>, run_parts, Repeats::by_construction});
  if (std::ranges::all_of(table.of<NormalizeRowsBackward>(), is_real) && std::ranges::all_of(table.of<Add>(), is_real))
    return;
  rows.push_back({"separate-emulated", Speed::emulated, refuses_parts<true>, run_parts, Repeats::by_construction});
}

}  // namespace halfmark::kernels
