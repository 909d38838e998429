// Memory descriptors of tensors, and oneDNN's own layouts as opaque layouts.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/onednn/plan.h"

namespace halfmark::kernels::onednn {
namespace {

Dims row_major(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * std::max<int64_t>(dims[axis], 1);
  return strides;
}

Desc nhwc_desc(const Dims& d, DataType type) { return Desc(d, type, Dims{d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]}); }

// Tags that oneDNN's convolutions and poolings choose for images.
constexpr Tag kImageTags[] = {Tag::nchw, Tag::nhwc, Tag::nChw16c, Tag::nChw8c, Tag::nChw4c, Tag::nChw32c};

class BlockedLayout : public HostLayout {
 public:
  explicit BlockedLayout(const Desc& desc) : desc_(desc) {}
  const Desc& desc() const { return desc_; }
  size_t bytes() const override { return desc_.get_size(); }

  uint64_t hash() const override {
    const Blocking b = blocking_of(desc_);
    Signature words;
    words.add(static_cast<int64_t>(onednn::type_of(desc_)));
    words.add(static_cast<int64_t>(desc_.get_size()));
    for (const Dims* part : {&b.dims, &b.padded, &b.strides, &b.inner_blocks, &b.inner_axes}) {
      words.add(static_cast<int64_t>(part->size()));
      for (const int64_t word : *part) words.add(word);
    }
    return words.hash();
  }

  // In the style of oneDNN's own tags: axes from the outermost inwards, blocked ones in capitals, then the inner
  // blocks: "aBcd16b".
  std::string text() const override {
    const Blocking b = blocking_of(desc_);
    if (!b.blocked) return "oneDNN internal";
    std::vector<size_t> axes(b.dims.size());
    std::iota(axes.begin(), axes.end(), size_t{0});
    std::stable_sort(axes.begin(), axes.end(), [&](size_t i, size_t j) { return b.strides[i] > b.strides[j]; });
    std::string name;
    for (const size_t axis : axes) {
      const bool inner =
          std::find(b.inner_axes.begin(), b.inner_axes.end(), static_cast<int64_t>(axis)) != b.inner_axes.end();
      name += static_cast<char>((inner ? 'A' : 'a') + static_cast<char>(axis));
    }
    for (size_t i = 0; i < b.inner_blocks.size(); ++i)
      name += std::to_string(b.inner_blocks[i]) + static_cast<char>('a' + static_cast<char>(b.inner_axes[i]));
    return name;
  }

  int64_t channel_block() const override {
    const Blocking b = blocking_of(desc_);
    if (!b.blocked || b.dims.size() != 4 || b.inner_axes != Dims{1} || b.inner_blocks.size() != 1) return 0;
    const int64_t block = b.inner_blocks[0], row = b.dims[3] * block, image = b.dims[2] * row;
    const Dims dense{b.padded[1] / block * image, image, row, block};
    const bool pads_channels_only = b.padded[0] == b.dims[0] && b.padded[2] == b.dims[2] && b.padded[3] == b.dims[3];
    return pads_channels_only && b.strides == dense ? block : 0;
  }

  void copy_out_plain(void* host, const void* memory) const override {
    reorder_quietly(desc_, memory, plain_desc(onednn::dims_of(desc_), onednn::type_of(desc_)), host);
  }

 private:
  Desc desc_;
};

}  // namespace

DataType type_of(DType dtype) {
  if (dtype == DType::f32) return DataType::f32;
  if (dtype == DType::bf16) return DataType::bf16;
  if (dtype == DType::f16) return DataType::f16;
  if (dtype == DType::i32) return DataType::s32;
  if (dtype == DType::u8) return DataType::u8;
  throw Error(library_name() + " has no " + std::string(name_of(dtype)) + " on CPUs");
}

Dims dims_of(const Shape& shape) { return Dims(shape.extents().begin(), shape.extents().end()); }

Desc plain_desc(const Dims& dims, DataType type) { return Desc(dims, type, row_major(dims)); }

