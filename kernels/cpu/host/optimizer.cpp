// The optimizers' steps, unscaling and clipping as host loops: one parallel region for all parameters.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/host/host.h"
#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::host {
namespace {

// A part of one tensor of a list: the work of one thread at a time.
struct Piece {
  size_t item;
  int64_t begin, end;
};

// f(piece) for all elements of tensors of these sizes. The pieces depend on the sizes only.
template <class F>
void each_piece(const std::vector<int64_t>& sizes, F f) {
  std::vector<Piece> pieces;
  for (size_t item = 0; item < sizes.size(); ++item)
    for (int64_t begin = 0; begin < sizes[item]; begin += kGrain)
      pieces.push_back({item, begin, std::min(sizes[item], begin + kGrain)});
  // Neighbours of small tensors share a turn: a turn takes up to kGrain elements.
  std::vector<size_t> turns;
  int64_t elements = kGrain;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t count = pieces[i].end - pieces[i].begin;
    if (elements + count > kGrain) turns.push_back(i), elements = 0;
    elements += count;
  }
  turns.push_back(pieces.size());
  parallel_for(static_cast<int64_t>(turns.size()) - 1, 1, [&](int64_t begin, int64_t end) {
    for (size_t i = turns[static_cast<size_t>(begin)]; i < turns[static_cast<size_t>(end)]; ++i) f(pieces[i]);
  });
}

Refusal refuses_update(const UpdatedTensors& t, Storage storage) {
  for (const Tensor* operand : {&t.first, &t.second, &t.compensation, &t.low})
    if (!operand->empty() && !same_layout(*operand, t.parameter) && operand->layout() != Layout::any)
      return "the parameter, its state and its low copy have different layouts";
  if (t.parameter.layout() == Layout::opaque) return "the parameter has an opaque layout";
  if (storage == Storage::stochastic && t.parameter.layout() != Layout::plain)
    return "the noise of stochastic rounding is counted in plain layout";
  return refuses_dtypes({&t.parameter, &t.gradient, &t.first, &t.second, &t.compensation, &t.low});
}

template <class Op>
Refusal refuses_step(const Device&, const Op& op) {
  if (op.rounding == StepRounding::each_operation) return "rounds results only, not each operation";
  for (const UpdatedTensors& t : op.tensors)
    if (Refusal refusal = refuses_update(t, op.storage)) return refusal;
  return {};
}

// A tensor of state in a block: widened before the loop, stored after it. Zeros if there is none.
template <class T>
struct StateBlock {
  const T* before = nullptr;
  T* after = nullptr;
  alignas(64) T wide[kBlock], result[kBlock];

  void load(Tensor& tensor, int64_t begin, int64_t count) {
    if (tensor.empty()) {
      if (!before) std::fill_n(wide, kBlock, T(0));
      before = wide, after = result;
      return;
    }
    before = read(tensor, begin, count, wide), after = writable(tensor, begin, result);
  }
  void store(Tensor& tensor, int64_t begin, int64_t count) {
    if (!tensor.empty()) written(tensor, begin, count, after);
  }
};

// c <- c - change, p' <- p + c as stored, c <- c + (p - p').
template <class T>
void compensate(UpdatedTensors& t, int64_t begin, int64_t count, const T* before, const T* kept, const T* change,
                StateBlock<T>& lacking) {
  alignas(64) T sum[kBlock], stored[kBlock];
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j) {
    const T decayed = kept[j] == before[j] ? T(0) : kept[j] - before[j];
    lacking.result[j] = lacking.before[j] + (decayed - change[j]);
    sum[j] = before[j] + lacking.result[j];
  }
  if (t.parameter.dtype() == kStored<T>) {
    std::copy_n(sum, count, stored);
  } else {
    written(t.parameter, begin, count, sum);
    read(t.parameter, begin, count, stored);
  }
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j)
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): `stored` has been written, or read, above
    lacking.after[j] = lacking.result[j] + (before[j] - stored[j]);
  if (t.parameter.dtype() == kStored<T>) std::copy_n(stored, count, writable(t.parameter, begin, stored));
}

