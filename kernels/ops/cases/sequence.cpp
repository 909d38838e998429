// Cases of permutations, embeddings, dropout and the LSTM cell. The fp64 loops are written from the definitions in
// operations/sequence.h.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/ops/cases/softmax.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<Permute>::each(const CaseRequest& request, const RunCase<Permute>& run_case) {
  struct Form {
    Shape x;
    AxisOrder order;
  };
  std::vector<Form> forms = {{{2, 5, 3, 2, 4}, {{2, 0, 3, 1, 4}, 5}},
                             {{4, 6}, {{1, 0}, 2}},
                             {{2, 3, 1, 5}, {{0, 3, 1, 2}, 4}},
                             {{2, 3, 4}, {{0, 1, 2}, 3}}};
  if (!request.axes.norm_forms) forms = {{request.axes.single.permute, {{2, 0, 3, 1, 4}, 5}}};
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const Form& form : forms) {
      const Tensor x = random_tensor(request, form.x, dtype, Layout::plain, 1);
      const Shape to = permuted(form.x, form.order);
      Tensor out(request.device, to, dtype);
      run_case(type + " " + form.x.text() + " to " + to.text(), Permute{.x = x, .out = out, .order = form.order},
               [&](CaseResult& result) {
                 const std::vector<double> xv = x.values();
                 std::vector<double> expected(xv.size());
                 for (size_t i = 0; i < xv.size(); ++i) {
                   std::array<int64_t, 6> index{};  // of x
                   size_t rest = i;
                   for (int axis = form.x.rank(); axis-- > 0;)
                     index[at(axis)] = static_cast<int64_t>(rest % at(form.x[axis])), rest /= at(form.x[axis]);
                   size_t place = 0;
                   for (int axis = 0; axis < to.rank(); ++axis)
                     place = place * at(to[axis]) + at(index[at(form.order.order[at(axis)])]);
                   expected[place] = xv[i];
                 }
                 result.expect_exact(out, expected);
               });
    }
  });
}

namespace {

// Indices with repetitions, the first and the last entry.
std::vector<double> some_indices(int64_t count, int64_t entries) {
  std::vector<double> indices;
  for (int64_t i = 0; i < count; ++i)
    indices.push_back(static_cast<double>(i % 3 == 0 ? entries - 1 : (i * i) % entries));
  return indices;
}

Shape index_shape(const CaseRequest& request) {
  return request.axes.norm_forms ? Shape{3, 7} : request.axes.single.indices;
}

Shape table_shape(const CaseRequest& request) {
  return request.axes.norm_forms ? Shape{5, 70} : request.axes.single.table;
}

}  // namespace

template <>
void Cases<NarrowIndices>::each(const CaseRequest& request, const RunCase<NarrowIndices>& run_case) {
  const Shape where = index_shape(request);
  const auto index = [where] {
    std::vector<double> indices = some_indices(where.elements(), 1000);
    // The ends of 32 bits, and numbers whose lower half is negative as an i32.
    const double ends[] = {-0x1p31, 0x1p31 - 1, -1, 0, 1, -100, 0x1p30};
    std::copy(std::begin(ends), std::end(ends), indices.begin());
    return indices;
  };
  const Tensor wide = filled_tensor(request, {where[0], where[1], 2}, DType::i32, Layout::plain, [&] {
    std::vector<double> halves;
    for (const double i : index()) halves.push_back(i), halves.push_back(std::floor(i / 0x1p32));
    return halves;
  });
  Tensor narrow(request.device, where, DType::i32);
  run_case("i32", NarrowIndices{.wide = wide, .narrow = narrow},
           [&](CaseResult& result) { result.expect(narrow.values() == index(), "an index is another number"); });
}

template <>
void Cases<Embedding>::each(const CaseRequest& request, const RunCase<Embedding>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    const Shape where = index_shape(request), size = table_shape(request);
    std::vector<double> index = some_indices(where.elements(), size[0]);
    const Tensor indices = filled_tensor(request, where, DType::i32, Layout::plain, [&] { return index; }),
                 table = random_tensor(request, size, dtype, Layout::plain, 1);
    Tensor out(request.device, {where[0], where[1], size[1]}, dtype);
    run_case(type, Embedding{.indices = indices, .table = table, .out = out}, [&](CaseResult& result) {
      const std::vector<double> tv = table.values();
      std::vector<double> expected;
      for (const double i : index)
        for (int64_t e = 0; e < size[1]; ++e) expected.push_back(tv[static_cast<size_t>(i) * at(size[1]) + at(e)]);
      result.expect_exact(out, expected);
    });
  });
}

