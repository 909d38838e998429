// The devices "sim:...": their dot products and matmuls are the chains that the models compute.
#include "kernels/sim/sim_device.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"
#include "kernels/sim/exact_machines_testing.h"
#include "kernels/sim/tensor_core_inputs_testing.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

Device& sim(std::string_view architecture) {
  static std::map<std::string, std::shared_ptr<Device>> open;
  std::shared_ptr<Device>& device = open["sim:" + std::string(architecture)];
  if (!device) device = open_device("sim:" + std::string(architecture));
  return *device;
}

DType dtype_of(exact::Type type) {
  using exact::Type;
  if (type == Type::tf32) return DType::f32;
  for (const DType dtype : dtypes())
    if (is_floating(dtype) && format_of(dtype).name == exact::name_of(type)) return dtype;
  throw Error("no dtype for " + std::string(exact::name_of(type)));
}

template <class Code>
void put(Tensor& tensor, size_t row, const std::vector<Code>& codes) {
  for (size_t i = 0; i < codes.size(); ++i)
    store_code(tensor.dtype(), tensor.data(), row * codes.size() + i, static_cast<uint64_t>(codes[i]));
}

// Dot products.

class SimDotProducts : public testing::TestWithParam<exact::Machine> {};

TEST_P(SimDotProducts, AreThoseOfTheExactModel) {
  const exact::Machine& m = GetParam();
  Device& device = sim(m.architecture);
  const int64_t k = 2 * depth_of(m.instruction);
  std::vector<exact::Row> rows;
  for (const exact::InputClass& input_class : exact::kInputClasses)
    if (input_class.fits(m))
      for (uint64_t number = 0; number < 5; ++number)
        rows.push_back(exact::row_of(input_class, m, static_cast<size_t>(k), 1'000'000 + number));
  const auto n = static_cast<int64_t>(rows.size());
  Tensor a(device, {n, k}, dtype_of(m.a)), b(device, {n, k}, dtype_of(m.b)), c(device, {n}, dtype_of(m.c)), scale_a,
      scale_b;
  Tensor out(device, {n}, dtype_of(m.d));
  if (m.scale_block) {
    const DType scale = m.scale == exact::Type::e8m0 ? DType::e8m0 : DType::e4m3;
    scale_a = Tensor(device, {n, k / m.scale_block}, scale), scale_b = Tensor(device, {n, k / m.scale_block}, scale);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    put(a, i, rows[i].a), put(b, i, rows[i].b), put(c, i, std::vector<uint64_t>{rows[i].c});
    if (m.scale_block) put(scale_a, i, rows[i].scale_a), put(scale_b, i, rows[i].scale_b);
  }
  run(DotProducts{
      .a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b, .c = c, .out = out, .instruction = m.instruction});
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t expected = exact::dot(m, rows[i].inputs()), got = load_code(out.dtype(), out.data(), i);
    if (m.way == exact::Way::fma && std::isnan(decode(DType::f64, expected)))
      EXPECT_TRUE(std::isnan(decode(DType::f64, got))) << i;
    else
      EXPECT_EQ(got, expected) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRow, SimDotProducts, testing::ValuesIn(exact::machines()), [](const auto& row) {
  std::string name = exact::text_of(row.param);
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
});

struct DotShapes {
  DType operand, result;
  int64_t k;
  MatrixInstruction instruction = MatrixInstruction::usual;
  DType scale = DType::e8m0;
  int64_t scales = 0;
};

