#include "kernels/tensor/tensor.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "kernels/number/convert.h"
#include "kernels/number/error.h"
#include "kernels/tensor/guard_bytes.h"

namespace halfmark::kernels {

Shape::Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  HM_CHECK(extents.size() <= kMaxRank, "a shape has at most 6 extents, not " + std::to_string(extents.size()));
  for (size_t i = 0; i < extents.size(); ++i) {
    HM_CHECK(extents[i] >= 0, "the extents of a shape must not be negative: " + std::to_string(extents[i]));
    extents_[i] = extents[i];
  }
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t extent : extents()) product *= extent;
  return product;
}

std::string Shape::text() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::plain:
      return "plain";
    case Layout::nhwc:
      return "nhwc";
    case Layout::opaque:
      return "opaque";
    case Layout::any:
      return "any";
  }
  return "?";
}

Layout Device::image_layout(DType) const { return Layout::plain; }

void Device::clear(void* device_memory, size_t bytes) {
  const std::vector<unsigned char> zeros(bytes);
  copy_in(device_memory, zeros.data(), bytes);
}

void Device::copy(void* to, const void* from, size_t bytes) {
  std::vector<unsigned char> host(bytes);
  copy_out(host.data(), from, bytes);
  copy_in(to, host.data(), bytes);
}

std::optional<double> Device::time_after_pause(double, const std::function<void()>&) { return std::nullopt; }

std::unique_ptr<RecordedWork> Device::record(const std::function<void()>&) {
  throw Unsupported(name() + " cannot record work as a graph; GPUs can");
}

namespace {
class ReadAtOnce : public ValueReader {
 public:
  void enqueue(const Tensor& value) override { value_ = static_cast<float>(value.values().at(0)); }
  float wait() override { return value_; }

 private:
  float value_ = 0;
};
}  // namespace

namespace {
class HostMarks : public TimeMarks {
 public:
  size_t mark() override {
    marks_.push_back(std::chrono::steady_clock::now());
    return marks_.size() - 1;
  }
  double seconds(size_t from, size_t to) override {
    return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};
}  // namespace

std::unique_ptr<TimeMarks> Device::time_marks() { return std::make_unique<HostMarks>(); }

std::unique_ptr<ValueReader> Device::value_reader() { return std::make_unique<ReadAtOnce>(); }

void Device::copy_out_plain(void*, const Tensor&) { throw Error(name() + " has no opaque layouts"); }

namespace {
uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}
}  // namespace

struct Tensor::Storage {
  Device* device;
  void* memory;
  size_t bytes, padding;
  Purpose purpose;
  uint64_t id;
  uint64_t version = 0;
  bool guarded;

