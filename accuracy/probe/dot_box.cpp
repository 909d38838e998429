// Black boxes of matrix instructions: a question is one dot product.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "accuracy/probe/probe.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

// An element and its scale as one number: fraction bits of the element, exponent bits of the scale.
Format scaled_format(DType element, DType scale) {
  const bool e8m0 = scale == DType::e8m0, e4m3 = scale == DType::e4m3;
  if (element == DType::e2m1 && e8m0) return {"e2m1/e8m0", 8, 1, Specials::none};
  if (element == DType::e2m1 && e4m3) return {"e2m1/e4m3", 4, 1, Specials::none};
  if (element == DType::e4m3 && e8m0) return {"e4m3/e8m0", 8, 3, Specials::none};
  if (element == DType::e5m2 && e8m0) return {"e5m2/e8m0", 8, 2, Specials::none};
  throw Error(fmt::format("no instruction scales {} by {}", name_of(element), name_of(scale)));
}

// The power of two for the scale, so that the element lies between one and two.
double scale_of(double value, DType scale) {
  if (value == 0) return 1;
  const int limit = scale == DType::e8m0 ? 127 : 8, least = scale == DType::e8m0 ? -127 : -9;
  return std::ldexp(1.0, std::clamp(std::ilogb(value), least, limit));
}

// [n, k] elements of one operand, and their scales.
struct Side {
  Tensor elements, scales;
};
Side side_of(Device& device, const DotChoice& choice, DType dtype, const std::vector<double>& values, int64_t n) {
  const auto k = static_cast<int64_t>(values.size()) / n;
  if (!choice.block) return {Tensor::from(device, {n, k}, dtype, values), {}};
  std::vector<double> elements(values.size() * static_cast<size_t>(choice.block)), scales;
  for (size_t i = 0; i < values.size(); ++i) {
    scales.push_back(scale_of(values[i], choice.scale));
    elements[i * static_cast<size_t>(choice.block)] = values[i] / scales.back();
  }
  return {Tensor::from(device, {n, k * choice.block}, dtype, elements),
          Tensor::from(device, {n, k}, choice.scale, scales)};
}

bool takes(Device& device, const DotChoice& choice) {
  const std::vector<double> zeros(least_depth(choice), 0.0);
  const Side a = side_of(device, choice, choice.a, zeros, 1), b = side_of(device, choice, choice.b, zeros, 1);
  const Tensor c = Tensor::zeros(device, {1}, choice.c);
  Tensor out = Tensor::zeros(device, {1}, choice.d);
  try {
    chosen(DotProducts{a.elements, b.elements, a.scales, b.scales, c, out, choice.instruction});
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

}  // namespace

size_t least_depth(const DotChoice& choice) {
  return static_cast<size_t>(depth_of(choice.instruction) / std::max(choice.block, 1));
}

std::string DotChoice::name() const {
  const std::string operands = a == b ? std::string(name_of(a)) : fmt::format("{}*{}", name_of(a), name_of(b));
  const std::string scales = block ? fmt::format("/{}:{}", name_of(scale), block) : "";
  const std::string addend = c == d ? "" : fmt::format("+{}", name_of(c));
  return fmt::format("{} {}{}{}>{}", name_of(instruction), operands, scales, addend, name_of(d));
}

DotOperands dot_operands(Device& device, const DotChoice& choice, std::span<const Question> questions) {
  std::vector<double> a, b, c;
  for (const Question& question : questions) {
    a.insert(a.end(), question.a.begin(), question.a.end());
    b.insert(b.end(), question.b.begin(), question.b.end());
    c.push_back(question.c);
  }
  const auto n = static_cast<int64_t>(questions.size());
  const Side left = side_of(device, choice, choice.a, a, n), right = side_of(device, choice, choice.b, b, n);
  return {left.elements, right.elements, left.scales, right.scales, Tensor::from(device, {n}, choice.c, c)};
}

BlackBox dot_box(Device& device, const DotChoice& choice, size_t k) {
  BlackBox box;
  box.device = device.name();
  box.types = choice.name().substr(choice.name().find(' ') + 1);
  box.way =
      fmt::format("{}, {} products", name_of(choice.instruction), k * static_cast<size_t>(std::max(choice.block, 1)));
  box.a = choice.block ? scaled_format(choice.a, choice.scale) : format_of(choice.a);
  box.b = choice.block ? scaled_format(choice.b, choice.scale) : format_of(choice.b);
  box.c = format_of(choice.c), box.d = format_of(choice.d);
  box.d_type = choice.d, box.k = k;
  box.answers = [&device, choice](std::span<const Question> questions) {
    constexpr size_t kChunk = 2048;
    std::vector<uint64_t> codes;
    for (size_t first = 0; first < questions.size(); first += kChunk) {
      const auto part = questions.subspan(first, std::min(kChunk, questions.size() - first));
      const DotOperands of = dot_operands(device, choice, part);
      Tensor out(device, {static_cast<int64_t>(part.size())}, choice.d);
      run(DotProducts{of.a, of.b, of.scale_a, of.scale_b, of.c, out, choice.instruction});
      const std::vector<unsigned char> bytes = out.codes();
      for (size_t i = 0; i < part.size(); ++i) codes.push_back(load_code(choice.d, bytes.data(), i));
    }
    return codes;
  };
  return box;
}

std::vector<DotChoice> dot_choices(Device& device) {
  using enum DType;
  struct Operands {
    DType a, b;
    DType scale = e8m0;
    int block = 0;
  };
  constexpr std::array kOperands{Operands{f16, f16},
                                 Operands{bf16, bf16},
                                 Operands{f32, f32},
                                 Operands{e4m3, e4m3},
                                 Operands{e4m3, e5m2},
                                 Operands{e5m2, e4m3},
                                 Operands{e5m2, e5m2},
                                 Operands{e4m3, e4m3, e8m0, 32},
                                 Operands{e5m2, e5m2, e8m0, 32},
                                 Operands{e2m1, e2m1, e8m0, 32},
                                 Operands{e2m1, e2m1, e8m0, 16},
                                 Operands{e2m1, e2m1, e4m3, 16},
                                 Operands{f64, f64}};
  constexpr std::array<std::array<DType, 2>, 4> kSums{{{f32, f32}, {f16, f16}, {f16, f32}, {f64, f64}}};
  std::vector<DotChoice> choices;
  for (const MatrixInstructionRow& row : matrix_instructions())
    for (const Operands& operands : kOperands)
      for (const auto& sums : kSums) {
        const DotChoice choice{row.instruction, operands.a,     operands.b,    sums[0],
                               sums[1],         operands.scale, operands.block};
        if (choice.block && row.k % choice.block) continue;
        if (takes(device, choice)) choices.push_back(choice);
      }
  return choices;
}

}  // namespace halfmark::accuracy::probe
