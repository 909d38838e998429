// The only file that depends on the oneDNN version. 2.x creates a primitive in two steps (operation descriptor, then
// primitive descriptor), 3.x in one; they also access the fields of a memory descriptor differently.
#pragma once

#include <dnnl_debug.h>
#include <dnnl.hpp>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using DataType = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;
using Arguments = std::unordered_map<int, dnnl::memory>;

std::string library_name();  // "oneDNN 2.6.3"

// Runs f; an exception from oneDNN becomes an Error that names the library, the operation and oneDNN's message.
template <class F>
decltype(auto) checked(const char* work, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const dnnl::error& error) {
    throw Error(library_name() + ": " + work + ": " + error.what() + " (status " + dnnl_status2str(error.status) + ")");
  }
}

dnnl::engine& engine();
dnnl::stream& stream();

// The memory layout of a descriptor.
struct Blocking {
  bool blocked;  // false: a layout that only oneDNN can describe (Winograd and the like)
  Dims dims, padded, strides, inner_blocks, inner_axes;
};

inline Blocking blocking_of(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return {false, desc.get_dims(), {}, {}, {}, {}};
  return {
      true, desc.get_dims(), desc.get_padded_dims(), desc.get_strides(), desc.get_inner_blks(), desc.get_inner_idxs()};
#else
  const dnnl_memory_desc_t& d = desc.data;
  const Dims dims(d.dims, d.dims + d.ndims);
  if (d.format_kind != dnnl_blocked) return {false, dims, {}, {}, {}, {}};
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  return {true,
          dims,
          Dims(d.padded_dims, d.padded_dims + d.ndims),
          Dims(b.strides, b.strides + d.ndims),
          Dims(b.inner_blks, b.inner_blks + b.inner_nblks),
          Dims(b.inner_idxs, b.inner_idxs + b.inner_nblks)};
#endif
}

inline Dims dims_of(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

inline DataType type_of(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_data_type();
#else
  return desc.data_type();
#endif
}

// `bias`: empty, or [1, columns].
inline dnnl::matmul::primitive_desc make_matmul(const Desc& a, const Desc& b, const Desc& out,
                                                const dnnl::primitive_attr& attr, const Desc& bias = Desc()) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, bias, out, attr};
#else
  return {dnnl::matmul::desc(a, b, bias, out), attr, engine()};
#endif
}

// Strides, dilations (oneDNN counts from 0) and paddings of a convolution, strides, kernel and paddings of a pooling.
struct Geometry {
  Dims strides, dilations, kernel, left, right;
};

// `bias`: empty, or [channels].
inline dnnl::convolution_forward::primitive_desc make_convolution(const Desc& x, const Desc& w, const Desc& y,
                                                                  const Geometry& g, const dnnl::primitive_attr& attr,
                                                                  const Desc& bias = Desc()) {
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kKind, kDirect, x, w, bias, y, g.strides, g.dilations, g.left, g.right, attr};
#else
  return {dnnl::convolution_forward::desc(kKind, kDirect, x, w, bias, y, g.strides, g.dilations, g.left, g.right), attr,
          engine()};
#endif
}

inline dnnl::convolution_backward_data::primitive_desc make_convolution_backward_data(
    const Desc& dx, const Desc& w, const Desc& dy, const Geometry& g, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& forward) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kDirect, dx, w, dy, g.strides, g.dilations, g.left, g.right, forward, attr};
#else
  return {dnnl::convolution_backward_data::desc(kDirect, dx, w, dy, g.strides, g.dilations, g.left, g.right), attr,
          engine(), forward};
#endif
}

inline dnnl::convolution_backward_weights::primitive_desc make_convolution_backward_weights(
    const Desc& x, const Desc& dw, const Desc& dy, const Geometry& g, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& forward) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kDirect, x, dw, dy, g.strides, g.dilations, g.left, g.right, forward, attr};
