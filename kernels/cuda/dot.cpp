// Rows `mma.sync` and `wgmma`: dot products on the matrix instructions that the GPU has, one at a time. Their kernels
// in dot.cu, the instructions in dot_table.h.
#include "kernels/cuda/dot.h"

#include "kernels/cuda/rows.h"

namespace halfmark::cuda {
namespace {

bool takes(const DotRow& row, const DotProducts& op) {
  if (row.a != op.a.dtype() || row.b != op.b.dtype() || row.c != op.c.dtype() || row.out != op.out.dtype())
    return false;
  if (op.scale_a.empty() || row.block == 0) return op.scale_a.empty() && row.block == 0;
  return row.scale == op.scale_a.dtype() && row.block == op.a.shape()[1] / op.scale_a.shape()[1];
}

std::string sm(int capability) { return "sm_" + std::to_string(capability); }

std::string where(const Reach& reach) {
  if (reach.to == kNewest) return sm(reach.from) + " and newer";
  const char* suffix = reach.specific ? "a" : "";
  if (reach.from == reach.to) return sm(reach.from) + suffix;
  return sm(reach.from) + suffix + " to " + sm(reach.to) + suffix;
}

// Why this GPU, or this build on it, does not have the instruction.
Refusal missing(const DotRow& row, const DotImage& image, int capability, const DotProducts& op) {
  // The GPU is asked too: code for sm_75 may have come to a newer one by way of PTX.
  const bool within = row.reach.from <= capability && capability <= row.reach.to;
  if (within && has(image, row.reach)) return {};
  const std::string what = std::string(name_of(row.instruction)) + " of " + dtypes_of(op);
  if (!within) return what + " is an instruction of " + where(row.reach) + ", this GPU is " + sm(capability);
  return what + " needs code for " + where(row.reach) +
         ", this build has it for " HALFMARK_DOT_ARCHITECTURES "; configure with -DCMAKE_CUDA_ARCHITECTURES=" +
         std::to_string(capability);
}

bool is_tcgen05(MatrixInstruction instruction) {
  using enum MatrixInstruction;
  return instruction == tcgen05_k8 || instruction == tcgen05_k16 || instruction == tcgen05_k32 ||
         instruction == tcgen05_k64;
}

// The instruction meant on this GPU; nothing and a reason where there is none.
struct Meant {
  const DotRow* row = nullptr;
  Refusal refusal;
};
Meant meant(const DotImage& image, int capability, const DotProducts& op) {
  const bool usual = op.instruction == MatrixInstruction::usual;
  // Blackwell's data centre GPUs, sm_100 to sm_110, multiply operands of 8 bits and fewer by tcgen05; their mma.sync
  // unpacks FP8 to f16 and adds otherwise.
  const bool usually_tcgen05 = capability >= 100 && capability < 120 && dot_bits(op.a.dtype()) <= 8;
  if (is_tcgen05(op.instruction) || (usual && usually_tcgen05))
    return {nullptr, std::string("not built: tcgen05 instructions") +
                         (usual ? ", the usual ones of " + sm(capability) + " for " + dtypes_of(op) : "")};
  Refusal first;
  for (const DotRow& row : kDotRows.row) {
    if (!takes(row, op) || (!usual && row.instruction != op.instruction)) continue;
    Refusal reason = missing(row, image, capability, op);
    if (!reason) return {&row, {}};
    if (!first) first = std::move(reason);
  }
  if (first) return {nullptr, first};
  const std::string scales =
      op.scale_a.empty() ? "" : " with a scale for " + std::to_string(op.a.shape()[1] / op.scale_a.shape()[1]);
  return {nullptr, (usual ? "no matrix instruction" : "no " + std::string(name_of(op.instruction))) + " takes " +
                       dtypes_of(op) + scales};
}

Meant meant(const Device& device, const DotProducts& op) {
  const CudaDevice& cuda = of(device);
  cuda.activate();
  return meant(dot_image(), cuda.compute_capability(), op);
}

template <bool kWgmma>
Refusal refuses(const Device& device, const DotProducts& op) {
  const std::initializer_list<const Tensor*> all{&op.a, &op.b, &op.scale_a, &op.scale_b, &op.c, &op.out};
  if (Refusal r = not_plain(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  const Meant m = meant(device, op);
  if (!m.row) return m.refusal;
  const std::string name(name_of(m.row->instruction));
  if (is_wgmma(m.row->instruction) != kWgmma) return name + (kWgmma ? " is no wgmma" : " is no mma.sync");
  const int64_t k = op.a.shape()[1];
  if (k % dot_depth(m.row->instruction))
    return name + " adds " + std::to_string(dot_depth(m.row->instruction)) + " products at a time, k is " +
           std::to_string(k);
  return {};
}

void dot_products(Device& device, const DotProducts& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const DotRow* row = meant(device, op).row;
  const DotArgs args{op.a.data(),
                     op.b.data(),
                     array(op.scale_a).data,
                     array(op.scale_b).data,
                     op.c.data(),
                     array(op.out).data,
                     static_cast<uint32_t>(op.a.shape()[0]),
                     static_cast<uint32_t>(op.a.shape()[1])};
  launch_dot(cuda.stream(), static_cast<size_t>(row - kDotRows.row), args);
}

}  // namespace

void add_dot_rows(KernelTable& table, const CudaDevice& device) {
  table.of<DotProducts>().push_back({"mma.sync", Speed::real, refuses<false>, dot_products});
  // Elsewhere the row above says why there is no wgmma: a row that can take nothing is no row.
  device.activate();
  if (has(dot_image(), kHopper)) table.of<DotProducts>().push_back({"wgmma", Speed::real, refuses<true>, dot_products});
}

}  // namespace halfmark::cuda