template <Storage storage, class T, class Rule>
void update_piece(UpdatedTensors& t, const Tensor& gradient, const Piece& piece, NoiseStream noise, Rule rule) {
  alignas(64) T bp[kBlock], bg[kBlock], result[kBlock];
  StateBlock<T> first, second, lacking;
  for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
    const int64_t count = std::min(kBlock, piece.end - i);
    const T *p = read(t.parameter, i, count, bp), *g = read(gradient, i, count, bg);
    first.load(t.first, i, count), second.load(t.second, i, count);
    const T *m = first.before, *v = second.before;
    T *new_m = first.after, *new_v = second.after;
    if constexpr (storage == Storage::kahan) {
      alignas(64) T kept[kBlock], change[kBlock];
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        const formulas::UpdateStep<T> step = rule(p[j], g[j], m[j], v[j]);
        new_m[j] = step.first, new_v[j] = step.second, kept[j] = step.kept, change[j] = step.change;
      }
      lacking.load(t.compensation, i, count);
      compensate(t, i, count, p, kept, change, lacking);
      lacking.store(t.compensation, i, count);
    } else {
      T* next = writable(t.parameter, i, result);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        const formulas::UpdateStep<T> step = rule(p[j], g[j], m[j], v[j]);
        new_m[j] = step.first, new_v[j] = step.second, next[j] = step.kept - step.change;
      }
      if constexpr (storage == Storage::nearest)
        written(t.parameter, i, count, next);
      else if (t.parameter.dtype() != kStored<T>)
        convert(kStored<T>, next, t.parameter.dtype(), at(t.parameter.data(), t.parameter.dtype(), i),
                static_cast<size_t>(count), Rounding::stochastic, noise.from(static_cast<uint64_t>(i)));
    }
    first.store(t.first, i, count), second.store(t.second, i, count);
    if (!t.low.empty())  // of the parameter as stored
      convert(t.parameter.dtype(), at(t.parameter.data(), t.parameter.dtype(), i), t.low.dtype(),
              at(t.low.data(), t.low.dtype(), i), static_cast<size_t>(count));
  }
}

// rules.operator()<T>() gives the rule in the arithmetic T.
template <class Op, class Rules>
void update_all(const Op& op, Rules rules) {
  if (is_skipped(op.found_inf)) return;
  const auto rule = rules.template operator()<float>();
  const auto wide_rule = rules.template operator()<double>();
  std::vector<Tensor> gradients;
  std::vector<int64_t> sizes;
  std::vector<uint64_t> offsets{0};
  for (UpdatedTensors& t : op.tensors) {
    if (!t.low.empty()) t.low.materialize(t.parameter.layout());
    gradients.push_back(in_layout_of(t.parameter, t.gradient));
    sizes.push_back(t.parameter.elements());
    offsets.push_back(offsets.back() + static_cast<uint64_t>(sizes.back()));
  }
  each_piece(sizes, [&](const Piece& piece) {
    UpdatedTensors& t = op.tensors[piece.item];
    const Tensor& gradient = gradients[piece.item];
    const NoiseStream noise{op.noise, offsets[piece.item]};
    const bool wide = computes_in_double({&t.parameter, &t.gradient});
    const auto with = [&]<Storage storage>() {
      wide ? update_piece<storage, double>(t, gradient, piece, noise, wide_rule)
           : update_piece<storage, float>(t, gradient, piece, noise, rule);
    };
    switch (op.storage) {
      case Storage::nearest:
        return with.template operator()<Storage::nearest>();
      case Storage::stochastic:
        return with.template operator()<Storage::stochastic>();
      case Storage::kahan:
        return with.template operator()<Storage::kahan>();
    }
  });
}

// Constant flags: a loop without branches.
template <bool kMomentum, bool kDecay, bool kNesterov>
void sgd_with(const SgdStep& op) {
  update_all(op, [&]<class T>() {
    auto c = formulas::sgd_constants<T>(op.rate, op.momentum, op.dampening, op.weight_decay, kNesterov, op.first);
    return [c](T p, T g, T v, T) {
      formulas::SgdConstants<T> constants = c;
      constants.nesterov = kNesterov;
      return formulas::sgd_step(p, g, v, constants, kMomentum, kDecay);
    };
  });
}

void run_sgd(Device&, const SgdStep& op) {
  const bool decay = static_cast<float>(op.weight_decay) != 0;
  if (static_cast<float>(op.momentum) == 0)
    decay ? sgd_with<false, true, false>(op) : sgd_with<false, false, false>(op);
  else if (op.nesterov)
    decay ? sgd_with<true, true, true>(op) : sgd_with<true, false, true>(op);
  else
    decay ? sgd_with<true, true, false>(op) : sgd_with<true, false, false>(op);
}

template <AdamKind kind, bool kDecay>
void adam_with(const AdamStep& op) {
  update_all(op, [&]<class T>() {
    const auto c = formulas::adam_constants<T>(kind, op.rate, op.beta1, op.beta2, op.epsilon, op.weight_decay, op.step);
    return [c](T p, T g, T m, T v) { return formulas::adam_step<kind>(p, g, m, v, c, kDecay); };
  });
}

template <AdamKind kind>
void adam_of(const AdamStep& op) {
  static_cast<float>(op.weight_decay) != 0 ? adam_with<kind, true>(op) : adam_with<kind, false>(op);
}

void run_adam(Device&, const AdamStep& op) {
  if (op.kind == AdamKind::adam) return adam_of<AdamKind::adam>(op);
  if (op.kind == AdamKind::adamw) return adam_of<AdamKind::adamw>(op);
  adam_of<AdamKind::keras>(op);
}

