// A typed array on a device. Copies share memory. The shape is logical; the layout is the order in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/tensor/device.h"
#include "kernels/tensor/shape.h"

namespace halfmark::kernels {

enum class Layout : uint8_t {
  plain,   // row-major in the order of the shape; nchw for images
  nhwc,    // rank 4, channels last (ohwi for filters)
  opaque,  // laid out by a library; only its device reads it
  any,     // not allocated yet: the kernel that writes it chooses, see Tensor::materialize
};
std::string_view name_of(Layout layout);

// What a library must store about a layout of its own.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  virtual size_t bytes() const = 0;
  virtual uint64_t hash() const = 0;  // equal layouts of equal shape have equal hashes
  virtual std::string text() const = 0;
};

class Tensor {
 public:
  Tensor() = default;  // empty: stands for an absent operand
  // Allocated, not cleared; the memory counts for the current purpose (memory.h). Layout::any does not allocate yet.
  Tensor(Device& device, const Shape& shape, DType dtype, Layout layout = Layout::plain);
  // `values` in logical order, rounded to nearest even.
  static Tensor from(Device& device, const Shape& shape, DType dtype, std::span<const double> values,
                     Layout layout = Layout::plain);
  static Tensor zeros(Device& device, const Shape& shape, DType dtype, Layout layout = Layout::plain);

  bool empty() const { return !meta_; }
  Device& device() const;
  const Shape& shape() const;
  DType dtype() const;
  Layout layout() const;
  const std::shared_ptr<const OpaqueLayout>& opaque_layout() const;
  int64_t elements() const { return shape().elements(); }
  size_t bytes() const;  // bytes in memory; 0 while the layout is any

  void* data();  // throws Error while the layout is any. Writers call touch() when done (run(op) does).
  const void* data() const;
  template <class T>
  T* as() {
    return static_cast<T*>(data());
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data());
  }

  // Every element in logical order, decoded exactly. Works for every layout.
  std::vector<double> values() const;
  std::vector<unsigned char> codes() const;  // the stored bytes in logical order
  void set_values(std::span<const double> values, Rounding rounding = Rounding::near_even,
                  RoundEvents* events = nullptr);
  void set_codes(std::span<const unsigned char> codes);  // in the form that codes() returns; layout plain
  void fill(double value);

  // Allocates the memory of a tensor of layout any, visible through every copy of the handle. Does nothing for a tensor
  // that has memory.
  void materialize(Layout layout);
  void materialize(std::shared_ptr<const OpaqueLayout> layout);

  Tensor reshaped(const Shape& shape) const;  // same memory, plain layout, same number of elements
  // Same memory: `count` consecutive entries of axis 0 from `first` on, plain layout, not a packed dtype. It has an id of
  // its own.
  Tensor slice(int64_t first, int64_t count) const;
  Tensor clone() const;               // same device, layout and values; own memory of the current purpose
  void set_purpose(Purpose purpose);  // moves the bytes to another purpose in the ledger
  Purpose purpose() const;

  // Identity of the memory and a count of its writes: the key of a cache of packed weights.
  uint64_t id() const;
  uint64_t version() const;
  void touch();
  std::weak_ptr<const void> watch() const;  // expires when the memory is released; such a cache then drops its entry

  // Offset in elements of the element with a logical index, for layouts plain and nhwc.
  static int64_t offset(const Shape& shape, Layout layout, std::span<const int64_t> index);

 private:
  struct Storage;  // the memory, shared by reshaped views
  struct Meta;     // shape, dtype, layout, storage; shared by copies of the handle
  static std::shared_ptr<Storage> make_storage(const Meta& meta);
  std::shared_ptr<Meta> meta_;
};

}  // namespace halfmark::kernels
