// Cases of masks and attention. The fp64 loops are written from the definitions in operations/sequence.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/softmax.h"

namespace halfmark::kernels::ops_cases {

namespace {

// samples: u8, a row of keys for each sample, of which the last attends to nothing. queries: added, a row for each query,
// of which the first attends to nothing.
enum class MaskForm : uint8_t { none, samples, queries };

struct AttentionForm {
  int64_t n, heads, t, s, d;
  bool causal;
  MaskForm mask = MaskForm::none;
  double sharpness = 1;  // factor of the scores: large ones leave weights near 0 and 1
  double scale() const { return sharpness / std::sqrt(static_cast<double>(d)); }
  // What is added to a score: every value is exact in every type.
  double added(int64_t sample, int64_t query, int64_t key) const {
    if (mask == MaskForm::samples) return sample == n - 1 || (sample + key) % 3 == 1 ? -HUGE_VAL : 0;
    if (mask == MaskForm::queries)
      return query == 0 || (query + key) % 4 == 2 ? -HUGE_VAL : (query + key) % 4 == 1 ? -1.5 : 0.25;
    return 0;
  }
  Tensor mask_tensor(const CaseRequest& request, DType dtype) const {
    if (mask == MaskForm::none) return {};
    const bool samples = mask == MaskForm::samples;
    const Shape shape = samples ? Shape{n, 1, s} : Shape{1, t, s};
    const DType stored = samples ? DType::u8 : has_infinity(dtype) ? dtype : DType::f32;
    return filled_tensor(request, shape, stored, Layout::plain, [&] {
      std::vector<double> values;
      for (int64_t row = 0; row < (samples ? n : t); ++row)
        for (int64_t j = 0; j < s; ++j) values.push_back(samples ? (added(row, 0, j) == 0 ? 1 : 0) : added(0, row, j));
      return values;
    });
  }
  Shape queries() const { return {n, heads, t, d}; }
  Shape keys() const { return {n, heads, s, d}; }
  int64_t seen(int64_t i) const { return causal ? std::min(s, i + 1) : s; }
  std::string text() const {
    constexpr const char* kMasks[] = {"", " masked samples", " masked queries"};
    return queries().text() + " " + keys().text() + (causal ? " causal" : "") + kMasks[static_cast<size_t>(mask)] +
           (sharpness == 1 ? "" : " sharp");
  }
};

std::vector<AttentionForm> attention_forms(const CaseRequest& request) {
  const Shape& single = request.axes.single.attention;
  if (!request.axes.norm_forms) return {{single[0], single[1], single[2], single[3], single[4], true}};
  return {
      {2, 2, 5, 5, 4, true},
      {1, 2, 3, 7, 6, false},
      {1, 1, 1, 1, 1, false},
      {1, 2, 9, 4, 5, true},
      {3, 2, 4, 7, 3, false, MaskForm::samples},
      {2, 2, 5, 6, 4, false, MaskForm::queries},
      {2, 1, 6, 6, 3, true, MaskForm::samples},
      // More queries than a block of the rows takes, 64.
      {1, 1, 67, 5, 3, false},
      {1, 1, 67, 67, 3, true},
      // Keys that only the fourth block of queries sees; heads of whole vectors, whose rows need no copy, and others.
      {1, 2, 193, 200, 16, true},
      {1, 3, 70, 67, 48, false},
      {1, 2, 70, 70, 17, false, MaskForm::queries},
      {1, 2, 70, 70, 16, true, MaskForm::queries},
      {1, 2, 70, 70, 24, true},
      // A mask for each sample, and more scores of a head than a slice of the rows has on the software GPU.
      {3, 2, 33, 36, 4, false, MaskForm::samples},
      // As many keys as a library before cuDNN 9.15.1 takes backward: a multiple of 128.
      {1, 1, 66, 128, 16, false},
      {1, 2, 20, 20, 16, false, MaskForm::none, 40}};
}

// Of one query in fp64: the probabilities with the relative error that the given arithmetic may leave, and log sum.
struct Attended {
  std::vector<double> p, relative;
  double log_sum = 0, log_error = 0;
  Attended(const AttentionForm& f, const std::vector<double>& q, const std::vector<double>& k, size_t head, int64_t i,
           double scale, const Format& format)
      : p(at(f.seen(i))), relative(p.size()) {
    double largest = -HUGE_VAL, sum = 0, error = 0;
    std::vector<double> score(p.size()), score_error(p.size());
    const auto sample = static_cast<int64_t>(head) / f.heads;
    for (size_t j = 0; j < p.size(); ++j) {
      double magnitude = 0;
      for (int64_t e = 0; e < f.d; ++e) {
        const double product =
            q[(head * at(f.t) + at(i)) * at(f.d) + at(e)] * k[(head * at(f.s) + j) * at(f.d) + at(e)];
        score[j] += scale * product, magnitude += std::fabs(scale * product);
      }
      const double added = f.added(sample, i, static_cast<int64_t>(j));
      score[j] += added;
      if (std::isfinite(added)) magnitude += std::fabs(added);
      score_error[j] = gamma(static_cast<double>(f.d) + 4, format) * magnitude;
      largest = std::max(largest, score[j]);
    }
    if (largest == -HUGE_VAL) {  // it attends to nothing
      log_sum = largest;
      return;
    }
    double worst = 0;
    for (const double one : score_error) worst = std::max(worst, one);
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = std::exp(score[j] - largest);
      relative[j] = p[j] == 0 ? 0 : 2 * worst + exp_error(score[j] - largest, format);
      sum += p[j], error += p[j] * relative[j];
    }
    const double of_sum = error / sum + gamma(static_cast<double>(p.size()) + 2, format);
    for (size_t j = 0; j < p.size(); ++j) p[j] /= sum, relative[j] += of_sum + gamma(2, format);
    log_sum = largest + std::log(sum);
    log_error = worst + of_sum + gamma(4, format) * (1 + std::fabs(largest) + std::fabs(std::log(sum)));
  }
};

}  // namespace

