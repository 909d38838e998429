// Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber, ICML 2006, equations 5 to 16), in logarithms:
// a block for each sequence, a thread for each of its states. A sequence that is none makes the results NaN.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 128;

// log(e^a + e^b)
template <class Wide>
__device__ Wide log_of_sum(Wide a, Wide b) {
  const Wide high = a > b ? a : b, low = a > b ? b : a;
  return high == minus_infinity<Wide>() ? high : high + log1p(exp(low - high));
}

// The states of a sequence: blank, first label, blank, ..., blank.
struct States {
  const int32_t* labels;
  uint32_t steps, states;
  int32_t blank;
  bool known;  // whether it is a sequence
  __device__ States(const CtcForm& s, const int32_t* row)
      : labels(row + 2),
        steps(static_cast<uint32_t>(row[0])),
        states(2 * static_cast<uint32_t>(row[1]) + 1),
        blank(s.blank),
        known(true) {
    if (row[0] < 1 || steps > s.steps || row[1] < 0 || states > s.width) {
      known = false;
      return;
    }
    for (uint32_t i = 0; i < states / 2; ++i)
      if (static_cast<uint32_t>(labels[i]) >= s.classes || labels[i] == blank) known = false;
  }
  __device__ int32_t label(uint32_t state) const { return state % 2 ? labels[state / 2] : blank; }
  __device__ bool skips(uint32_t state) const { return state % 2 && state >= 3 && label(state) != label(state - 2); }
  __device__ uint32_t shares() const { return states > 1 ? states / 2 : 1; }  // labels, at least 1
};

template <class Wide, class Access>
__global__ void __launch_bounds__(kMostRowThreads)
    log_softmax_rows(uint32_t classes, Access x, AnyTyped out, Wide* exact) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t start = blockIdx.x * classes;
  Wide top = minus_infinity<Wide>(), sum = 0;
  each_in_row<Wide>(x, start, classes, classes, [&](uint32_t, Wide value) { top = Larger()(top, value); });
  top = over_block(top, shared, Larger());
  each_in_row<Wide>(x, start, classes, classes, [&](uint32_t, Wide value) { sum += exp(value - top); });
  const Wide log_sum = log(over_block(sum, shared, Plus()));
  each_in_row<Wide>(x, start, classes, classes, [&](uint32_t i, Wide value) {
    exact[start + i] = formulas::log_softmax(value, top, log_sum);
    out.store<Wide>(start + i, exact[start + i]);
  });
}

// The negative logarithm of the probability, from the forward variables of the last step.
template <class Wide>
__device__ Wide loss_of(uint32_t states, Wide last, Wide before) {
  return -(states > 1 ? log_of_sum(last, before) : last);
}

template <class Wide>
__global__ void __launch_bounds__(kThreads)
    forward(CtcForm s, const int32_t* targets, const Wide* logs, AnyTyped alpha, Wide* losses) {
  extern __shared__ double memory[];
  Wide *before = reinterpret_cast<Wide*>(memory), *now = before + s.width;
  const States sequence(s, targets + blockIdx.x * (2 + s.width / 2));
  const uint32_t first = blockIdx.x * s.steps;
  for (uint32_t t = 0; t < s.steps; ++t) {
    const Wide* lp = logs + (first + t) * s.classes;
    for (uint32_t i = threadIdx.x; i < s.width; i += kThreads) {
      Wide value = minus_infinity<Wide>();
      if (!sequence.known) {
        value = not_a_number<Wide>();
      } else if (t < sequence.steps && i < sequence.states) {
        if (t == 0) {
          if (i < 2) value = lp[sequence.label(i)];
        } else {
          value = before[i];
          if (i >= 1) value = log_of_sum(value, before[i - 1]);
          if (sequence.skips(i)) value = log_of_sum(value, before[i - 2]);
          value += lp[sequence.label(i)];
        }
        now[i] = value;
      }
      alpha.store<Wide>((first + t) * s.width + i, value);
    }
    __syncthreads();
    if (threadIdx.x == 0 && sequence.known && t + 1 == sequence.steps) {
      const uint32_t last = sequence.states - 1;
      const Wide loss = loss_of(sequence.states, now[last], last > 0 ? now[last - 1] : Wide(0));
      const bool dropped = s.zero_infinity && loss == -minus_infinity<Wide>();
      losses[blockIdx.x] = dropped ? Wide(0) : loss / static_cast<Wide>(sequence.shares());
    }
    Wide* const other = before;
    before = now, now = other;
  }
  if (threadIdx.x == 0 && !sequence.known) losses[blockIdx.x] = not_a_number<Wide>();
}

template <class Wide>
__global__ void __launch_bounds__(kMostRowThreads) mean_loss(uint32_t n, const Wide* losses, AnyTyped loss) {
  __shared__ Wide shared[kMostWarps];
  Wide sum = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += losses[i];
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) loss.store<Wide>(0, sum / static_cast<Wide>(n));
}