// Why the device refuses such a product; "" if it supports it.
std::string refusal(std::string_view architecture, const DotShapes& s) {
  Device& device = sim(architecture);
  const Tensor a = Tensor::zeros(device, {2, s.k}, s.operand), b = Tensor::zeros(device, {2, s.k}, s.operand);
  const Tensor c = Tensor::zeros(device, {2}, s.result);
  Tensor out(device, {2}, s.result), scale_a, scale_b;
  if (s.scales) scale_a = Tensor(device, {2, s.scales}, s.scale), scale_b = Tensor(device, {2, s.scales}, s.scale);
  const DotProducts op{
      .a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b, .c = c, .out = out, .instruction = s.instruction};
  try {
    run(op);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SimDotProducts, WhatNoInstructionTakesIsRefusedWithAReason) {
  using enum DType;
  using enum MatrixInstruction;
  EXPECT_EQ(refusal("volta", {f16, f32, 8}), "");
  EXPECT_EQ(refusal("blackwell", {e4m3, f32, 32, tcgen05_k32, e8m0, 1}), "");
  const auto expect_reason = [](std::string_view architecture, const DotShapes& shapes, std::string_view reason) {
    const std::string said = refusal(architecture, shapes);
    EXPECT_NE(said.find(reason), std::string::npos) << "\"" << said << "\" does not say: " << reason;
  };
  expect_reason("volta", {e4m3, f32, 32},
                "volta has no instruction for e4m3 times e4m3 summed in fp32; it has mma.m8n8k4");
  expect_reason("hopper", {bf16, f16, 16}, "hopper has no instruction for bf16 times bf16 summed in fp16");
  expect_reason("hopper", {e4m3, f32, 32, mma_m16n8k8}, "hopper has no mma.m16n8k8 for e4m3 times e4m3");
  expect_reason("hopper", {f16, f32, 20}, "K = 20 is not a multiple of the K of mma.m16n8k16");
  expect_reason("blackwell", {e4m3, f32, 64, tcgen05_k32, e8m0, 1},
                "no tcgen05.k32 for e4m3 times e4m3 scaled by e8m0 per 64");
  expect_reason("blackwell", {e2m1, f32, 64, tcgen05_k64}, "no tcgen05.k64 for e2m1 times e2m1 summed in fp32");
  expect_reason("hopper", {e4m3, f32, 32, usual, e8m0, 1}, "no instruction for e4m3 times e4m3 scaled by e8m0 per 32");
}

TEST(SimDotProducts, ShapesThatDoNotFitAreErrors) {
  Device& device = sim("blackwell");
  const auto zeros = [&](const Shape& shape, DType dtype) { return Tensor::zeros(device, shape, dtype); };
  const Tensor a = zeros({2, 64}, DType::e4m3), b = zeros({2, 32}, DType::e4m3), c = zeros({2}, DType::f32);
  const Tensor two = zeros({2, 2}, DType::e8m0), one = zeros({2, 1}, DType::e8m0), none;
  Tensor out = zeros({2}, DType::f32);
  EXPECT_THROW(run(DotProducts{.a = a, .b = b, .scale_a = none, .scale_b = none, .c = c, .out = out}), Error);
  EXPECT_THROW(run(DotProducts{.a = a, .b = a, .scale_a = two, .scale_b = none, .c = c, .out = out}), Error);
  EXPECT_THROW(run(DotProducts{.a = a, .b = a, .scale_a = two, .scale_b = one, .c = c, .out = out}), Error);
  EXPECT_NO_THROW(run(DotProducts{.a = a, .b = a, .scale_a = two, .scale_b = two, .c = c, .out = out}));
}

// Matmul with block scales.

TEST(SimScaledMatmul, EveryElementIsTheChainOfTheExactModel) {
  int machines = 0;
  for (const exact::Machine& m : exact::machines()) {
    if (!m.scale_block) continue;
    ++machines;
    Device& device = sim(m.architecture);
    const int64_t k = 2 * depth_of(m.instruction), blocks = k / m.scale_block;
    std::vector<exact::Row> rows;
    for (const exact::InputClass& input_class : exact::kInputClasses)
      if (input_class.fits(m)) rows.push_back(exact::row_of(input_class, m, static_cast<size_t>(k), 77));
    const auto n = static_cast<int64_t>(rows.size());
    const DType scale = m.scale == exact::Type::e8m0 ? DType::e8m0 : DType::e4m3;
    Scaled a{Tensor(device, {n, k}, dtype_of(m.a)), Tensor(device, {n, blocks}, scale)};
    Scaled b{Tensor(device, {n, k}, dtype_of(m.b)), Tensor(device, {n, blocks}, scale)};
    for (size_t i = 0; i < rows.size(); ++i) {
      put(a.codes, i, rows[i].a), put(a.scales, i, rows[i].scale_a);
      put(b.codes, i, rows[i].b), put(b.scales, i, rows[i].scale_b);
    }
    Tensor out(device, {n, n}, DType::f32);
    const ScaledMatmul op{.a = a, .b = b, .out = out};
    ASSERT_EQ(chosen(op).name, "tensor-core") << exact::text_of(m);
    run(op);
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t j = 0; j < rows.size(); ++j) {
        const exact::Inputs inputs{rows[i].a, rows[j].b, 0, rows[i].scale_a, rows[j].scale_b};
        ASSERT_EQ(load_code(DType::f32, out.data(), i * rows.size() + j), exact::dot(m, inputs))
            << exact::text_of(m) << ' ' << i << ' ' << j;
      }
  }
  EXPECT_GT(machines, 0);
}