template <>
void Cases<MaskScores>::each(const CaseRequest& request, const RunCase<MaskScores>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const AttentionForm& form : attention_forms(request)) {
      if (request.axes.norm_forms && form.mask == MaskForm::none) continue;
      AttentionForm masked = form;
      if (form.mask == MaskForm::none) masked.mask = MaskForm::samples;  // the one case that is timed
      const Shape shape{masked.n * masked.heads, masked.t, masked.s};
      const Tensor scores = random_tensor(request, shape, dtype, Layout::plain, 1),
                   mask = masked.mask_tensor(request, dtype);
      Tensor out(request.device, shape, dtype, Layout::any);
      run_case(type + " " + masked.text(), MaskScores{.scores = scores, .mask = mask, .out = out},
               [&](CaseResult& result) {
                 std::vector<double> expected = scores.values(), slack;
                 for (int64_t i = 0; i < shape.elements(); ++i) {
                   const double added =
                       masked.added(i / (masked.t * masked.s) / masked.heads, i / masked.s % masked.t, i % masked.s);
                   expected[at(i)] += added;
                   slack.push_back(gamma(1, wide_format(scores.dtype())) * std::fabs(expected[at(i)]));
                   if (std::isinf(added)) slack.back() = 0;
                 }
                 result.expect_close(out, expected, slack);
               });
    }
  });
}