Refusal refuses_norm(const Device&, const GradientNorm& op) {
  for (const Tensor& gradient : op.gradients)
    if (Refusal refusal = refuses_dtypes({&gradient})) return refusal;
  return refuses_dtypes({&op.norm});
}

// The sum of squares of each block in eight sums, then the blocks in order: it does not depend on the threads. The
// padding of an opaque layout is zero.
void run_norm(Device&, const GradientNorm& op) {
  std::vector<int64_t> sizes;
  std::vector<size_t> starts{0};
  for (const Tensor& gradient : op.gradients) {
    sizes.push_back(stored_elements(gradient));
    starts.push_back(starts.back() + static_cast<size_t>((sizes.back() + kGrain - 1) / kGrain));
  }
  std::vector<double> sums(starts.back());
  each_piece(sizes, [&](const Piece& piece) {
    alignas(64) double buffer[kBlock];
    double partial[8] = {};
    for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
      const int64_t count = std::min(kBlock, piece.end - i);
      const double* g = read(op.gradients[piece.item], i, count, buffer);
      int64_t j = 0;
      for (; j + 8 <= count; j += 8)
        for (int64_t lane = 0; lane < 8; ++lane) partial[lane] += g[j + lane] * g[j + lane];
      for (; j < count; ++j) partial[j % 8] += g[j] * g[j];
    }
    double sum = 0;
    for (const double each : partial) sum += each;
    sums[starts[piece.item] + static_cast<size_t>(piece.begin / kGrain)] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  op.norm.materialize(Layout::plain);
  store(op.norm.dtype(), op.norm.data(), 0, std::sqrt(total));
}

Refusal refuses_clip(const Device&, const ClipGradients& op) {
  for (const Tensor& gradient : op.gradients)
    if (Refusal refusal = refuses_dtypes({&gradient})) return refusal;
  return refuses_dtypes({&op.norm});
}

Refusal refuses_unscale(const Device&, const Unscale& op) {
  for (const Tensor& gradient : op.gradients)
    if (Refusal refusal = refuses_dtypes({&gradient})) return refusal;
  return {};
}

template <class T>
bool unscale_piece(Tensor& gradient, const Piece& piece, T factor) {
  alignas(64) T buffer[kBlock], result[kBlock];
  int found = 0;
  for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
    const int64_t count = std::min(kBlock, piece.end - i);
    const T* g = read(gradient, i, count, buffer);
    T* r = writable(gradient, i, result);
    for (int64_t j = 0; j < count; ++j) {
      found |= formulas::overflowed(g[j]);
      r[j] = formulas::unscale(g[j], factor);
    }
    written(gradient, i, count, r);
  }
  return found != 0;
}

std::vector<int64_t> sizes_of(std::span<const Tensor> gradients) {
  std::vector<int64_t> sizes;
  for (const Tensor& gradient : gradients) sizes.push_back(stored_elements(gradient));
  return sizes;
}

void run_unscale(Device&, const Unscale& op) {
  std::atomic<bool> found{false};
  each_piece(sizes_of(op.gradients), [&](const Piece& piece) {
    Tensor& gradient = op.gradients[piece.item];
    if (gradient.dtype() == DType::f64 ? unscale_piece<double>(gradient, piece, op.inverse_scale)
                                       : unscale_piece<float>(gradient, piece, op.inverse_scale))
      found = true;
  });
  if (found) *op.found_inf.as<float>() = 1;
}

template <class T>
void clip_piece(Tensor& gradient, const Piece& piece, T factor) {
  alignas(64) T buffer[kBlock], result[kBlock];
  for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
    const int64_t count = std::min(kBlock, piece.end - i);
    const T* g = read(gradient, i, count, buffer);
    T* r = writable(gradient, i, result);
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) r[j] = g[j] * factor;
    written(gradient, i, count, r);
  }
}

void run_clip(Device&, const ClipGradients& op) {
  const double norm = load(op.norm.dtype(), op.norm.data(), 0);
  const auto factor = formulas::clip_factor(static_cast<float>(norm), static_cast<float>(op.limit));
  const auto wide_factor = formulas::clip_factor(norm, op.limit);
  each_piece(sizes_of(op.gradients), [&](const Piece& piece) {
    Tensor& gradient = op.gradients[piece.item];
    gradient.dtype() == DType::f64 ? clip_piece<double>(gradient, piece, wide_factor)
                                   : clip_piece<float>(gradient, piece, factor);
  });
}

}  // namespace

void add_optimizers(KernelTable& table) {
  add_row<SgdStep, refuses_step<SgdStep>, run_sgd>(table);
  add_row<AdamStep, refuses_step<AdamStep>, run_adam>(table);
  add_row<Unscale, refuses_unscale, run_unscale>(table);
  add_row<GradientNorm, refuses_norm, run_norm>(table);
  add_row<ClipGradients, refuses_clip, run_clip>(table);
}

}  // namespace halfmark::kernels::host
