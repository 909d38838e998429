#include "kernels/ops/norm_add.h"

#include <algorithm>
#include <string>

#include "kernels/number/error.h"
#include "kernels/tensor/memory.h"

namespace halfmark::kernels {
namespace {

bool is_readable(Layout layout) { return layout == Layout::plain || layout == Layout::nhwc; }
bool takes(Layout result, Layout layout) { return result == layout || result == Layout::any; }

Refusal refuses_layouts(const AddNormalizeRows& op) {
  const Layout layout = op.a.layout();
  if (is_readable(layout) && op.b.layout() == layout && takes(op.sum.layout(), layout) &&
      takes(op.out.layout(), layout))
    return {};
  return "takes a, b, sum and result of one layout, plain or nhwc";
}
Refusal refuses_layouts(const NormalizeRowsBackwardAdd& op) {
  const Layout layout = op.x.layout();
  if (is_readable(layout) && op.addend.layout() == layout && takes(op.out.layout(), layout)) return {};
  return "takes x, addend and result of one layout, plain or nhwc";
}

template <class... Parts>
bool is_emulated(const Parts&... parts) {
  return ((chosen(parts).speed == Speed::emulated) || ...);
}
bool has_emulated_part(const AddNormalizeRows& op) {
  const Tensor& as_sum = op.sum.dtype() == op.a.dtype() ? op.a : op.b;
  return is_emulated(op.add(), op.norm(as_sum));
}
bool has_emulated_part(const NormalizeRowsBackwardAdd& op) {
  const PurposeScope scope(Purpose::workspace);
  Tensor dx(op.x.device(), op.x.shape(), op.x.dtype(), op.x.layout());
  Tensor out = op.out;
  return is_emulated(op.norm(dx), Add{.a = dx, .b = op.addend, .out = out});
}

// The row for operands of which the norm, or the addition, is emulated, and the one for others.
template <class Op, bool emulated>
Refusal refuses_parts(const Device&, const Op& op) {
  if (Refusal r = refuses_layouts(op)) return r;
  try {
    if (has_emulated_part(op) == emulated) return {};
  } catch (const Unsupported& reason) {
    return std::string("no row has a part: ") + reason.what();
  }
  return std::string("the parts on this device are ") + (emulated ? "real" : "emulated");
}
template <class Op>
void run_parts(Device&, const Op& op) {
  run_separately(op);
}

template <class Op, class Norm>
void add_rows(KernelTable& table) {
  KernelList<Op>& rows = table.of<Op>();
  const auto is_real = [](const auto& row) { return row.speed == Speed::real; };
  // Whether a result repeats is known of the operations that the row runs. Simulated devices have no real ones, GPUs no others.
  if (std::ranges::any_of(table.of<Norm>(), is_real) && std::ranges::any_of(table.of<Add>(), is_real))
    rows.push_back({"separate", Speed::real, refuses_parts<Op, false>, run_parts<Op>, Repeats::by_construction});
  if (std::ranges::all_of(table.of<Norm>(), is_real) && std::ranges::all_of(table.of<Add>(), is_real)) return;
  rows.push_back(
      {"separate-emulated", Speed::emulated, refuses_parts<Op, true>, run_parts<Op>, Repeats::by_construction});
}

}  // namespace

void run_separately(const AddNormalizeRows& op) {
  run(op.add());
  run(op.norm(op.sum));
}

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
  add_rows<AddNormalizeRows, NormalizeRows>(table);
  add_rows<NormalizeRowsBackwardAdd, NormalizeRowsBackward>(table);
}

}  // namespace halfmark::kernels