namespace {

// The error that a probability or a derivative of a score gets if it is rounded to the dtype of q: relative, and where it
// is subnormal.
struct RoundedBetween {
  double relative = 0, least = 0;
  RoundedBetween(const CaseRequest& request, DType dtype) {
    const Format& format = format_of(dtype);
    if (request.rounds_between) relative = format.unit_roundoff(), least = smallest(format) / 2;
  }
};

// Values of [n, heads, length, d].
struct HeadValues {
  std::vector<double> q, k, v;
};

struct ExpectedForward {
  std::vector<double> out, slack, sums, sum_slack;
};
ExpectedForward expected_forward(const AttentionForm& form, const HeadValues& x, const Format& format,
                                 const RoundedBetween& rounded) {
  ExpectedForward y{std::vector<double>(x.q.size()), std::vector<double>(x.q.size()), {}, {}};
  for (size_t head = 0; head < at(form.n * form.heads); ++head)
    for (int64_t i = 0; i < form.t; ++i) {
      const Attended row(form, x.q, x.k, head, i, form.scale(), format);
      y.sums.push_back(row.log_sum), y.sum_slack.push_back(row.log_error);
      for (int64_t e = 0; e < form.d; ++e) {
        const size_t place = (head * at(form.t) + at(i)) * at(form.d) + at(e);
        for (size_t j = 0; j < row.p.size(); ++j) {
          const double value = x.v[(head * at(form.s) + j) * at(form.d) + at(e)], term = row.p[j] * value;
          y.out[place] += term;
          y.slack[place] += (row.relative[j] + (1 + row.relative[j]) * rounded.relative +
                             gamma(static_cast<double>(row.p.size()) + 2, format)) *
                                std::fabs(term) +
                            rounded.least * std::fabs(value);
        }
        y.slack[place] += smallest(format);
      }
    }
  return y;
}
// What forward gives backward: out, or the logarithms of the sums.
std::vector<double> fp64_forward(const AttentionForm& form, const HeadValues& x, bool wants_sum) {
  std::vector<double> values, sums;
  for (size_t head = 0; head < at(form.n * form.heads); ++head)
    for (int64_t i = 0; i < form.t; ++i) {
      const Attended row(form, x.q, x.k, head, i, form.scale(), kFp64);
      sums.push_back(row.log_sum);
      for (int64_t e = 0; e < form.d; ++e) {
        double sum = 0;
        for (size_t j = 0; j < row.p.size(); ++j) sum += row.p[j] * x.v[(head * at(form.s) + j) * at(form.d) + at(e)];
        values.push_back(sum);
      }
    }
  return wants_sum ? sums : values;
}

struct ExpectedBackward {
  HeadValues gradients, slack;
};
ExpectedBackward expected_backward(const AttentionForm& form, const HeadValues& x, const std::vector<double>& out,
                                   const std::vector<double>& log_sum, const std::vector<double>& dout,
                                   const Format& format, const RoundedBetween& rounded) {
  const auto zeros = [&] {
    return HeadValues{std::vector<double>(x.q.size()), std::vector<double>(x.k.size()),
                      std::vector<double>(x.v.size())};
  };
  ExpectedBackward y{zeros(), zeros()};
  auto& [eq, ek, ev] = y.gradients;
  auto& [sq, sk, sv] = y.slack;
  const double scale = form.scale();
  const double rounding = gamma(static_cast<double>(form.t + form.s + 3 * form.d) + 16, format) +
                          1.01 * rounded.relative;  // 1.01: of a value that has its own error already
  for (size_t head = 0; head < at(form.n * form.heads); ++head)
    for (int64_t i = 0; i < form.t; ++i) {
      const Attended row(form, x.q, x.k, head, i, scale, format);
      const size_t r = head * at(form.t) + at(i), d = at(form.d);
      double along = 0, along_magnitude = 0;
      for (size_t e = 0; e < d; ++e)
        along += dout[r * d + e] * out[r * d + e], along_magnitude += std::fabs(dout[r * d + e] * out[r * d + e]);
      for (size_t j = 0; j < row.p.size(); ++j) {
        const double added = form.added(static_cast<int64_t>(head) / form.heads, i, static_cast<int64_t>(j));
        if (added == -HUGE_VAL) continue;
        const size_t other = (head * at(form.s) + j) * d;
        double score = added, slope = 0, slope_magnitude = along_magnitude;
        for (size_t e = 0; e < d; ++e) {
          score += scale * x.q[r * d + e] * x.k[other + e], slope += dout[r * d + e] * x.v[other + e];
          slope_magnitude += std::fabs(dout[r * d + e] * x.v[other + e]);
        }
        const double p = std::exp(score - log_sum[r]), ds = scale * p * (slope - along);
        const double relative = row.relative[j] + rounding;
        for (size_t e = 0; e < d; ++e) {
          ev[other + e] += p * dout[r * d + e];
          sv[other + e] += relative * std::fabs(p * dout[r * d + e]) + rounded.least * std::fabs(dout[r * d + e]);
          eq[r * d + e] += ds * x.k[other + e], ek[other + e] += ds * x.q[r * d + e];
          const double error = relative * scale * p * slope_magnitude + rounded.least;
          sq[r * d + e] += error * std::fabs(x.k[other + e]), sk[other + e] += error * std::fabs(x.q[r * d + e]);
        }
      }
    }
  for (std::vector<double>* slack : {&sq, &sk, &sv})
    for (double& one : *slack) one += 8 * smallest(format);
  return y;
}

// From [n, t, parts, heads, d] one of its parts as [n, heads, t, d], and back.
std::vector<double> separated(const AttentionForm& f, const std::vector<double>& all, int64_t part, int64_t parts) {
  std::vector<double> values;
  for (int64_t n = 0; n < f.n; ++n)
    for (int64_t head = 0; head < f.heads; ++head)
      for (int64_t i = 0; i < f.t; ++i)
        for (int64_t e = 0; e < f.d; ++e)
          values.push_back(all[at((((n * f.t + i) * parts + part) * f.heads + head) * f.d + e)]);
  return values;
}
std::vector<double> together(const AttentionForm& f, const std::vector<const std::vector<double>*>& parts) {
  std::vector<double> all;
  for (int64_t n = 0; n < f.n; ++n)
    for (int64_t i = 0; i < f.t; ++i)
      for (const std::vector<double>* part : parts)
        for (int64_t head = 0; head < f.heads; ++head)
          for (int64_t e = 0; e < f.d; ++e) all.push_back((*part)[at(((n * f.heads + head) * f.t + i) * f.d + e)]);
  return all;
}
HeadValues separated_parts(const AttentionForm& f, const Tensor& qkv) {
  const std::vector<double> all = qkv.values();
  return {separated(f, all, 0, 3), separated(f, all, 1, 3), separated(f, all, 2, 3)};
}
std::vector<double> together(const AttentionForm& f, const HeadValues& x) { return together(f, {&x.q, &x.k, &x.v}); }

// Those with as many queries as keys, and heads of whole vectors of several samples, which a library takes.
std::vector<AttentionForm> packed_forms(const CaseRequest& request) {
  std::vector<AttentionForm> forms;
  for (const AttentionForm& form : attention_forms(request))
    if (form.t == form.s) forms.push_back(form);
  if (!request.axes.norm_forms) return forms;
  forms.insert(forms.end(), {{3, 2, 7, 7, 8, false}, {2, 3, 12, 12, 16, true}, {1, 2, 128, 128, 8, true}});
  return forms;
}
Shape packed_shape(const AttentionForm& f) { return {f.n, f.t, 3, f.heads, f.d}; }
Shape positions_shape(const AttentionForm& f) { return {f.n, f.t, f.heads, f.d}; }

}  // namespace