TEST(SimScaledMatmul, TheTensorsScalesMultiplyTheFinishedSum) {
  Device& device = sim("blackwell");
  const std::vector<float> ones(64, 1.0f);
  Scaled a = to_scaled(device, block_format_named("nvfp4"), ones, 1, 64), b = a;
  const double scale = a.tensor_scale.values()[0];
  EXPECT_EQ(a.values(), std::vector<double>(64, 6.0 * 448 * scale));
  Tensor out(device, {1, 1}, DType::f32);
  run(ScaledMatmul{.a = a, .b = b, .out = out});
  const double sum = 64.0 * 448 * 6 * 448 * 6;
  EXPECT_EQ(out.values()[0], round_to(kFp32, sum * round_to(kFp32, scale * scale)));
  const auto one = [&](double value) { return Tensor::from(device, {1}, DType::f32, std::span(&value, 1)); };
  a.tensor_scale = one(2), b.tensor_scale = one(0.25);
  run(ScaledMatmul{.a = a, .b = b, .out = out});
  EXPECT_EQ(out.values()[0], sum / 2);
}

TEST(SimScaledMatmul, AGpuWithoutBlockScalesLeavesItToTheReferenceRow) {
  Device& device = sim("hopper");
  const Scaled a = to_scaled(device, block_format_named("mxfp8-e4m3"), std::vector<float>(64, 1.0f), 2, 32);
  Tensor out(device, {2, 2}, DType::f32);
  const ScaledMatmul op{.a = a, .b = a, .out = out};
  EXPECT_EQ(chosen(op).name, "reference");
}

TEST(SimScaledMatmul, ShapesThatDoNotFitAreErrors) {
  Device& device = sim("blackwell");
  const Scaled a = to_scaled(device, block_format_named("mxfp8-e4m3"), std::vector<float>(128, 1.0f), 2, 64);
  const Scaled shorter = to_scaled(device, block_format_named("mxfp8-e4m3"), std::vector<float>(64, 1.0f), 2, 32);
  Tensor out(device, {2, 2}, DType::f32), tall(device, {3, 2}, DType::f32);
  EXPECT_THROW(run(ScaledMatmul{.a = a, .b = shorter, .out = out}), Error);
  EXPECT_THROW(run(ScaledMatmul{.a = a, .b = {a.codes, shorter.scales}, .out = out}), Error);
  EXPECT_THROW(run(ScaledMatmul{.a = a, .b = a, .out = tall}), Error);
  EXPECT_THROW(to_scaled(device, block_format_named("mxfp8-e4m3"), std::vector<float>(20, 1.0f), 1, 20), Error);
}

// Matmul.

struct MatmulCase {
  std::string_view architecture;
  DType a, b, result;
  Format multiply = kFp32;
  bool fast_accumulate = false;
};

