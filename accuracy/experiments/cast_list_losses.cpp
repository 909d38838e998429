// Losses and distances of autocast's lists: of PyTorch's, the kernels that it runs one after the other
// (aten/src/ATen/native/Loss.cpp, Distance.cpp), each of which writes a tensor. Losses are means.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "accuracy/experiments/cast_list_operations.h"

namespace halfmark::accuracy {
namespace {

constexpr size_t kLossWidth = 1024;

using Tensors = std::span<const NumberRow>;

double sum_over(const NumberRow& row) { return std::accumulate(row.begin(), row.end(), 0.0); }

// The mean of what `term` gives for each place, which is stored.
template <class Term>
NumberRow mean_of_terms(const Stored& stored, Tensors x, Term&& term) {
  double sum = 0;
  for (size_t i = 0; i < x[0].size(); ++i) sum += stored(term(i));
  return {stored(sum / static_cast<double>(x[0].size()))};
}

NumberRow mse_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return (x[0][i] - x[1][i]) * (x[0][i] - x[1][i]); });
}
NumberRow l1_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return std::fabs(x[0][i] - x[1][i]); });
}
NumberRow smooth_l1_row(const Stored& stored, Tensors x) {  // with beta 1: also the loss of Huber with delta 1
  return mean_of_terms(stored, x, [&](size_t i) {
    const double z = std::fabs(x[0][i] - x[1][i]);
    return z < 1 ? z * z / 2 : z - 0.5;
  });
}
// One kernel: the mean of the logarithms of the labels' probabilities.
NumberRow nll_row(const Stored& stored, Tensors x) {
  return {stored(-sum_over(x[0]) / static_cast<double>(x[0].size()))};
}
NumberRow cross_entropy_row(const Stored& stored, Tensors x) {
  const double largest = *std::ranges::max_element(x[0]);
  double sum = 0;
  for (const double value : x[0]) sum += std::exp(value - largest);
  return {stored(-stored(x[0][0] - largest - std::log(sum)))};
}
// Of logarithms and probabilities.
NumberRow kl_div_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x,
                       [&](size_t i) { return stored(x[1][i] * std::log(x[1][i])) - stored(x[1][i] * x[0][i]); });
}
NumberRow poisson_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return stored(std::exp(x[0][i])) - stored(x[1][i] * x[0][i]); });
}
NumberRow hinge_embedding_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return x[1][i] > 0 ? x[0][i] : std::max(0.0, stored(1 - x[0][i])); });
}
NumberRow margin_ranking_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return std::max(0.0, -x[2][i] * stored(x[0][i] - x[1][i])); });
}
NumberRow soft_margin_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) { return std::log1p(stored(std::exp(stored(-x[1][i] * x[0][i])))); });
}
// The label is the first class.
NumberRow multi_margin_row(const Stored& stored, Tensors x) {
  double sum = 0;
  for (size_t i = 1; i < x[0].size(); ++i) sum += std::max(0.0, 1 - x[0][0] + x[0][i]);
  return {stored(sum / static_cast<double>(x[0].size()))};
}
NumberRow bce_with_logits_row(const Stored& stored, Tensors x) {
  return mean_of_terms(stored, x, [&](size_t i) {
    const double logit = x[0][i];
    const double log_sigmoid = std::min(logit, 0.0) - std::log1p(std::exp(-std::fabs(logit)));
    return stored(stored(1 - x[1][i]) * logit) - stored(log_sigmoid);
  });
}
NumberRow bce_row(const Stored& stored, Tensors x) {  // ATen bounds the logarithms by -100
  return mean_of_terms(stored, x, [&](size_t i) {
    const double p = x[0][i], target = x[1][i];
    return (target - 1) * std::max(std::log1p(-p), -100.0) - target * std::max(std::log(p), -100.0);
  });
}

double stored_distance(const Stored& stored, const NumberRow& a, const NumberRow& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = stored(a[i] - b[i]);
    squares += difference * difference;
  }
  return stored(std::sqrt(squares));
}
NumberRow dist_row(const Stored& stored, Tensors x) { return {stored_distance(stored, x[0], x[1])}; }
NumberRow cdist_row(const Stored& stored, Tensors x) {
  return {stored(stored_distance({}, x[0], x[1]))};
}  // one kernel
NumberRow triplet_margin_row(const Stored& stored, Tensors x) {
  const double difference = stored(stored_distance(stored, x[0], x[1]) - stored_distance(stored, x[0], x[2]));
  return {stored(std::max(0.0, stored(1 + difference)))};
}
// Both vectors divided by their length, products, their sum.
NumberRow cosine_similarity_row(const Stored& stored, Tensors x) {
  const auto length = [&](const NumberRow& row) {
    return stored(std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0)));
  };
  const double a = length(x[0]), b = length(x[1]);
  double sum = 0;
  for (size_t i = 0; i < x[0].size(); ++i) sum += stored(stored(x[0][i] / a) * stored(x[1][i] / b));
  return {stored(sum)};
}
// Products, sums, and the root of the product of both sums of squares; 1 - cosine, for equal labels.
NumberRow cosine_embedding_row(const Stored& stored, Tensors x) {
  double dot = 0, squares_a = 0, squares_b = 0;
  for (size_t i = 0; i < x[0].size(); ++i)
    dot += stored(x[0][i] * x[1][i]), squares_a += stored(x[0][i] * x[0][i]), squares_b += stored(x[1][i] * x[1][i]);
  const double length = stored(std::sqrt(stored(stored(squares_a) * stored(squares_b))));
  return {stored(stored(1 - stored(stored(dot) / length)))};
}

}  // namespace

std::vector<ListedOperation> listed_losses() {
  using enum OperandKind;
  return {
      {"mse_loss", {real, real}, kLossWidth, 2, mse_row},
      {"l1_loss", {real, real}, kLossWidth, 2, l1_row},
      {"smooth_l1_loss huber_loss", {real, real}, kLossWidth, 2, smooth_l1_row},
      {"nll_loss nll_loss2d", {logarithm}, kLossWidth, 1, nll_row},
      {"cross_entropy_loss", {real}, kLossWidth, 2, cross_entropy_row},
      {"kl_div", {logarithm, probability}, kLossWidth, 3, kl_div_row},
      {"poisson_nll_loss", {real, positive}, kLossWidth, 3, poisson_row},
      {"hinge_embedding_loss", {real, sign}, kLossWidth, 3, hinge_embedding_row},
      {"margin_ranking_loss", {real, real, sign}, kLossWidth, 3, margin_ranking_row},
      {"soft_margin_loss", {real, sign}, kLossWidth, 4, soft_margin_row},
      {"multi_margin_loss", {real}, kLossWidth, 1, multi_margin_row},
      {"binary_cross_entropy_with_logits", {real, probability}, kLossWidth, 4, bce_with_logits_row},
      {"binary_cross_entropy", {probability, probability}, kLossWidth, 2, bce_row},
      {"dist", {real, real}, kLossWidth, 2, dist_row},
      {"cdist pdist", {real, real}, kLossWidth, 1, cdist_row},
      {"triplet_margin_loss", {real, real, real}, kLossWidth, 5, triplet_margin_row},
      {"cosine_similarity", {real, real}, kLossWidth, 5, cosine_similarity_row},
      {"cosine_embedding_loss", {real, real}, kLossWidth, 6, cosine_embedding_row},
  };
}

}  // namespace halfmark::accuracy
