// Layer norm, RMS norm, group norm and weight norm: in registers (row_norm_packs.cuh) if the rows fit; else a block for
// each row, in two passes as batch norm has.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/row_norm_packs.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

// The place in memory of element i in logical order.
__device__ __forceinline__ uint32_t place_in(const Channels& c, uint32_t i) {
  if (!c.last) return i;
  const uint32_t plane = i / c.pixels, image = plane / c.channels;
  return (image * c.pixels + (i - plane * c.pixels)) * c.channels + (plane - image * c.channels);
}

// f(i, place) for this thread's elements of a row.
template <class F>
__device__ __forceinline__ void each_of(const RowNormForm& s, uint32_t row, F f) {
  for (uint32_t i = row * s.width + threadIdx.x; i < (row + 1) * s.width; i += blockDim.x) f(i, place_in(s.places, i));
}
__device__ __forceinline__ uint32_t entry_of(const RowNormForm& s, uint32_t i) { return i / s.repeat % s.entries; }

template <class Wide, class Access>
__global__ void __launch_bounds__(kMostRowThreads)
    normalize_rows(RowNormForm s, Access x, AnyTyped scale, AnyTyped shift, Access out, AnyTyped means,
                   AnyTyped inverses, Wide epsilon) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t row = blockIdx.x, start = row * s.width;
  const Wide width = static_cast<Wide>(s.width);
  Wide mean = 0, rest = 0, squares = 0;
  if (s.centred) {
    Wide sum = 0;
    if (s.places.last)
      each_of(s, row, [&](uint32_t, uint32_t place) { sum += x.template load<Wide>(place); });
    else
      each_in_row<Wide>(x, start, s.width, s.width, [&](uint32_t, Wide value) { sum += value; });
    mean = over_block(sum, shared, Plus()) / width;
  }
  const auto add = [&](Wide value) { rest += value - mean, squares += (value - mean) * (value - mean); };
  if (s.places.last)
    each_of(s, row, [&](uint32_t, uint32_t place) { add(x.template load<Wide>(place)); });
  else
    each_in_row<Wide>(x, start, s.width, s.width, [&](uint32_t, Wide value) { add(value); });
  squares = over_block(squares, shared, Plus());
  // The rounding error of the mean, as in batch norm (reduce.cu).
  if (s.centred) {
    rest = over_block(rest, shared, Plus());
    const Wide difference = squares - rest * rest / width;
    squares = difference < 0 ? Wide(0) : difference;
  }
  const Wide inverse = formulas::batch_norm_inverse(s.summed ? squares : squares / width, epsilon);
  const auto normalised = [&](uint32_t i, Wide value) {
    const uint32_t entry = entry_of(s, i);
    const Wide factor = scale.present() ? scale.load<Wide>(entry) : Wide(1),
               offset = shift.present() ? shift.load<Wide>(entry) : Wide(0);
    return formulas::batch_norm(value, mean, inverse, factor, offset);
  };
  if (s.places.last)
    each_of(s, row, [&](uint32_t i, uint32_t place) {
      out.template store<Wide>(place, normalised(i, x.template load<Wide>(place)));
    });
  else
    map_row<Wide>(x, out, start, s.width, [&](uint32_t i, Wide value) { return normalised(start + i, value); });
  if (threadIdx.x != 0) return;
  inverses.store<Wide>(row, inverse);
  if (s.centred) means.store<Wide>(row, mean);
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kMostRowThreads)
    normalize_rows_backward(RowNormForm s, Access x, Access dy, AnyTyped scale, AnyTyped means, AnyTyped inverses,
                            Access dx) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t row = blockIdx.x, start = row * s.width;
  const Wide width = static_cast<Wide>(s.width), inverse = inverses.load<Wide>(row),
             mean = s.centred ? means.load<Wide>(row) : Wide(0);
  const auto gradient = [&](uint32_t i, Wide value) {
    return scale.present() ? scale.load<Wide>(entry_of(s, i)) * value : value;
  };
  Wide sum = 0, product = 0;
  const auto add = [&](uint32_t i, Wide value, Wide given) {
    const Wide g = gradient(i, given);
    sum += g, product += g * ((value - mean) * inverse);
  };
  if (s.places.last)
    each_of(s, row,
            [&](uint32_t i, uint32_t place) { add(i, x.template load<Wide>(place), dy.template load<Wide>(place)); });
  else
    each_in_rows<Wide>(x, dy, start, s.width,
                       [&](uint32_t i, Wide value, Wide given) { add(start + i, value, given); });
  product = over_block(product, shared, Plus());
  if (!s.summed) product /= width;
  sum = s.centred ? over_block(sum, shared, Plus()) / width : Wide(0);
  const auto result = [&](uint32_t i, Wide value, Wide given) {
    return inverse * (gradient(i, given) - sum - (value - mean) * inverse * product);
  };
  if (s.places.last)
    each_of(s, row, [&](uint32_t i, uint32_t place) {
      dx.template store<Wide>(place, result(i, x.template load<Wide>(place), dy.template load<Wide>(place)));
    });
  else
    map_rows<Wide>(x, dy, dx, start, s.width,
                   [&](uint32_t i, Wide value, Wide given) { return result(start + i, value, given); });
}