template <>
void Cases<EmbeddingBackward>::each(const CaseRequest& request, const RunCase<EmbeddingBackward>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const int64_t padding : {int64_t{-1}, int64_t{1}}) {
      if (padding >= 0 && !request.axes.norm_forms) continue;
      const Shape where = index_shape(request), size = table_shape(request);
      std::vector<double> index = some_indices(where.elements(), size[0]);
      const Tensor indices = filled_tensor(request, where, DType::i32, Layout::plain, [&] { return index; }),
                   dy = random_tensor(request, {where[0], where[1], size[1]}, dtype, Layout::plain, 1);
      Tensor dtable(request.device, size, dtype);
      run_case(type + " padding " + std::to_string(padding),
               EmbeddingBackward{.indices = indices, .dy = dy, .dtable = dtable, .padding = padding},
               [&](CaseResult& result) {
                 const std::vector<double> dv = dy.values();
                 std::vector<double> expected(at(size.elements())), slack(expected.size()), terms(expected.size());
                 for (size_t i = 0; i < index.size(); ++i)
                   for (size_t e = 0; e < at(size[1]); ++e) {
                     const size_t place = static_cast<size_t>(index[i]) * at(size[1]) + e;
                     if (static_cast<int64_t>(index[i]) == padding) continue;
                     expected[place] += dv[i * at(size[1]) + e], slack[place] += std::fabs(dv[i * at(size[1]) + e]);
                     terms[place] += 1;
                   }
                 for (size_t i = 0; i < slack.size(); ++i)
                   slack[i] *= terms[i] > 1 ? gamma(terms[i], wide_format(dy.dtype())) : 0;
                 result.expect_close(dtable, expected, slack);
               });
    }
  });
}

namespace {

// f(name, x, mask shape, p)
void each_dropout(const CaseRequest& request, auto&& f) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    const Shape shape = request.axes.norm_forms ? Shape{3, 4, 6, 5} : request.axes.single.dropout;
    for (const double p : {0.25, 0.0, 1.0})
      for (const bool channels : {false, true}) {
        if (!request.axes.norm_forms && (channels || p != 0.25)) continue;
        const Shape mask = channels ? Shape{shape[0], shape[1]} : shape;
        const std::string name = type + " p " + std::to_string(p) + (channels ? " channels" : "");
        f(name, random_tensor(request, shape, dtype, Layout::plain, 1), mask, p);
        if (channels) f(name + " nhwc", random_tensor(request, shape, dtype, Layout::nhwc, 1), mask, p);
      }
  });
}

// The result of a mask. 1 / (1 - p) is rounded, and the product.
void expect_masked(CaseResult& result, const Tensor& from, const Tensor& mask, const Tensor& to, double p) {
  const std::vector<double> x = from.values(), kept = mask.values();
  const size_t share = x.size() / kept.size();
  std::vector<double> expected(x.size()), slack(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    if (kept[i / share] != 0)
      expected[i] = x[i] / (1 - p),
      slack[i] = p == 0 ? 0 : gamma(2, wide_format(from.dtype())) * std::fabs(expected[i]);
  result.expect_close(to, expected, slack);
}

}  // namespace

template <>
void Cases<Dropout>::each(const CaseRequest& request, const RunCase<Dropout>& run_case) {
  each_dropout(request, [&](const std::string& name, const Tensor& x, const Shape& mask_shape, double p) {
    Tensor mask(request.device, mask_shape, DType::u8), out(request.device, x.shape(), x.dtype(), x.layout());
    run_case(name, Dropout{.x = x, .mask = mask, .out = out, .p = p, .seed = 7}, [&](CaseResult& result) {
      // The share of a mask within six standard deviations of a binomial number.
      double kept = 0;
      for (const double one : mask.values())
        kept += one, result.expect(one == 0 || one == 1, "a mask that is not 0 or 1");
      const auto count = static_cast<double>(mask_shape.elements());
      result.expect(std::fabs(kept - count * (1 - p)) <= 6 * std::sqrt(count * p * (1 - p)), "the share kept is wrong");
      expect_masked(result, x, mask, out, p);
    });
  });
}

template <>
void Cases<DropoutBackward>::each(const CaseRequest& request, const RunCase<DropoutBackward>& run_case) {
  each_dropout(request, [&](const std::string& name, const Tensor& dy, const Shape& mask_shape, double p) {
    const Tensor mask = filled_tensor(request, mask_shape, DType::u8, Layout::plain, [&] {
      std::vector<double> kept;
      for (int64_t i = 0; i < mask_shape.elements(); ++i) kept.push_back(p == 1 || i % 3 == 0 ? 0 : 1);
      return kept;
    });
    Tensor dx(request.device, dy.shape(), dy.dtype(), dy.layout());
    run_case(name, DropoutBackward{.dy = dy, .mask = mask, .dx = dx, .p = p},
             [&](CaseResult& result) { expect_masked(result, dy, mask, dx, p); });
  });
}

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One reaches a second block of the rows, which take 256 numbers of a gate at a time.
std::vector<Shape> cell_shapes(const CaseRequest& request) {
  if (!request.axes.norm_forms) return {request.axes.single.lstm};
  return {Shape{3, 5}, Shape{2, 300}};
}

