// Rows `mma.sync`, `wgmma` and `tcgen05`: dot products on the matrix instructions of the GPU, one instruction at a time.
// Their kernels are in dot.cu and dot_tcgen05.cu, the instructions in dot_table.h.
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

enum class Family : uint8_t { mma_sync, wgmma, tcgen05 };
Family family_of(MatrixInstruction instruction) {
  return is_tcgen05(instruction) ? Family::tcgen05 : is_wgmma(instruction) ? Family::wgmma : Family::mma_sync;
}
constexpr const char* name_of(Family family) {
  return family == Family::tcgen05 ? "tcgen05" : family == Family::wgmma ? "wgmma" : "mma.sync";
}

template <Family kFamily>
Refusal refuses(const Device& device, const DotProducts& op) {
  const std::initializer_list<const Tensor*> all{&op.a, &op.b, &op.scale_a, &op.scale_b, &op.c, &op.out};
  if (Refusal r = not_plain(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  const DotChoice chosen = choice(device, op);
  if (!chosen.row) return chosen.refusal;
  const std::string name(name_of(chosen.row->instruction));
  if (family_of(chosen.row->instruction) != kFamily)
    return name + (kFamily == Family::mma_sync ? " is not an " : " is not a ") + name_of(kFamily);
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
  rows.push_back({"mma.sync", Speed::real, refuses<Family::mma_sync>, dot_products});
  // On other GPUs the row mma.sync reports why there is no such instruction: a row that supports nothing is not listed.
  device.activate();
  device.dot_code = dot_image();
  if (has(device.dot_code, kHopper)) rows.push_back({"wgmma", Speed::real, refuses<Family::wgmma>, dot_products});
  if (has(device.dot_code, kBlackwell))
    rows.push_back({"tcgen05", Speed::real, refuses<Family::tcgen05>, dot_products});
}

}  // namespace halfmark::kernels::cuda