  // `dtype`: of all that the memory holds, if that is known. `elements`: the bytes of the elements alone; the rest is
  // padding, which of scratch counts as scratch.
  Storage(Device& d, size_t n, std::optional<DType> dtype, size_t elements)
      : device(&d),
        memory(d.guard_bytes ? d.guard_bytes->allocate(n, dtype) : d.allocate(n)),
        bytes(n),
        padding(is_of_tensors(current_purpose()) && n > elements ? n - elements : 0),
        purpose(current_purpose()),
        guarded(d.guard_bytes) {
    id = next_id();
    d.memory().add(purpose, bytes - padding);
    if (padding) d.memory().add(Purpose::padding, padding);
  }
  ~Storage() {
    device->memory().remove(purpose, bytes - padding);
    if (padding) device->memory().remove(Purpose::padding, padding);
    if (guarded)
      GuardBytes::release(*device, memory, bytes);
    else
      device->release(memory, bytes);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
};

struct Tensor::Meta {
  Device* device;
  Shape shape;
  DType dtype;
  Layout layout;
  std::shared_ptr<const OpaqueLayout> opaque;
  std::shared_ptr<Storage> storage;
  size_t offset = 0;  // of a slice, in bytes
  uint64_t slice_id = 0;
};

std::shared_ptr<Tensor::Storage> Tensor::make_storage(const Meta& meta) {
  const size_t elements = bytes_for(meta.dtype, static_cast<size_t>(meta.shape.elements()));
  const bool is_opaque = meta.layout == Layout::opaque;
  return std::make_shared<Storage>(*meta.device, is_opaque ? meta.opaque->bytes() : elements,
                                   is_opaque ? std::nullopt : std::optional<DType>(meta.dtype), elements);
}

namespace {
const Device& checked(const Device* device) {
  HM_CHECK(device, "an absent (empty) tensor was used");
  return *device;
}
}  // namespace

Tensor::Tensor(Device& device, const Shape& shape, DType dtype, Layout layout)
    : meta_(std::make_shared<Meta>(Meta{&device, shape, dtype, layout, nullptr, nullptr})) {
  HM_CHECK(layout != Layout::opaque, "only the kernel that chooses its layout can make an opaque tensor");
  HM_CHECK(layout != Layout::nhwc || shape.rank() == 4, "layout nhwc needs rank 4, not " + shape.text());
  if (layout != Layout::any) meta_->storage = make_storage(*meta_);
}

Tensor Tensor::from(Device& device, const Shape& shape, DType dtype, std::span<const double> values, Layout layout) {
  Tensor tensor(device, shape, dtype, layout);
  tensor.set_values(values);
  return tensor;
}

Tensor Tensor::zeros(Device& device, const Shape& shape, DType dtype, Layout layout) {
  Tensor tensor(device, shape, dtype, layout);
  tensor.fill(0);
  return tensor;
}

Device& Tensor::device() const { return checked(meta_ ? meta_->device : nullptr), *meta_->device; }
const Shape& Tensor::shape() const { return device(), meta_->shape; }
DType Tensor::dtype() const { return device(), meta_->dtype; }
Layout Tensor::layout() const { return device(), meta_->layout; }
const std::shared_ptr<const OpaqueLayout>& Tensor::opaque_layout() const { return device(), meta_->opaque; }
size_t Tensor::bytes() const {
  device();
  if (meta_->slice_id) return bytes_for(dtype(), static_cast<size_t>(elements()));
  return meta_->storage ? meta_->storage->bytes : 0;
}

void* Tensor::data() {
  HM_CHECK(meta_ && meta_->storage, "a tensor without memory was used: its layout is not chosen yet");
  return static_cast<unsigned char*>(meta_->storage->memory) + meta_->offset;
}
const void* Tensor::data() const { return const_cast<Tensor*>(this)->data(); }

int64_t Tensor::offset(const Shape& shape, Layout layout, std::span<const int64_t> index) {
  if (layout == Layout::nhwc) return ((index[0] * shape[2] + index[2]) * shape[3] + index[3]) * shape[1] + index[1];
  int64_t offset = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) offset = offset * shape[axis] + index[static_cast<size_t>(axis)];
  return offset;
}

namespace {

// Copies elements between nhwc memory order and logical (nchw) order.
void permute(const Shape& shape, DType dtype, const unsigned char* from, unsigned char* to, bool to_logical) {
  const int64_t channels = shape[1], pixels = shape[2] * shape[3];
  const size_t size = is_packed(dtype) ? 0 : size_of(dtype);
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < pixels; ++p) {
        const auto logical = static_cast<size_t>((n * channels + c) * pixels + p);
        const auto memory = static_cast<size_t>((n * pixels + p) * channels + c);
        const size_t source = to_logical ? memory : logical, target = to_logical ? logical : memory;
        if (size)
          std::memcpy(to + target * size, from + source * size, size);
        else
          store_code(dtype, to, target, load_code(dtype, from, source));
      }
}

}  // namespace

std::vector<unsigned char> Tensor::codes() const {
  std::vector<unsigned char> codes(bytes_for(dtype(), static_cast<size_t>(elements())));
  if (layout() == Layout::opaque) {
    device().copy_out_plain(codes.data(), *this);
    return codes;
  }
  device().copy_out(codes.data(), data(), codes.size());
  if (layout() == Layout::nhwc) {
    std::vector<unsigned char> logical(codes.size());
    permute(shape(), dtype(), codes.data(), logical.data(), true);
    return logical;
  }
  return codes;
}

std::vector<double> Tensor::values() const {
  const std::vector<unsigned char> raw = codes();
  std::vector<double> values(static_cast<size_t>(elements()));
  convert(dtype(), raw.data(), DType::f64, values.data(), values.size());
  return values;
}

void Tensor::set_values(std::span<const double> values, Rounding rounding, RoundEvents* events) {
  HM_CHECK(static_cast<int64_t>(values.size()) == elements(), "a tensor of shape " + shape().text() + " needs " +
                                                                  std::to_string(elements()) + " values, not " +
                                                                  std::to_string(values.size()));
  HM_CHECK(layout() == Layout::plain || layout() == Layout::nhwc, "values can be set only in plain and nhwc tensors");
  std::vector<unsigned char> codes(bytes_for(dtype(), values.size()));
  if (rounding == Rounding::near_even && !events) {
    convert(DType::f64, values.data(), dtype(), codes.data(), values.size());  // the same bits, much faster
  } else {
    for (size_t i = 0; i < values.size(); ++i) store(dtype(), codes.data(), i, values[i], rounding, events);
  }
  if (layout() == Layout::nhwc) {
    std::vector<unsigned char> memory(codes.size());
    permute(shape(), dtype(), codes.data(), memory.data(), false);
    codes.swap(memory);
  }
  device().copy_in(data(), codes.data(), codes.size());
  touch();
}