// Random tensors of the dtypes, with k longer than one instruction and not a multiple of its K.
void expect_chains(const MatmulCase& t) {
  Device& device = sim(t.architecture);
  const int64_t m = 5, n = 9, k = 75;
  const RandomKey key(1);
  std::vector<double> av(static_cast<size_t>(m * k)), bv(static_cast<size_t>(n * k)), cv(static_cast<size_t>(m * n));
  for (size_t i = 0; i < av.size(); ++i) av[i] = std::ldexp(key.normal(i), static_cast<int>(key.below(i, 12)) - 6);
  for (size_t i = 0; i < bv.size(); ++i)
    bv[i] = std::ldexp(key.normal(9000 + i), static_cast<int>(key.below(i, 9)) - 5);
  for (size_t i = 0; i < cv.size(); ++i) cv[i] = key.normal(20000 + i);
  const Tensor a = Tensor::from(device, {m, k}, t.a, av), b = Tensor::from(device, {n, k}, t.b, bv);
  Tensor out = Tensor::from(device, {m, n}, t.result, cv);
  const Tensor before = out.clone();
  const Format& sum = format_of(t.result);
  const Format a_format = t.multiply == kTf32 ? kTf32 : format_of(t.a),
               b_format = t.multiply == kTf32 ? kTf32 : format_of(t.b);
  const DotTypes types{a_format, b_format, sum, sum};
  const TensorCore* core = find_core(tensor_cores(), t.architecture, MatrixInstruction::usual, types);
  const Matmul op{
      .a = a,
      .b = b,
      .out = out,
      .transpose_b = true,
      .math = {.multiply = t.multiply, .accumulate = sum, .partial = sum, .fast_accumulate = t.fast_accumulate},
      .beta = 1};
  const std::string name = std::string(t.architecture) + " " + std::string(name_of(t.a)) + " " +
                           std::string(name_of(t.b)) + " " + std::string(name_of(t.result));
  if (!core) {
    EXPECT_EQ(chosen(op).name, "reference") << name;
    return;
  }
  ASSERT_EQ(chosen(op).name, t.a == DType::f64 ? "tensor-core-fp64" : "tensor-core") << name;
  run(op);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      std::vector<uint64_t> row, column;
      for (int64_t l = 0; l < k; ++l) {
        row.push_back(load_code(t.a, a.data(), static_cast<size_t>(i * k + l)));
        column.push_back(load_code(t.b, b.data(), static_cast<size_t>(j * k + l)));
      }
      const auto at = static_cast<size_t>(i * n + j);
      EXPECT_EQ(load_code(t.result, out.data(), at),
                dot(*core, types, row, column, load_code(t.result, before.data(), at)))
          << name << ' ' << i << ' ' << j;
    }
}

TEST(SimMatmul, IsTheChainOfInstructionsOfEveryArchitecture) {
  for (const Architecture& architecture : architectures()) {
    using enum DType;
    for (const DType result : {f32, f16}) {
      expect_chains({architecture.name, f16, f16, result});
      for (const DType a : {e4m3, e5m2})
        for (const DType b : {e4m3, e5m2}) expect_chains({architecture.name, a, b, result, kFp32, true});
    }
    expect_chains({architecture.name, bf16, bf16, f32});
    expect_chains({architecture.name, f32, f32, f32, kTf32});
    expect_chains({architecture.name, f64, f64, f64, kFp64});
  }
}