template <>
void Cases<Attention>::each(const CaseRequest& request, const RunCase<Attention>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const AttentionForm& form : attention_forms(request)) {
      const Tensor q = random_tensor(request, form.queries(), dtype, Layout::plain, 1),
                   k = random_tensor(request, form.keys(), dtype, Layout::plain, 2),
                   v = random_tensor(request, form.keys(), dtype, Layout::plain, 3);
      Tensor out(request.device, form.queries(), dtype, Layout::any),
          log_sum(request.device, {form.n, form.heads, form.t}, wide_type(dtype));
      const Tensor mask = form.mask_tensor(request, dtype);
      const Attention op{.q = q,
                         .k = k,
                         .v = v,
                         .mask = mask,
                         .out = out,
                         .log_sum = log_sum,
                         .causal = form.causal,
                         .scale = form.scale()};
      run_case(type + " " + form.text(), op, [&](CaseResult& result) {
        const ExpectedForward y = expected_forward(form, {q.values(), k.values(), v.values()}, wide_format(dtype),
                                                   RoundedBetween(request, dtype));
        result.expect_close(out, y.out, y.slack, "out"), result.expect_close(log_sum, y.sums, y.sum_slack, "log_sum");
      });
    }
  });
}

template <>
void Cases<PackedAttention>::each(const CaseRequest& request, const RunCase<PackedAttention>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const AttentionForm& form : packed_forms(request)) {
      const Tensor qkv = random_tensor(request, packed_shape(form), dtype, Layout::plain, 1),
                   mask = form.mask_tensor(request, dtype);
      Tensor out(request.device, positions_shape(form), dtype, Layout::any),
          log_sum(request.device, {form.n, form.heads, form.t}, wide_type(dtype));
      const PackedAttention op{
          .qkv = qkv, .mask = mask, .out = out, .log_sum = log_sum, .causal = form.causal, .scale = form.scale()};
      run_case(type + " " + form.text(), op, [&](CaseResult& result) {
        const ExpectedForward y =
            expected_forward(form, separated_parts(form, qkv), wide_format(dtype), RoundedBetween(request, dtype));
        result.expect_close(out, together(form, {&y.out}), together(form, {&y.slack}), "out");
        result.expect_close(log_sum, y.sums, y.sum_slack, "log_sum");
      });
    }
  });
}

