// Rows of what moves elements; their kernels are in copy.cu.
//
// The device cannot stop at a wrong index as the CPU does. An embedding of an index outside of the table is NaN, and adds
// nothing to the gradient. An index that does not fit 32 bits becomes -2^31, which is outside of every table.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

uint32_t as_count(int64_t n) { return static_cast<uint32_t>(n); }

// The widest unit of which all these numbers of bytes are multiples, and the addresses of the tensors: a slice may start
// anywhere.
size_t unit_of(std::initializer_list<size_t> bytes, std::initializer_list<const Tensor*> tensors) {
  size_t all = 16;
  for (const size_t one : bytes) all = std::gcd(all, one);
  for (const Tensor* tensor : tensors) all = std::gcd(all, reinterpret_cast<uintptr_t>(tensor->data()));
  return all;
}

Refusal not_movable(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (is_packed(tensor->dtype())) return "moves whole bytes, not " + std::string(name_of(tensor->dtype()));
  if (Refusal r = not_indexable(tensors)) return r;
  return {};
}

Refusal permute_refuses(const Device&, const Permute& op) {
  if (Refusal r = not_plain({&op.x, &op.out})) return r;
  return not_movable({&op.x});
}

struct Axis {            // of the result
  int64_t extent, step;  // step: between its entries in x
};

