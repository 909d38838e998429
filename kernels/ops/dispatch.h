// How run(op) works: the cached choice of a row, the log, the write counts of outputs. Included only by ops.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/product_work.h"
#include "kernels/tensor/memory.h"

namespace halfmark::kernels {

namespace ops_detail {

struct SignatureVisitor {
  Signature& signature;
  void input(std::string_view, const Tensor& tensor) { signature.add(tensor); }
  void output(std::string_view, const Tensor& tensor) { signature.add(tensor); }
  void attribute(const Math& math) {
    signature.add(math.multiply), signature.add(math.accumulate), signature.add(math.partial);
    signature.add(math.split_k), signature.add(math.fast_accumulate);
  }
  void attribute(const Window& w) {
    signature.add(w.stride_h | int64_t{w.stride_w} << 16 | int64_t{w.pad_h} << 32 | int64_t{w.pad_w} << 48);
    signature.add(w.dilation_h | int64_t{w.dilation_w} << 16);
  }
  void attribute(const Format& format) { signature.add(format); }
  void attribute(double value) { signature.add(std::bit_cast<int64_t>(value)); }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void attribute(T value) { signature.add(static_cast<int64_t>(value)); }
};

// Of an operation on a list: each different combination once, in order of appearance.
struct DTypesVisitor {
  std::string in, out, items;
  void input(std::string_view, const Tensor& tensor) { append(in, tensor); }
  void output(std::string_view, const Tensor& tensor) { append(out, tensor); }
  void attribute(const auto&) {}
  void next() {
    const std::string item = in + "->" + out;
    if ((";" + items + ";").find(";" + item + ";") == std::string::npos) items += (items.empty() ? "" : ";") + item;
    in.clear(), out.clear();
  }
  std::string text() {
    if (!items.empty() && (!in.empty() || !out.empty())) next();  // operands beside the list
    return items.empty() ? in + "->" + out : items;
  }
  static void append(std::string& text, const Tensor& tensor) {
    if (tensor.empty()) return;
    if (!text.empty()) text += ",";
    text += name_of(tensor.dtype());
  }
};

struct BytesVisitor {
  uint64_t read = 0, written = 0;
  void input(std::string_view, const Tensor& tensor) { read += bytes_of(tensor); }
  void output(std::string_view, const Tensor& tensor) { written += bytes_of(tensor); }
  void updated(std::string_view, const Tensor& tensor) { read += bytes_of(tensor), written += bytes_of(tensor); }
  void attribute(const auto&) {}
  static uint64_t bytes_of(const Tensor& tensor) {
    return tensor.empty() ? 0 : bytes_for(tensor.dtype(), static_cast<size_t>(tensor.elements()));
  }
};

struct DeviceVisitor {
  Device* device = nullptr;
  std::string_view operation;
  void see(std::string_view name, const Tensor& tensor) {
    if (tensor.empty()) return;
    if (!device) device = &tensor.device();
    HM_CHECK(device == &tensor.device(), std::string(operation) + ": operand " + std::string(name) + " is on " +
                                             tensor.device().name() + ", the other operands on " + device->name());
  }
  void input(std::string_view name, const Tensor& tensor) { see(name, tensor); }
  void output(std::string_view name, const Tensor& tensor) { see(name, tensor); }
  void attribute(const auto&) {}
};

struct TouchVisitor {
  void input(std::string_view, const Tensor&) {}
  void output(std::string_view, Tensor& tensor) {
    if (!tensor.empty()) tensor.touch();
  }
  void attribute(const auto&) {}
};

struct Choice {
  const void* kernel;  // the Kernel<Op>
  LoggedKernel what;   // operation, dtypes, row, speed, refusals
};
using Choices = std::unordered_map<Signature, Choice, SignatureHash>;

template <class Op>
struct ChoicesOf {
  Choices choices;
};
struct DispatchState : Operations::OfEach<ChoicesOf> {};

}  // namespace ops_detail

// The non-template parts; see dispatch.cpp.
struct Dispatch {
  static std::optional<size_t> begin_time(const Device& device);  // for OperationTimes, if there is one
  static void end_time(std::string_view operation, size_t begin);
  static void log(const void* choice, const LoggedKernel& what, Repeats repeats);
  static ops_detail::DispatchState& state(Device& device);
  static const ops_detail::Choice* known(const ops_detail::Choices& choices, const Signature& signature);
  static const ops_detail::Choice& keep(ops_detail::Choices& choices, Signature signature, ops_detail::Choice choice);
  static void refused(LoggedKernel& what, std::string_view row, const std::string& reason);
  [[noreturn]] static void nobody(const LoggedKernel& what, const Device& device);
};

Signature signature_of(const Operation auto& op) {
  Signature signature;
  op.visit(ops_detail::SignatureVisitor{signature});
  return signature;
}

std::string dtypes_of(const Operation auto& op) {
  ops_detail::DTypesVisitor visitor;
  op.visit(visitor);
  return visitor.text();
}

namespace ops_detail {

template <Operation Op>
Device& device_of(const Op& op) {
  DeviceVisitor visitor{nullptr, Op::name};
  op.visit(visitor);
  HM_CHECK(visitor.device, std::string(Op::name) + " was called without tensors");
  return *visitor.device;
}

template <Operation Op>
const Choice& choice_for(Device& device, const Op& op) {
  Choices& choices = static_cast<ChoicesOf<Op>&>(Dispatch::state(device)).choices;
  Signature signature = signature_of(op);
  if (const Choice* known = Dispatch::known(choices, signature)) return *known;
  op.check();
  BytesVisitor bytes;
  op.visit(bytes);
  LoggedKernel what{std::string(Op::name), "", dtypes_of(op), "", Speed::real, 0, {}, bytes.read, bytes.written};
  if (const ProductWork work = product_work(op); !work.type.empty()) what.flops.emplace(work.type, work.flops);
  for (const Kernel<Op>& kernel : device.kernels().template of<Op>()) {
    if (const Refusal refusal = kernel.refuses(device, op)) {
      Dispatch::refused(what, kernel.name, *refusal);
      continue;
    }
    what.row = kernel.name;
    what.speed = kernel.speed;
    if (kernel.choice) what.choices.push_back(kernel.choice(device, op));
    return Dispatch::keep(choices, std::move(signature), {&kernel, std::move(what)});
  }
  Dispatch::nobody(what, device);
}

template <Operation Op>
const Kernel<Op>& kernel_of(const Choice& choice) {
  return *static_cast<const Kernel<Op>*>(choice.kernel);
}

}  // namespace ops_detail

template <Operation Op>
void run_with(const Kernel<Op>& kernel, const Op& op) {
  kernel.run(ops_detail::device_of(op), op);
  op.visit(ops_detail::TouchVisitor{});
}

template <Operation Op>
void run(const Op& op) {
  Device& device = ops_detail::device_of(op);
  const ops_detail::Choice& choice = ops_detail::choice_for(device, op);
  const Kernel<Op>& kernel = ops_detail::kernel_of<Op>(choice);
  const std::optional<size_t> begin = Dispatch::begin_time(device);
  {
    const EmulationScope scope(choice.what.speed == Speed::emulated);
    const RowScope row;
    run_with(kernel, op);
  }
  if (begin) Dispatch::end_time(Op::name, *begin);
  Dispatch::log(&choice, choice.what, kernel.repeats);
}

template <Operation Op>
const Kernel<Op>& chosen(const Op& op) {
  return ops_detail::kernel_of<Op>(ops_detail::choice_for(ops_detail::device_of(op), op));
}

}  // namespace halfmark::kernels