void each_cell(const CaseRequest& request, auto&& f) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const Shape& shape : cell_shapes(request)) f(dtype, type + " " + shape.text(), shape);
  });
}

}  // namespace

template <>
void Cases<LstmCell>::each(const CaseRequest& request, const RunCase<LstmCell>& run_case) {
  each_cell(request, [&](DType dtype, const std::string& type, const Shape& shape) {
    const Shape wide{shape[0], 4 * shape[1]};
    const Tensor z = random_tensor(request, wide, dtype, Layout::plain, 1),
                 before = random_tensor(request, shape, dtype, Layout::plain, 2);
    Tensor gates(request.device, wide, dtype), c(request.device, shape, dtype), h(request.device, shape, dtype);
    run_case(type, LstmCell{.z = z, .c_before = before, .gates = gates, .c = c, .h = h}, [&](CaseResult& result) {
      const Format& format = wide_format(z.dtype());
      const std::vector<double> zv = z.values(), cv = before.values();
      std::vector<double> eg(zv.size()), sg(zv.size()), ec(cv.size()), sc(cv.size()), eh(cv.size()), sh(cv.size());
      const double g = gamma(12, format);
      for (size_t n = 0; n < at(shape[0]); ++n)
        for (size_t j = 0; j < at(shape[1]); ++j) {
          const auto place = [&](size_t which) { return (4 * n + which) * at(shape[1]) + j; };
          const double i = logistic(zv[place(0)]), f = logistic(zv[place(1)]), a = std::tanh(zv[place(2)]),
                       o = logistic(zv[place(3)]);
          const double values[] = {i, f, a, o};
          for (size_t which = 0; which < 4; ++which) eg[place(which)] = values[which], sg[place(which)] = g;
          const size_t k = n * at(shape[1]) + j;
          ec[k] = f * cv[k] + i * a, sc[k] = 2 * g * (1 + std::fabs(cv[k]));
          eh[k] = o * std::tanh(ec[k]), sh[k] = 2 * g + sc[k];
        }
      result.expect_close(gates, eg, sg, "gates"), result.expect_close(c, ec, sc, "c"),
          result.expect_close(h, eh, sh, "h");
    });
  });
}

template <>
void Cases<LstmCellBackward>::each(const CaseRequest& request, const RunCase<LstmCellBackward>& run_case) {
  each_cell(request, [&](DType dtype, const std::string& type, const Shape& shape) {
    const Shape wide{shape[0], 4 * shape[1]};
    const Tensor gates = filled_tensor(request, wide, dtype, Layout::plain, [&] {
      std::vector<double> values = random_values(wide.elements(), 1);
      for (double& value : values) value = logistic(value);
      return values;
    });
    const Tensor before = random_tensor(request, shape, dtype, Layout::plain, 2),
                 c = random_tensor(request, shape, dtype, Layout::plain, 3),
                 dh = random_tensor(request, shape, dtype, Layout::plain, 4),
                 dc = random_tensor(request, shape, dtype, Layout::plain, 5);
    Tensor dz(request.device, wide, dtype), dc_before(request.device, shape, dtype);
    run_case(type,
             LstmCellBackward{
                 .gates = gates, .c_before = before, .c = c, .dh = dh, .dc = dc, .dz = dz, .dc_before = dc_before},
             [&](CaseResult& result) {
               const std::vector<double> gv = gates.values(), bv = before.values(), cv = c.values(), hv = dh.values(),
                                         nv = dc.values();
               std::vector<double> ez(gv.size()), sz(gv.size()), eb(bv.size()), sb(bv.size());
               const double g = gamma(16, wide_format(gates.dtype()));
               for (size_t n = 0; n < at(shape[0]); ++n)
                 for (size_t j = 0; j < at(shape[1]); ++j) {
                   const auto place = [&](size_t which) { return (4 * n + which) * at(shape[1]) + j; };
                   const size_t k = n * at(shape[1]) + j;
                   const double i = gv[place(0)], f = gv[place(1)], a = gv[place(2)], o = gv[place(3)];
                   const double t = std::tanh(cv[k]), d = nv[k] + hv[k] * o * (1 - t * t);
                   const double size = std::fabs(nv[k]) + std::fabs(hv[k]);  // of d, at least
                   const double slopes[] = {d * a * i * (1 - i), d * bv[k] * f * (1 - f), d * i * (1 - a * a),
                                            hv[k] * t * o * (1 - o)};
                   for (size_t which = 0; which < 4; ++which)
                     ez[place(which)] = slopes[which], sz[place(which)] = g * size * (1 + std::fabs(bv[k]));
                   eb[k] = d * f, sb[k] = g * size;
                 }
               result.expect_close(dz, ez, sz, "dz"), result.expect_close(dc_before, eb, sb, "dc_before");
             });
  });
}

}  // namespace halfmark::kernels::ops_cases