template <>
void Cases<AttentionBackward>::each(const CaseRequest& request, const RunCase<AttentionBackward>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const AttentionForm& form : attention_forms(request)) {
      const Tensor q = random_tensor(request, form.queries(), dtype, Layout::plain, 1),
                   k = random_tensor(request, form.keys(), dtype, Layout::plain, 2),
                   v = random_tensor(request, form.keys(), dtype, Layout::plain, 3),
                   dout = random_tensor(request, form.queries(), dtype, Layout::plain, 4);
      const Tensor mask = form.mask_tensor(request, dtype);
      const auto x = [&] { return HeadValues{q.values(), k.values(), v.values()}; };
      const Tensor out = filled_tensor(request, form.queries(), dtype, Layout::plain,
                                       [&] { return fp64_forward(form, x(), false); }),
                   log_sum = filled_tensor(request, {form.n, form.heads, form.t}, wide_type(dtype), Layout::plain,
                                           [&] { return fp64_forward(form, x(), true); });
      Tensor dq(request.device, form.queries(), dtype), dk(request.device, form.keys(), dtype),
          dv(request.device, form.keys(), dtype);
      const AttentionBackward op{.q = q,
                                 .k = k,
                                 .v = v,
                                 .mask = mask,
                                 .out = out,
                                 .log_sum = log_sum,
                                 .dout = dout,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .causal = form.causal,
                                 .scale = form.scale()};
      run_case(type + " " + form.text(), op, [&](CaseResult& result) {
        const ExpectedBackward y = expected_backward(form, x(), out.values(), log_sum.values(), dout.values(),
                                                     wide_format(dtype), RoundedBetween(request, dtype));
        result.expect_close(dq, y.gradients.q, y.slack.q, "dq"),
            result.expect_close(dk, y.gradients.k, y.slack.k, "dk");
        result.expect_close(dv, y.gradients.v, y.slack.v, "dv");
      });
    }
  });
}

template <>
void Cases<PackedAttentionBackward>::each(const CaseRequest& request,
                                          const RunCase<PackedAttentionBackward>& run_case) {
  each_sequence_type(request, [&](DType dtype, const std::string& type) {
    for (const AttentionForm& form : packed_forms(request)) {
      const Tensor qkv = random_tensor(request, packed_shape(form), dtype, Layout::plain, 1),
                   dout = random_tensor(request, positions_shape(form), dtype, Layout::plain, 4),
                   mask = form.mask_tensor(request, dtype);
      const Tensor out = filled_tensor(request, positions_shape(form), dtype, Layout::plain,
                                       [&] {
                                         const std::vector<double> y =
                                             fp64_forward(form, separated_parts(form, qkv), false);
                                         return together(form, {&y});
                                       }),
                   log_sum = filled_tensor(request, {form.n, form.heads, form.t}, wide_type(dtype), Layout::plain,
                                           [&] { return fp64_forward(form, separated_parts(form, qkv), true); });
      Tensor dqkv(request.device, packed_shape(form), dtype, Layout::any);
      const PackedAttentionBackward op{.qkv = qkv,
                                       .mask = mask,
                                       .out = out,
                                       .log_sum = log_sum,
                                       .dout = dout,
                                       .dqkv = dqkv,
                                       .causal = form.causal,
                                       .scale = form.scale()};
      run_case(type + " " + form.text(), op, [&](CaseResult& result) {
        const ExpectedBackward y =
            expected_backward(form, separated_parts(form, qkv), separated(form, out.values(), 0, 1), log_sum.values(),
                              separated(form, dout.values(), 0, 1), wide_format(dtype), RoundedBetween(request, dtype));
        result.expect_close(dqkv, together(form, y.gradients), together(form, y.slack), "dqkv");
      });
    }
  });
}

}  // namespace halfmark::kernels::ops_cases