#else
  return {dnnl::convolution_backward_weights::desc(kDirect, x, dw, dy, g.strides, g.dilations, g.left, g.right), attr,
          engine(), forward};
#endif
}

inline dnnl::batch_normalization_forward::primitive_desc make_batch_norm(bool training, const Desc& x, float epsilon,
                                                                         const dnnl::primitive_attr& attr) {
  using Flags = dnnl::normalization_flags;
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const Flags flags = Flags::use_scale | Flags::use_shift | (training ? Flags::none : Flags::use_global_stats);
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kind, x, x, epsilon, flags, attr};
#else
  return {dnnl::batch_normalization_forward::desc(kind, x, epsilon, flags), attr, engine()};
#endif
}

// 2.x needs the shift among the arguments of backward although it does not read it; 3.x rejects it.
inline constexpr bool kBackwardTakesShift = DNNL_VERSION_MAJOR < 3;

inline dnnl::batch_normalization_backward::primitive_desc make_batch_norm_backward(
    const Desc& x, float epsilon, const dnnl::primitive_attr& attr,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
  using Flags = dnnl::normalization_flags;
  constexpr auto kKind = dnnl::prop_kind::backward;
  const Flags flags = Flags::use_scale | Flags::use_shift;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kKind, x, x, x, epsilon, flags, forward, attr};
#else
  return {dnnl::batch_normalization_backward::desc(kKind, x, x, epsilon, flags), attr, engine(), forward};
#endif
}

// ReLU whose backward reads the output of forward; for comparisons with direct oneDNN calls (see elementwise.cpp).
inline dnnl::eltwise_forward::primitive_desc make_relu(const Desc& x, const dnnl::primitive_attr& attr) {
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kKind, kRelu, x, x, 0.0f, 0.0f, attr};
#else
  return {dnnl::eltwise_forward::desc(kKind, kRelu, x, 0.0f, 0.0f), attr, engine()};
#endif
}

inline dnnl::eltwise_backward::primitive_desc make_relu_backward(const Desc& y, const dnnl::primitive_attr& attr,
                                                                 const dnnl::eltwise_forward::primitive_desc& forward) {
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kRelu, y, y, y, 0.0f, 0.0f, forward, attr};
#else
  return {dnnl::eltwise_backward::desc(kRelu, y, y, 0.0f, 0.0f), attr, engine(), forward};
#endif
}

inline dnnl::pooling_forward::primitive_desc make_pooling(dnnl::algorithm algorithm, const Desc& x, const Desc& y,
                                                          const Geometry& g, const dnnl::primitive_attr& attr) {
  constexpr auto kKind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kKind, algorithm, x, y, g.strides, g.kernel, Dims(g.kernel.size(), 0), g.left, g.right, attr};
#else
  return {dnnl::pooling_forward::desc(kKind, algorithm, x, y, g.strides, g.kernel, g.left, g.right), attr, engine()};
#endif
}

inline dnnl::pooling_backward::primitive_desc make_pooling_backward(
    dnnl::algorithm algorithm, const Desc& dx, const Desc& dy, const Geometry& g, const dnnl::primitive_attr& attr,
    const dnnl::pooling_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), algorithm, dx, dy, g.strides, g.kernel, Dims(g.kernel.size(), 0), g.left, g.right, forward, attr};
#else
  return {dnnl::pooling_backward::desc(algorithm, dx, dy, g.strides, g.kernel, g.left, g.right), attr, engine(),
          forward};
#endif
}

inline dnnl::binary::primitive_desc make_add(const Desc& a, const Desc& b, const Desc& out,
                                             const dnnl::primitive_attr& attr) {
  constexpr auto kAdd = dnnl::algorithm::binary_add;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kAdd, a, b, out, attr};
#else
  return {dnnl::binary::desc(kAdd, a, b, out), attr, engine()};
#endif
}

}  // namespace halfmark::kernels::onednn