Desc open_desc(const Shape& shape, DType dtype) { return Desc(dims_of(shape), type_of(dtype), Tag::any); }

Desc desc_of(const Tensor& tensor) {
  const Dims dims = dims_of(tensor.shape());
  switch (tensor.layout()) {
    case Layout::nhwc:
      return nhwc_desc(dims, type_of(tensor.dtype()));
    case Layout::opaque: {
      const auto* layout = dynamic_cast<const BlockedLayout*>(tensor.opaque_layout().get());
      HM_CHECK(layout, "an opaque tensor of another library was given to oneDNN");
      return layout->desc();
    }
    case Layout::plain:
    case Layout::any:
      break;
  }
  return plain_desc(dims, type_of(tensor.dtype()));
}

Dims filter_dims(const Shape& shape, int groups) {
  Dims dims = dims_of(shape);
  if (groups == 1) return dims;
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  return dims;
}

Desc filter_desc(const Tensor& filter, int groups) {
  const Desc whole = desc_of(filter);
  if (groups == 1 || filter.layout() == Layout::opaque) return whole;
  const Dims dims = filter_dims(filter.shape(), groups);
  Dims strides = blocking_of(whole).strides;
  strides.insert(strides.begin(), strides[0] * dims[1]);
  return Desc(dims, onednn::type_of(whole), strides);
}

bool same_memory(const Desc& a, const Desc& b) {
  if (a == b) return true;
  const Blocking x = blocking_of(a), y = blocking_of(b);
  if (!x.blocked || !y.blocked || onednn::type_of(a) != onednn::type_of(b)) return false;
  if (x.dims != y.dims || x.padded != y.padded || x.inner_blocks != y.inner_blocks || x.inner_axes != y.inner_axes)
    return false;
  for (size_t axis = 0; axis < x.dims.size(); ++axis)  // the stride of an axis with one element has no meaning
    if (x.strides[axis] != y.strides[axis] && x.padded[axis] > 1) return false;
  return true;
}

Desc like(const Desc& desc, const Dims& dims, DataType type) {
  const Dims own = onednn::dims_of(desc);
  for (const Tag tag : kImageTags)
    if (same_memory(desc, Desc(own, onednn::type_of(desc), tag))) return Desc(dims, type, tag);
  return Desc(dims, type, Tag::nhwc);
}

void materialize_as(Tensor& tensor, const Desc& desc) {
  if (tensor.layout() != Layout::any) return;
  const Dims dims = dims_of(tensor.shape());
  const DataType type = type_of(tensor.dtype());
  if (same_memory(desc, plain_desc(dims, type))) return tensor.materialize(Layout::plain);
  if (dims.size() == 4 && same_memory(desc, nhwc_desc(dims, type))) return tensor.materialize(Layout::nhwc);
  tensor.materialize(std::make_shared<BlockedLayout>(desc));
}

Desc common_desc(const Tensor& a, const Tensor& b) {
  return desc_of(a.layout() == Layout::plain && b.layout() != Layout::any ? b : a);
}

std::vector<Desc> image_layouts(const Tensor& image) {
  if (image.layout() != Layout::plain || image.shape()[1] == 1) return {desc_of(image)};
  std::vector<Desc> layouts;
  const Dims dims = dims_of(image.shape());
  for (const Tag tag : {Tag::nChw16c, Tag::nChw8c, Tag::nhwc}) {
    const int64_t block = tag == Tag::nChw16c ? 16 : tag == Tag::nChw8c ? 8 : 1;
    if (dims[1] % block == 0) layouts.emplace_back(dims, type_of(image.dtype()), tag);
  }
  layouts.push_back(desc_of(image));
  return layouts;
}

bool is_reference(const std::string& implementation) {
  for (const char* slow : {"ref", "bnorm_ref", "simple", "ncsp", "nspc_b"})
    if (implementation.starts_with(slow)) return true;
  return false;
}

}  // namespace halfmark::kernels::onednn