void Tensor::set_codes(std::span<const unsigned char> codes) {
  HM_CHECK(layout() == Layout::plain, "codes can be set only in plain tensors");
  HM_CHECK(codes.size() == bytes(), "a tensor of shape " + shape().text() + " " + std::string(name_of(dtype())) +
                                        " needs " + std::to_string(bytes()) + " bytes of codes, not " +
                                        std::to_string(codes.size()));
  device().copy_in(data(), codes.data(), codes.size());
  touch();
}

void Tensor::fill(double value) {
  HM_CHECK(layout() != Layout::opaque || value == 0, "an opaque tensor can be filled only with zeros");
  if (value == 0 && !std::signbit(value)) {
    device().clear(data(), bytes());
  } else {
    std::vector<unsigned char> codes(bytes());
    const auto count = static_cast<size_t>(elements());
    for (size_t i = 0; i < count; ++i) store(dtype(), codes.data(), i, value);
    device().copy_in(data(), codes.data(), codes.size());
  }
  touch();
}

void Tensor::materialize(Layout layout) {
  if (this->layout() != Layout::any) return;
  HM_CHECK(
      layout == Layout::plain || (layout == Layout::nhwc && shape().rank() == 4),
      "a tensor without layout, of shape " + shape().text() + " cannot take layout " + std::string(name_of(layout)));
  meta_->storage = make_storage(*meta_);
  meta_->layout = layout;
}

void Tensor::materialize(std::shared_ptr<const OpaqueLayout> layout) {
  if (this->layout() != Layout::any) return;
  meta_->layout = Layout::opaque;
  meta_->opaque = std::move(layout);
  meta_->storage = make_storage(*meta_);
}

Tensor Tensor::reshaped(const Shape& shape) const {
  HM_CHECK(shape.elements() == elements(), "shape " + this->shape().text() + " cannot be viewed as " + shape.text());
  HM_CHECK(layout() == Layout::plain,
           "only a plain tensor can be viewed in another shape, not one of layout " + std::string(name_of(layout())));
  Tensor view;
  view.meta_ = std::make_shared<Meta>(*meta_);
  view.meta_->shape = shape;
  return view;
}

Tensor Tensor::slice(int64_t first, int64_t count) const {
  HM_CHECK(shape().rank() >= 1 && first >= 0 && count >= 0 && first + count <= shape()[0],
           "no entries " + std::to_string(first) + " ... of " + shape().text());
  HM_CHECK(layout() == Layout::plain && !is_packed(dtype()),
           "only a plain tensor of whole bytes can be sliced, not one of layout " + std::string(name_of(layout())));
  std::vector<int64_t> extents(shape().extents().begin(), shape().extents().end());
  const int64_t entry = extents[0] ? elements() / extents[0] : 0;
  extents[0] = count;
  Tensor view;
  view.meta_ = std::make_shared<Meta>(*meta_);
  view.meta_->shape = Shape(extents);
  view.meta_->offset += bytes_for(dtype(), static_cast<size_t>(first * entry));
  view.meta_->slice_id = next_id();
  return view;
}

Tensor Tensor::clone() const {
  Tensor copy;
  copy.meta_ = std::make_shared<Meta>(*meta_);
  copy.meta_->offset = 0, copy.meta_->slice_id = 0;
  copy.meta_->storage = make_storage(*copy.meta_);
  device().copy(copy.data(), data(), copy.bytes());
  return copy;
}

void Tensor::set_purpose(Purpose purpose) {
  if (!meta_ || !meta_->storage || meta_->storage->purpose == purpose) return;
  device().memory().retag(meta_->storage->purpose, purpose, meta_->storage->bytes - meta_->storage->padding);
  meta_->storage->purpose = purpose;
}

Purpose Tensor::purpose() const { return data(), meta_->storage->purpose; }
uint64_t Tensor::id() const { return data(), meta_->slice_id ? meta_->slice_id : meta_->storage->id; }
uint64_t Tensor::version() const { return data(), meta_->storage->version; }
void Tensor::touch() { data(), ++meta_->storage->version; }
std::weak_ptr<const void> Tensor::watch() const { return data(), meta_->storage; }

}  // namespace halfmark::kernels
