// Rows `mma.sync` and `wgmma`: dot products on the matrix instructions of the GPU, one instruction at a time. Their
// kernels are in dot.cu, the instructions in dot_table.h.
#include "kernels/cuda/dot.h"

#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda/dot_choice.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

DotTypes types_of(const DotProducts& op) {
  DotTypes types{op.a.dtype(), op.b.dtype(), op.c.dtype(), op.out.dtype()};
  if (op.scale_a.empty()) return types;
  types.block = static_cast<int>(op.a.shape()[1] / op.scale_a.shape()[1]);
  types.scale = op.scale_a.dtype();
  return types;
}

DotChoice choice(const Device& device, const DotProducts& op) {
  const CudaDevice& cuda = of(device);
  return choose_dot({cuda.compute_capability(), cuda.dot_code, HALFMARK_DOT_ARCHITECTURES}, op.instruction,
                    types_of(op));
}

template <bool kWgmma>
Refusal refuses(const Device& device, const DotProducts& op) {
  const std::initializer_list<const Tensor*> all{&op.a, &op.b, &op.scale_a, &op.scale_b, &op.c, &op.out};
  if (Refusal r = not_plain(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  const DotChoice chosen = choice(device, op);
  if (!chosen.row) return chosen.refusal;
  const std::string name(name_of(chosen.row->instruction));
  if (is_wgmma(chosen.row->instruction) != kWgmma) return name + (kWgmma ? " is not a wgmma" : " is not an mma.sync");
  const int depth = dot_depth(chosen.row->instruction);
  const int64_t k = op.a.shape()[1];
  if (k % depth)
    return name + " adds " + std::to_string(depth) + " products at a time; k = " + std::to_string(k) +
           " is not a multiple";
  return {};
}

void dot_products(Device& device, const DotProducts& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const DotRow* row = choice(device, op).row;
  const DotArgs args{op.a.data(),
                     op.b.data(),
                     array(op.scale_a).data,
                     array(op.scale_b).data,
                     op.c.data(),
                     array(op.out).data,
                     static_cast<uint32_t>(op.a.shape()[0]),
                     static_cast<uint32_t>(op.a.shape()[1]),
                     op.multiprocessor ? op.multiprocessor->as<int32_t>() : nullptr};
  launch_dot(cuda.stream(), static_cast<size_t>(row - kDotRows.row), args);
}

}  // namespace

void add_dot_rows(KernelTable& table, CudaDevice& device) {
  KernelList<DotProducts>& rows = table.of<DotProducts>();
  rows.push_back({"mma.sync", Speed::real, refuses<false>, dot_products});
  // On other GPUs the row mma.sync reports why there is no wgmma: a row that supports nothing is not listed.
  device.activate();
  device.dot_code = dot_image();
  if (has(device.dot_code, kHopper)) rows.push_back({"wgmma", Speed::real, refuses<true>, dot_products});
}

}  // namespace halfmark::kernels::cuda