TEST(SimMatmul, AnFp64SumBeginsWithC) {
  const Tensor a = Tensor::from(sim("hopper"), {1, 2}, DType::f64, std::vector<double>{1, 0x1p-60});
  const Tensor b = Tensor::from(sim("hopper"), {2, 1}, DType::f64, std::vector<double>{1, 1});
  Tensor out = Tensor::from(sim("hopper"), {1, 1}, DType::f64, std::vector<double>{-1});
  const Math fp64{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  run(Matmul{.a = a, .b = b, .out = out, .math = fp64, .beta = 1});
  EXPECT_EQ(out.values()[0], 0x1p-60) << "with c added last it would be 0";
}

TEST(SimMatmul, Fp8ThatKeepsThirteenBitsWantsFastAccumulate) {
  for (const std::string_view architecture : {"ada", "hopper", "blackwell", "blackwell-rtx"}) {
    Device& device = sim(architecture);
    const Tensor a = Tensor::zeros(device, {4, 32}, DType::e4m3);
    Tensor out(device, {4, 4}, DType::f32);
    const bool short_sums = architecture == "ada" || architecture == "hopper";
    const Matmul slow{.a = a, .b = a, .out = out, .transpose_b = true};
    EXPECT_EQ(chosen(slow).name, short_sums ? "reference" : "tensor-core") << architecture;
    const Matmul fast{.a = a, .b = a, .out = out, .transpose_b = true, .math = {.fast_accumulate = true}};
    EXPECT_EQ(chosen(fast).name, "tensor-core") << architecture;
  }
}

// What the device adds to its instructions.

TEST(SimDevice, BetaIsTheAddendOfTheFirstBlock) {
  const auto device = open_device("sim:hopper");
  const Tensor a = Tensor::from(*device, {1, 2}, DType::f16, std::vector<double>{1, 0x1p-12});
  const Tensor b = Tensor::from(*device, {2, 1}, DType::f16, std::vector<double>{1, 0x1p-13});
  Tensor out = Tensor::from(*device, {1, 1}, DType::f32, std::vector<double>{-1});
  run(Matmul{.a = a, .b = b, .out = out, .beta = 1});
  EXPECT_EQ(out.values()[0], 0x1p-25) << "inside the fused sum; added afterwards it would be 0";
}

TEST(SimDevice, ANarrowOutIsRoundedOnceMoreToNearestEven) {
  const auto device = open_device("sim:hopper");
  const Tensor a = Tensor::from(*device, {1, 2}, DType::f16, std::vector<double>{1, 0x1p-5});
  for (const double sign : {1.0, -1.0}) {
    const Tensor b = Tensor::from(*device, {2, 1}, DType::f16, std::vector<double>{sign, sign * 0x1p-6});
    Tensor out(*device, {1, 1}, DType::f16);
    run(Matmul{.a = a, .b = b, .out = out});
    EXPECT_EQ(out.values()[0], sign) << "1 + 2^-11 is a tie in f16; the fp32 result before it is exact";
  }
}

TEST(SimDevice, SplitKMakesChainsOfItsOwn) {
  const auto device = open_device("sim:hopper");
  std::vector<double> values(32, 0);
  values[0] = 2048, values[16] = 1, values[17] = 0.5;
  const Tensor a = Tensor::from(*device, {1, 32}, DType::f16, values),
               b = Tensor::from(*device, {32, 1}, DType::f16, std::vector<double>(32, 1.0));
  Tensor out(*device, {1, 1}, DType::f32);
  run(Matmul{.a = a, .b = b, .out = out, .math = {.partial = kFp16, .split_k = 2}});
  EXPECT_EQ(out.values()[0], 2049.5);
  run(Matmul{.a = a, .b = b, .out = out, .math = {.accumulate = kFp16, .partial = kFp16, .split_k = 2}});
  EXPECT_EQ(out.values()[0], 2050) << "2048 + 1.5 in fp16";
}

TEST(SimDevice, Fp32FallsToTheReferenceRowWithAReason) {
  Device& device = sim("hopper");
  const Tensor a = Tensor::zeros(device, {2, 2}, DType::f32), b = Tensor::zeros(device, {2, 2}, DType::f32);
  Tensor out(device, {2, 2}, DType::f32);
  const Matmul op{.a = a, .b = b, .out = out};
  EXPECT_EQ(chosen(op).name, "reference");
  const std::optional<std::string> reason = device.kernels().of<Matmul>()[0].refuses(device, op);
  ASSERT_TRUE(reason.has_value());
  EXPECT_TRUE(reason->starts_with("hopper has no instruction for fp32 times fp32 summed in fp32")) << *reason;
}

TEST(SimDevice, ItsNumbersAreThoseOfTheInstruction) { EXPECT_EQ(sim("hopper").numerics(), "instruction-exact"); }

TEST(SimDevice, AnArchitectureThatIsNotModelledIsAnError) { EXPECT_THROW(open_device("sim:kepler"), Error); }

}  // namespace
}  // namespace halfmark::kernels