// sum dy and sum dy xhat over the values that use an entry.
template <class Wide, class Access>
struct EntrySums {
  RowNormForm s;
  Access x, dy;
  AnyTyped means, inverses;
  __device__ void prepare(uint32_t) {}
  __device__ void add(uint32_t i, Pair<Wide>& sum) const {
    const uint32_t place = place_in(s.places, i), row = i / s.width;
    const Wide given = dy.template load<Wide>(place), mean = s.centred ? means.load<Wide>(row) : Wide(0);
    sum.first += given, sum.second += given * ((x.template load<Wide>(place) - mean) * inverses.load<Wide>(row));
  }
};

template <class Wide>
struct StoreEntry {
  AnyTyped dscale, dshift;
  __device__ void operator()(uint32_t entry, const Pair<Wide>& sum) const {
    if (dshift.present()) dshift.store<Wide>(entry, sum.first);
    if (dscale.present()) dscale.store<Wide>(entry, sum.second);
  }
};

// The values of entry e, in logical order, as those of a channel.
Channels values_of_entries(const RowNormForm& s, uint32_t rows) {
  return {rows * s.width / (s.entries * s.repeat), s.entries, s.repeat, s.repeat == 1};
}

}  // namespace

void launch_normalize_rows(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const RowNormArrays& a,
                           double epsilon) {
  if (start_mixed(a.x.dtype, a.out.dtype, [&](auto half) {
        return start_normalize_packs<float, float, decltype(half)>(stream, rows, s, a, epsilon);
      }))
    return launched("normalize_rows");
  with_access({a.x.dtype, a.out.dtype}, {a.scale.dtype, a.shift.dtype, a.mean.dtype, a.inverse.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                using T = typename ElementOf<Access>::Type;
                if constexpr (!std::is_void_v<T>)
                  if (start_normalize_packs<Wide, T, T>(stream, rows, s, a, epsilon)) return;
                normalize_rows<Wide><<<rows, row_threads(s.width), 0, stream>>>(
                    s, Access(a.x), AnyTyped(a.scale), AnyTyped(a.shift), Access(a.out), AnyTyped(a.mean),
                    AnyTyped(a.inverse), static_cast<Wide>(epsilon));
              });
  launched("normalize_rows");
}

size_t entry_scratch_elements(const RowNormForm& s, uint32_t rows) {
  const Channels c = values_of_entries(s, rows);
  const size_t splits = splits_of(c), parts = has_entry_columns(s) ? parts_of_rows(rows, s.width) : 0;
  return 2 * std::max(splits, parts) * c.channels;
}

void launch_normalize_rows_backward(cudaStream_t stream, uint32_t rows, const RowNormForm& s, bool wide, void* scratch,
                                    const RowNormBackwardArrays& a) {
  if (!wide && a.dx.dtype == DType::f32 && start_mixed(a.x.dtype, a.dy.dtype, [&](auto half) {
        return start_normalize_packs_backward<float, float, decltype(half)>(stream, rows, s, scratch, a);
      }))
    return;
  with_wide_access(
      {a.x.dtype, a.dy.dtype, a.dx.dtype},
      {a.scale.dtype, a.mean.dtype, a.inverse.dtype, a.dscale.dtype, a.dshift.dtype}, wide, [&](auto choice) {
        using Access = typename decltype(choice)::Access;
        using Wide = typename decltype(choice)::Wide;
        using T = typename ElementOf<Access>::Type;
        if constexpr (!std::is_void_v<T>)
          if (start_normalize_packs_backward<Wide, T, T>(stream, rows, s, scratch, a)) return;
        // Before dx, which may be dy.
        if (a.dscale.data || a.dshift.data)
          sum_channels(stream, values_of_entries(s, rows),
                       EntrySums<Wide, Access>{s, Access(a.x), Access(a.dy), AnyTyped(a.mean), AnyTyped(a.inverse)},
                       static_cast<Pair<Wide>*>(scratch), StoreEntry<Wide>{AnyTyped(a.dscale), AnyTyped(a.dshift)});
        RowNormBackwardArrays rest = a;
        rest.dscale = rest.dshift = {};
        if constexpr (!std::is_void_v<T>)
          if (start_normalize_packs_backward<Wide, T, T>(stream, rows, s, nullptr, rest)) return;
        normalize_rows_backward<Wide><<<rows, row_threads(s.width), 0, stream>>>(
            s, Access(a.x), Access(a.dy), AnyTyped(a.scale), AnyTyped(a.mean), AnyTyped(a.inverse), Access(a.dx));
        launched("normalize_rows_backward");
      });
}

bool launch_normalize_rows_backward_add(cudaStream_t stream, uint32_t rows, const RowNormForm& s, void* scratch,
                                        const RowNormBackwardArrays& a) {
  const bool sums = a.dscale.data || a.dshift.data;
  if (sums && !has_entry_columns(s)) return false;
  bool started = false;
  if (start_mixed(a.x.dtype, a.dy.dtype, [&](auto half) {
        return started =
                   start_normalize_packs_backward<float, float, decltype(half), true>(stream, rows, s, scratch, a);
      }))
    return true;
  if (a.x.dtype != a.dy.dtype) return false;
  with_access({a.x.dtype}, {a.scale.dtype, a.mean.dtype, a.inverse.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    using T = typename ElementOf<Access>::Type;
    if constexpr (!std::is_void_v<T>)
      started = start_normalize_packs_backward<Wide, T, T, true>(stream, rows, s, scratch, a);
  });
  return started;
}

}  // namespace halfmark::kernels::cuda