// factor (p - p(class at this step | labels)). Both factors of a product of forward and backward variables contain the
// probability of the class.
template <class Wide>
__device__ Wide slope(Wide factor, Wide lp, Wide together, Wide loss) {
  return factor * (exp(lp) - exp(together + loss - lp));
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    backward(CtcForm s, const int32_t* targets, Access logs, AnyTyped alpha, Access dlogits, Wide dloss) {
  extern __shared__ double memory[];
  Wide *beta = reinterpret_cast<Wide*>(memory), *next = beta + s.width;
  const States sequence(s, targets + blockIdx.x * (2 + s.width / 2));
  const uint32_t first = blockIdx.x * s.steps, last = sequence.states - 1;
  const uint32_t end = sequence.known ? (first + sequence.steps - 1) * s.width : 0;  // of the last step
  const Wide loss = sequence.known ? loss_of(sequence.states, alpha.load<Wide>(end + last),
                                             last > 0 ? alpha.load<Wide>(end + last - 1) : Wide(0))
                                   : not_a_number<Wide>();
  const bool dropped = s.zero_infinity && loss == -minus_infinity<Wide>();
  const Wide factor = dloss / static_cast<Wide>(s.count) / static_cast<Wide>(sequence.shares());
  for (uint32_t t = s.steps; t-- > 0;) {
    const uint32_t scores = (first + t) * s.classes;
    const bool inside = sequence.known && !dropped && t < sequence.steps;
    for (uint32_t c = threadIdx.x; c < s.classes; c += kThreads) {
      Wide value = sequence.known ? Wide(0) : not_a_number<Wide>();
      if (inside) value = slope(factor, logs.template load<Wide>(scores + c), minus_infinity<Wide>(), loss);
      dlogits.template store<Wide>(scores + c, value);
    }
    if (!inside) continue;  // all threads alike
    for (uint32_t i = threadIdx.x; i < sequence.states; i += kThreads) {
      const Wide lp = logs.template load<Wide>(scores + sequence.label(i));
      if (t + 1 == sequence.steps) {
        next[i] = i + 2 >= sequence.states ? lp : minus_infinity<Wide>();
        continue;
      }
      Wide sum = beta[i];
      if (i + 1 < sequence.states) sum = log_of_sum(sum, beta[i + 1]);
      if (i + 2 < sequence.states && sequence.skips(i + 2)) sum = log_of_sum(sum, beta[i + 2]);
      next[i] = sum + lp;
    }
    __syncthreads();  // also: the gradients of classes without a state are written
    // The first state of a class adds those after it, in their order.
    for (uint32_t i = threadIdx.x; i < sequence.states; i += kThreads) {
      const int32_t label = sequence.label(i);
      bool is_first = true;
      for (uint32_t k = i % 2 ? 1 : 0; k < i; k += 2) is_first &= sequence.label(k) != label;
      if (!is_first) continue;
      Wide together = minus_infinity<Wide>();
      for (uint32_t k = i; k < sequence.states; k += 2)
        if (sequence.label(k) == label)
          together = log_of_sum(together, alpha.load<Wide>((first + t) * s.width + k) + next[k]);
      dlogits.template store<Wide>(scores + label,
                                   slope(factor, logs.template load<Wide>(scores + label), together, loss));
    }
    Wide* const other = beta;
    beta = next, next = other;
    __syncthreads();
  }
}

}  // namespace

size_t ctc_scratch_elements(const CtcForm& s) { return size_t{s.count} * s.steps * s.classes + s.count; }

void launch_ctc_loss(cudaStream_t stream, const CtcForm& s, void* scratch, const int32_t* targets, Array logits,
                     Array loss, Array log_probabilities, Array alpha) {
  with_access({logits.dtype}, {loss.dtype, log_probabilities.dtype, alpha.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    auto* losses = static_cast<Wide*>(scratch);
    Wide* logs = losses + s.count;
    log_softmax_rows<Wide><<<s.count * s.steps, row_threads(s.classes), 0, stream>>>(s.classes, Access(logits),
                                                                                     AnyTyped(log_probabilities), logs);
    launched("ctc_loss: logarithms");
    forward<Wide>
        <<<s.count, kThreads, 2 * s.width * sizeof(double), stream>>>(s, targets, logs, AnyTyped(alpha), losses);
    launched("ctc_loss");
    mean_loss<Wide><<<1, row_threads(s.count), 0, stream>>>(s.count, losses, AnyTyped(loss));
    launched("ctc_loss: mean");
  });
}

void launch_ctc_loss_backward(cudaStream_t stream, const CtcForm& s, const int32_t* targets, Array log_probabilities,
                              Array alpha, Array dlogits, double dloss) {
  with_access({log_probabilities.dtype, dlogits.dtype}, {alpha.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    backward<Wide><<<s.count, kThreads, 2 * s.width * sizeof(double), stream>>>(
        s, targets, Access(log_probabilities), AnyTyped(alpha), Access(dlogits), static_cast<Wide>(dloss));
  });
  launched("ctc_loss_backward");
}

}  // namespace halfmark::kernels::cuda
