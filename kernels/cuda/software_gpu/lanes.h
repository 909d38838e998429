// Handlers of instructions that compute each lane by itself.
#pragma once

#include <cstdint>

#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

// All lanes at once where the whole warp is active, so that the compiler can use vector instructions.
template <class D, class F>
inline void write_lanes(Warp& w, uint32_t d, F&& f) {
  D result[kLanes];
  if (w.active == kAllLanes) {
    for (int l = 0; l < kLanes; ++l) result[l] = f(l);
  } else {
    w.load(d, result);
    each_lane(w.active, [&](int l) { result[l] = f(l); });
  }
  w.store(d, result);
}

template <class F, class D, class A>
void unary(Warp& w, const Instruction& i) {
  A a[kLanes];
  w.load(i.a, a);
  write_lanes<D>(w, i.d, [&](int l) { return F::apply(a[l]); });
}
template <class F, class D, class A, class B>
void binary(Warp& w, const Instruction& i) {
  A a[kLanes];
  B b[kLanes];
  w.load(i.a, a), w.load(i.b, b);
  write_lanes<D>(w, i.d, [&](int l) { return F::apply(a[l], b[l]); });
}
template <class F, class D, class A, class B, class C>
void ternary(Warp& w, const Instruction& i) {
  A a[kLanes];
  B b[kLanes];
  C c[kLanes];
  w.load(i.a, a), w.load(i.b, b), w.load(i.c, c);
  write_lanes<D>(w, i.d, [&](int l) { return F::apply(a[l], b[l], c[l]); });
}

}  // namespace halfmark::kernels::software_gpu