// Axes of extent 1 left out, and axes joined that are neighbours in x too.
std::vector<Axis> joined_axes(const Permute& op) {
  const Shape& from = op.x.shape();
  std::vector<int64_t> steps(static_cast<size_t>(from.rank()), 1);
  for (int axis = from.rank() - 2; axis >= 0; --axis)
    steps[static_cast<size_t>(axis)] = steps[static_cast<size_t>(axis) + 1] * from[axis + 1];
  std::vector<Axis> axes;
  for (int i = 0; i < op.order.rank; ++i) {
    const int of_x = op.order.order[static_cast<size_t>(i)];
    const Axis axis{from[of_x], steps[static_cast<size_t>(of_x)]};
    if (axis.extent == 1) continue;
    if (!axes.empty() && axes.back().step == axis.step * axis.extent)
      axes.back() = {axes.back().extent * axis.extent, axis.step};
    else
      axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back({1, 1});
  return axes;
}

void permute(Device& device, const Permute& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  std::vector<Axis> axes = joined_axes(op);
  const size_t size = size_of(op.x.dtype()), count = axes.size();
  // [outer][rows][columns] to [outer][columns][rows]
  const bool turns = count >= 2 && count <= 3 && axes[count - 1].step == axes[count - 2].extent &&
                     axes[count - 2].step == 1 && (count == 2 || axes[0].step == axes[1].extent * axes[2].extent);
  if (turns) {
    launch_reorder(cuda.stream(), as_count(count == 3 ? axes[0].extent : 1), as_count(axes[count - 1].extent),
                   as_count(axes[count - 2].extent), size, true, op.x.data(), op.out.data());
    return;
  }
  size_t unit = size;
  if (axes.back().step == 1) {
    unit = unit_of({static_cast<size_t>(axes.back().extent) * size}, {&op.x, &op.out});
    const auto per_unit = static_cast<int64_t>(unit / size);
    axes.back().extent /= per_unit;
    for (size_t i = 0; i + 1 < count; ++i) axes[i].step /= per_unit;
  }
  PermuteArgs args{};
  args.rank = static_cast<int>(count);
  for (size_t i = 0; i < count; ++i) args.extents[i] = as_count(axes[i].extent), args.steps[i] = as_count(axes[i].step);
  launch_permute(cuda.stream(), args, unit, op.x.data(), op.out.data());
}

Refusal copy_channels_refuses(const Device&, const CopyChannels& op) {
  if (Refusal r = not_readable({&op.x, &op.out})) return r;
  return not_movable({&op.x, &op.out});
}
void copy_channels(Device& device, const CopyChannels& op) {
  if (op.count == 0) return;
  CudaDevice& cuda = on(device);
  const Shape &from = op.x.shape(), &to = op.out.shape();
  const size_t size = size_of(op.x.dtype());
  if (op.x.layout() != op.out.layout()) {
    launch_copy_channels(cuda.stream(), image(op.x), image(op.out), as_count(op.from), as_count(op.to),
                         as_count(op.count), size, op.x.data(), op.out.data());
    return;
  }
  // The channels of a sample, or of a pixel, are consecutive.
  int64_t pixels = 1;
  for (int axis = 2; axis < from.rank(); ++axis) pixels *= from[axis];
  const bool last = op.x.layout() == Layout::nhwc;
  const int64_t runs = last ? from[0] * pixels : from[0], each = last ? 1 : pixels;
  const auto bytes = [&](int64_t channels) { return static_cast<size_t>(channels * each) * size; };
  const size_t unit =
      unit_of({bytes(op.count), bytes(op.from), bytes(op.to), bytes(from[1]), bytes(to[1])}, {&op.x, &op.out});
  const auto units = [&](int64_t channels) { return static_cast<uint32_t>(bytes(channels) / unit); };
  const CopyArgs args{as_count(runs), units(op.count), units(op.from), units(from[1]), units(op.to), units(to[1])};
  launch_copy_runs(cuda.stream(), args, unit, op.x.data(), op.out.data());
}

Refusal embedding_refuses(const Device&, const Embedding& op) {
  if (Refusal r = not_plain({&op.indices, &op.table, &op.out})) return r;
  return not_movable({&op.indices, &op.table, &op.out});
}
void embedding(Device& device, const Embedding& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const size_t row = static_cast<size_t>(op.table.shape()[1]) * size_of(op.table.dtype()),
               unit = unit_of({row}, {&op.table, &op.out});
  launch_take_rows(cuda.stream(), as_count(op.indices.elements()), static_cast<uint32_t>(row / unit),
                   as_count(op.table.shape()[0]), unit, op.indices.as<int32_t>(), op.table.data(), op.out.data());
}

Refusal embedding_backward_refuses(const Device&, const EmbeddingBackward& op) {
  if (Refusal r = not_readable_dtype({&op.dy, &op.dtable})) return r;
  if (Refusal r = not_plain({&op.indices, &op.dy, &op.dtable})) return r;
  return not_indexable({&op.indices, &op.dy, &op.dtable});
}
void embedding_backward(Device& device, const EmbeddingBackward& op) {
  CudaDevice& cuda = on(device);
  op.dtable.materialize(Layout::plain);
  const EmbeddingSum sum{as_count(op.indices.elements()), as_count(op.dtable.shape()[0]),
                         as_count(op.dtable.shape()[1]), op.padding};
  Tensor scratch;
  if (const size_t bytes = embedding_scratch(sum)) scratch = workspace(cuda, bytes);
  launch_add_rows(cuda.stream(), sum, op.indices.as<int32_t>(), scratch.empty() ? nullptr : scratch.data(),
                  array(op.dy), array(op.dtable));
}

Refusal narrow_refuses(const Device&, const NarrowIndices& op) {
  if (Refusal r = not_plain({&op.wide, &op.narrow})) return r;
  return not_indexable({&op.wide, &op.narrow});
}
void narrow(Device& device, const NarrowIndices& op) {
  CudaDevice& cuda = on(device);
  op.narrow.materialize(Layout::plain);
  launch_narrow_indices(cuda.stream(), as_count(op.narrow.elements()), op.wide.as<int32_t>(), op.narrow.as<int32_t>());
}

}  // namespace

void add_copy_rows(KernelTable& table) {
  table.of<Permute>().push_back({"cuda", Speed::real, permute_refuses, permute});
  table.of<CopyChannels>().push_back({"cuda", Speed::real, copy_channels_refuses, copy_channels});
  table.of<Embedding>().push_back({"cuda", Speed::real, embedding_refuses, embedding});
  table.of<EmbeddingBackward>().push_back({"cuda", Speed::real, embedding_backward_refuses, embedding_backward});
  table.of<NarrowIndices>().push_back({"cuda", Speed::real, narrow_refuses, narrow});
}

}  // namespace halfmark::kernels::cuda
