// Optimizers beside PyTorch 2.15.0 on a CPU: 20 steps on 1000 parameters. Numbers of other sources say which.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/optimizer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr int64_t kThousand = 1000;
constexpr int kTwentySteps = 20;

// Exact in every dtype: parameter i is ((37 i) mod 101 - 50) / 64, its gradient in step t = 1 .. 20 is
// ((29 i + 53 t) mod 97 - 48) / 128.
std::vector<double> first_parameters() {
  std::vector<double> values;
  for (int64_t i = 0; i < kThousand; ++i) values.push_back(static_cast<double>(i * 37 % 101 - 50) / 64);
  return values;
}
std::vector<double> gradients_of(int step) {
  std::vector<double> values;
  for (int64_t i = 0; i < kThousand; ++i) values.push_back(static_cast<double>((i * 29 + step * 53) % 97 - 48) / 128);
  return values;
}

Param param_of(DType dtype, const std::vector<double>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  Param param{"p", Tensor::from(*test_device(), shape, dtype, values), {}, {}};
  param.grad = Tensor::zeros(*test_device(), shape, dtype);
  return param;
}

struct Case {
  const char* name;
  OptimizerSpec spec;
  double rate, momentum, weight_decay;
};

Param after_steps(const Case& one, DType dtype) {
  Param param = param_of(dtype, first_parameters());
  Optimizer optimizer(one.spec, one.rate, one.momentum, one.weight_decay);
  for (int step = 1; step <= kTwentySteps; ++step) {
    param.grad.set_values(gradients_of(step));
    optimizer.step({&param});
  }
  return param;
}

// FNV-1a over the codes as 16-bit words.
uint64_t hash_of(const Tensor& tensor) {
  const std::vector<unsigned char> bytes = tensor.codes();
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    hash = (hash ^ (bytes[i] | static_cast<uint64_t>(bytes[i + 1]) << 8)) * 1099511628211u;
  return hash;
}

constexpr OptimizerSpec kPlain{}, kNesterov{.nesterov = true}, kDamped{.dampening = 0.5},
    kAdam{.kind = OptimizerKind::adam}, kAdamW{.kind = OptimizerKind::adamw}, kKeras{.kind = OptimizerKind::adam_keras};

TEST(Optimizer, FollowsPyTorchInFp64AndFp32) {
  // Parameters 0, 1, 2, 499 and 999, and the sum of all, in fp64. adam_keras: the formula of keras/src/optimizers/adam.py
  // in NumPy.
  struct Torch {
    Case one;
    double values[5], sum;
  };
  const Torch all[] = {
      {{"sgd", kPlain, 0.1, 0.9, 0.01},
       {-0.40770596827333155, -0.27677717746453123, 0.1694413053392063, 0.43740832992279816, 0.5523050193227346},
       0.30593995656376183},
      {{"nesterov", kNesterov, 0.1, 0.9, 0.01},
       {-0.42303298376957116, -0.24934699994420123, 0.12238794730345834, 0.4681342700118185, 0.5403550319884165},
       0.33152139250555784},
      {{"dampening", kDamped, 0.1, 0.9, 0},
       {-0.6514427013283033, -0.37432068342535063, 0.4117533437890189, 0.40673623624587185, 0.7866190031958034},
       0.37684819269624037},
      {{"adam", kAdam, 0.01, 0, 0.1},
       {-0.685052802241148, -0.21094983454834168, 0.3466915600736295, 0.429768011747272, 0.6902738815794026},
       0.00025272313204482977},
      {{"adamw", kAdamW, 0.01, 0, 0.1},
       {-0.746183237383188, -0.22404392798705838, 0.3708969729547099, 0.45857437986967853, 0.7351096356834479},
       7.607006985954623e-05},
      {{"adam_keras", kKeras, 0.01, 0, 0},
       {-0.7614831878054511, -0.2285302421611555, 0.37855930317815867, 0.4678127869647973, 0.7500650865831917},
       0.0013294229141046499},
  };
  constexpr size_t kShown[] = {0, 1, 2, 499, 999};
  for (const Torch& torch : all)
    for (const DType dtype : {DType::f64, DType::f32}) {
      const std::vector<double> found = after_steps(torch.one, dtype).value.values();
      // Of each of 20 steps a few roundings of numbers below 1.
      const double bound = 4 * kTwentySteps * format_of(dtype).unit_roundoff();
      double sum = 0;
      for (const double value : found) sum += value;
      for (size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(found[kShown[i]], torch.values[i], bound) << torch.one.name << " " << name_of(dtype) << " " << i;
      EXPECT_NEAR(sum, torch.sum, bound * kThousand) << torch.one.name << " " << name_of(dtype);
    }
}

TEST(Optimizer, HasTheBitsOfPyTorchsFusedKernelsInHalf) {
  struct Torch {
    Case one;
    uint64_t bf16, f16;
  };
  const Torch all[] = {
      {{"sgd", kPlain, 0.1, 0.9, 0.01}, 0xf16e30916faacde2, 0x0dd5b4e4f29665e0},
      {{"nesterov", kNesterov, 0.1, 0.9, 0.01}, 0xb5899291e141ce09, 0x604af90fd5bee6c8},
      {{"dampening", kDamped, 0.1, 0.9, 0}, 0xb0b38be60587e590, 0x2831380640c47e16},
      {{"adam", kAdam, 0.01, 0, 0.1}, 0x8055c9244bf3748a, 0x6d53f5d72ea77896},
      {{"adamw", kAdamW, 0.01, 0, 0.1}, 0xd204ec2f50d8ff2a, 0xc9adae386125d780},
  };
  for (const Torch& torch : all) {
    EXPECT_EQ(hash_of(after_steps(torch.one, DType::bf16).value), torch.bf16) << torch.one.name;
    EXPECT_EQ(hash_of(after_steps(torch.one, DType::f16).value), torch.f16) << torch.one.name;
  }
}

TEST(Optimizer, HasTheBitsOfPyTorchsSingleTensorStepsWhenEachOperationRounds) {
  // foreach=False, fused=False. PyTorch's kernel of add() for CPUs rounds its factor to the dtype, so the factors are
  // exact in both dtypes. Its lerp and its Nesterov step of bf16 use fused multiply-adds, which differ in 1 and 2
  // of the 1000 parameters here; they are left out.
  const auto each = [](OptimizerSpec spec) {
    spec.rounding = StepRounding::each_operation;
    if (spec.kind != OptimizerKind::sgd) spec.epsilon = 1e-4;
    return spec;
  };
  struct Torch {
    Case one;
    uint64_t bf16, f16;  // 0: see above
  };
  const Torch all[] = {
      {{"sgd", each(kPlain), 0.125, 0.9, 0.015625}, 0xa94423cb7340188f, 0x92304aa057a4a743},
      {{"nesterov", each(kNesterov), 0.125, 0.75, 0.015625}, 0, 0x1ca60fcb012c0c2c},
      {{"dampening", each(kDamped), 0.125, 0.9, 0}, 0x137f830b9eb30bfc, 0x0809689b4b992be6},
      {{"adam", each(kAdam), 0.01, 0, 0.125}, 0, 0x22b4fb92f798d83a},
      {{"adamw", each(kAdamW), 0.01, 0, 0.1}, 0x93a1c7689d78aeee, 0x602a4a6786f86ac1},
  };
  for (const Torch& torch : all) {
    if (torch.bf16 != 0) {
      EXPECT_EQ(hash_of(after_steps(torch.one, DType::bf16).value), torch.bf16) << torch.one.name;
    }
    EXPECT_EQ(hash_of(after_steps(torch.one, DType::f16).value), torch.f16) << torch.one.name;
  }
}

double after_equal_steps(const OptimizerSpec& spec, DType dtype, double start, double gradient, int steps, double rate,
                         double momentum = 0, double decay = 0) {
  Param param = param_of(dtype, {start});
  param.grad.set_values(std::vector<double>{gradient});
  Optimizer optimizer(spec, rate, momentum, decay);
  for (int step = 0; step < steps; ++step) optimizer.step({&param});
  return param.value.values()[0];
}

TEST(Optimizer, SgdStartsWithTheGradientWhateverTheDampening) {
  EXPECT_DOUBLE_EQ(after_equal_steps(kPlain, DType::f64, 0, 1, 3, 1, 0.9), -5.61);
  EXPECT_DOUBLE_EQ(after_equal_steps(kNesterov, DType::f64, 0, 1, 3, 1, 0.9), -8.049);
  EXPECT_DOUBLE_EQ(after_equal_steps(kDamped, DType::f64, 0, 1, 3, 1, 0.9), -4.16);
}

TEST(Optimizer, DecayAloneMovesAdamByTheWholeRate) {
  EXPECT_NEAR(after_equal_steps(kAdam, DType::f64, 1, 0, 1, 0.1, 0, 0.1), 0.9, 1e-6);
  EXPECT_DOUBLE_EQ(after_equal_steps(kAdamW, DType::f64, 1, 0, 1, 0.1, 0, 0.1), 0.99);
  EXPECT_DOUBLE_EQ(after_equal_steps(kPlain, DType::f64, 1, 0, 1, 0.1, 0, 0.1), 0.99);
}

TEST(Optimizer, AnEpsilonBelowFp16DividesByZeroOnlyIfItIsRounded) {
  // The square of the gradient 1e-3 times 1e-3, and epsilon 1e-8, are 0 in fp16.
  OptimizerSpec each = kAdam;
  each.rounding = StepRounding::each_operation;
  EXPECT_EQ(after_equal_steps(each, DType::f16, 1, 1e-3, 1, 1e-3), -HUGE_VAL);
  EXPECT_EQ(after_equal_steps(kAdam, DType::f16, 1, 1e-3, 1, 1e-3), 0.9990234375);
  EXPECT_EQ(after_equal_steps(kAdam, DType::f16, 1, 1e-3, 10, 1e-3), 0.9775390625);
  EXPECT_NEAR(after_equal_steps(kAdam, DType::f32, 1, 1e-3, 10, 1e-3), 0.9900001287460327, 2e-7);
}

TEST(Optimizer, SmallUpdatesOfBf16NeedCompensationOrNoise) {
  // 200 steps of 1e-4 from 1: in fp32 0.98. bf16 has a place of 2^-8 below 1, so that each step alone is lost.
  const OptimizerSpec plain{.kind = OptimizerKind::adamw, .beta2 = 0.99, .epsilon = 1e-6};
  EXPECT_EQ(after_equal_steps(plain, DType::bf16, 1, 0.5, 200, 1e-4), 1);
  OptimizerSpec kahan = plain, stochastic = plain;
  kahan.storage = Storage::kahan, stochastic.storage = Storage::stochastic;
  EXPECT_EQ(after_equal_steps(kahan, DType::bf16, 1, 0.5, 200, 1e-4), 0.98046875);  // torch-optimi 0.3.3: .98047
  Param param = param_of(DType::bf16, std::vector<double>(4096, 1.0));
  param.grad.set_values(std::vector<double>(4096, 0.5));
  Optimizer optimizer(stochastic, 1e-4, 0, 0, 7);
  for (int step = 0; step < 200; ++step) optimizer.step({&param});
  double sum = 0, squares = 0;
  for (const double value : param.value.values()) sum += value, squares += (value - 0.98) * (value - 0.98);
  // The standard deviation of one parameter is .0087 (torchao: mean .97998), of the mean 1.4e-4; five of them.
  EXPECT_NEAR(sum / 4096, 0.98, 7e-4);
  EXPECT_NEAR(std::sqrt(squares / 4096), 0.0087, 5e-4);
}

TEST(Optimizer, NoiseDependsOnItsSeedAndOnTheStep) {
  OptimizerSpec spec;
  spec.storage = Storage::stochastic;
  const auto after = [&](uint64_t seed) {
    Param param = param_of(DType::bf16, first_parameters());
    Optimizer optimizer(spec, 1e-3, 0, 0, seed);
    std::vector<std::vector<double>> steps;
    for (int step = 0; step < 2; ++step) {
      param.value.set_values(first_parameters()), param.grad.set_values(gradients_of(1));
      optimizer.step({&param});
      steps.push_back(param.value.values());
    }
    return steps;
  };
  EXPECT_EQ(after(1), after(1));
  EXPECT_NE(after(1)[0], after(2)[0]);
  EXPECT_NE(after(1)[0], after(1)[1]);
}

// Two equal parameters, one of which has been updated once more: they are at different steps, and each has noise of its own.
TEST(Optimizer, GivesParametersOfDifferentAgeDifferentNoise) {
  OptimizerSpec spec;
  spec.storage = Storage::stochastic;
  Param a = param_of(DType::bf16, first_parameters()), b = param_of(DType::bf16, first_parameters());
  Optimizer optimizer(spec, 1e-3, 0, 0, 1);
  b.grad = {}, a.grad.set_values(gradients_of(1));
  optimizer.step({&a, &b});
  Param again = param_of(DType::bf16, first_parameters());
  b.grad = again.grad;
  for (Param* one : {&a, &b}) one->value.set_values(first_parameters()), one->grad.set_values(gradients_of(1));
  optimizer.step({&a, &b});
  EXPECT_NE(a.value.values(), b.value.values());
}

TEST(Optimizer, UpdatesAMasterCopyAndStoresItInTheParameter) {
  for (const Storage storage : {Storage::nearest, Storage::kahan}) {
    OptimizerSpec spec = kAdamW;
    spec.storage = storage;
    Param param = param_of(DType::f16, first_parameters());
    param.master = Tensor::from(*test_device(), {kThousand}, DType::f32, first_parameters());
    param.grad.set_values(gradients_of(1));
    Optimizer optimizer(spec, 0.01);
    optimizer.step({&param});
    const Optimizer::State& state = optimizer.states()[0];
    EXPECT_EQ(state.first.dtype(), DType::f32);
    EXPECT_EQ(state.second.dtype(), DType::f32);
    EXPECT_EQ(state.second.purpose(), Purpose::optimizer);
    EXPECT_EQ(state.compensation.empty(), storage == Storage::nearest);
    const std::vector<double> master = param.master.values(), value = param.value.values();
    for (size_t i = 0; i < master.size(); ++i) EXPECT_EQ(value[i], round_to(kFp16, master[i])) << i;
  }
}

TEST(Optimizer, RunsOneOperationForAllParametersOfOneAge) {
  Param a = param_of(DType::f32, {1, 2}), b = param_of(DType::bf16, {3}), late = param_of(DType::f32, {4});
  const Tensor gradient = std::exchange(late.grad, {});
  Optimizer optimizer(kAdam, 0.1);
  const auto calls = [&] {
    KernelLog log;
    optimizer.step({&a, &b, &late});
    uint64_t count = 0;
    for (const LoggedKernel& kernel : log.entries()) count += kernel.operation == "adam_step" ? kernel.calls : 0;
    return count;
  };
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(late.value.values()[0], 4);
  late.grad = gradient;
  late.grad.set_values(std::vector<double>{1});
  EXPECT_EQ(calls(), 2u);
  EXPECT_EQ(optimizer.states()[2].steps, 1);
  EXPECT_NEAR(late.value.values()[0], 3.9, 1e-6);
}

TEST(Optimizer, ClipsTheNormOfAllGradientsAsPyTorch) {
  const auto clipped = [](DType dtype, const std::vector<double>& values, double last, double limit,
                          StepRounding rounding = StepRounding::once) {
    Param a = param_of(dtype, {0, 0}), b = param_of(dtype, {0});
    a.grad.set_values(values), b.grad.set_values(std::vector<double>{last});
    Optimizer({.rounding = rounding, .clip_norm = limit}, 0.1).clip({&a, &b});
    std::vector<double> all = a.grad.values();
    all.push_back(b.grad.values()[0]);
    return all;
  };
  // A norm at the limit is clipped too: 1e-6 is added to it.
  const std::vector<double> at_limit = clipped(DType::f64, {1, 2}, 2, 3);
  EXPECT_DOUBLE_EQ(at_limit[0], 0.9999996666667778);
  EXPECT_DOUBLE_EQ(at_limit[2], 1.9999993333335555);
  EXPECT_EQ(clipped(DType::f32, {1, 2}, 2, 3),
            (std::vector<double>{0.9999996423721313, 1.9999992847442627, 1.9999992847442627}));
  EXPECT_EQ(clipped(DType::f32, {1, 2}, 2, 0.75),
            (std::vector<double>{0.24999991059303284, 0.4999998211860657, 0.4999998211860657}));
  EXPECT_EQ(clipped(DType::f32, {1, 2}, 2, 4), (std::vector<double>{1, 2, 2}));
  EXPECT_EQ(clipped(DType::f32, {1, 2}, 2, 0), (std::vector<double>{1, 2, 2}));
  // A norm of 1e5: stored in fp16 as PyTorch does, it is infinite, and nothing is left of the gradients.
  EXPECT_EQ(clipped(DType::f16, {6e4, 6e4}, 6e4, 1, StepRounding::each_operation), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(clipped(DType::f16, {6e4, 6e4}, 6e4, 1), std::vector<double>(3, round_to(kFp16, 0.57735)));
  // Gradients in fp32 and, last, in fp16: the norm is stored in the wider of both.
  Param wide = param_of(DType::f32, {0, 0}), narrow = param_of(DType::f16, {0});
  wide.grad.set_values(std::vector<double>{6e4, 6e4}), narrow.grad.set_values(std::vector<double>{1});
  Optimizer({.rounding = StepRounding::each_operation, .clip_norm = 1}, 0.1).clip({&wide, &narrow});
  EXPECT_NEAR(wide.grad.values()[0], std::sqrt(0.5), 1e-3);
  // An infinite gradient becomes NaN, the others 0.
  const std::vector<double> overflowed = clipped(DType::f32, {HUGE_VAL, 1}, 1, 1);
  EXPECT_TRUE(std::isnan(overflowed[0]));
  EXPECT_EQ(overflowed[1], 0);
}

TEST(Optimizer, KindsAreFoundByNameAndRefuseWhatTheyCannotDo) {
  for (const OptimizerRow& row : optimizer_rows()) {
    EXPECT_EQ(&optimizer_named(row.name), &row);
    EXPECT_EQ(&row_of(row.kind), &row);
  }
  for (const StorageRow& row : storage_rows()) EXPECT_EQ(&storage_named(row.name), &row);
  EXPECT_THROW(optimizer_named("lion"), Error);
  EXPECT_THROW(Optimizer(kNesterov, 0.1), Error);
  EXPECT_THROW(Optimizer({.kind = OptimizerKind::adam, .beta1 = 1}, 0.1), Error);
  EXPECT_THROW(Optimizer({.kind = OptimizerKind::adam_keras, .rounding = StepRounding::each_operation}, 0.1), Error);
  EXPECT_THROW(Optimizer({.storage = Storage::kahan, .rounding = StepRounding::each_operation}, 0.1), Error);
}

std::vector<OptimizerSpec> every_optimizer() {
  std::vector<OptimizerSpec> all;
  for (const OptimizerRow& row : optimizer_rows())
    for (const StorageRow& storage : storage_rows()) all.push_back({.kind = row.kind, .storage = storage.storage});
  return all;
}

TEST(Optimizer, LearnsInATrialAndItsStateMovesWithTheMemory) {
  for (const char* policy : {"fp32", "bf16", "amp-fp16"})
    for (const OptimizerSpec& optimizer : every_optimizer()) {
      const std::string name = std::string(policy) + " " + std::string(row_of(optimizer.kind).name) + " " +
                               std::to_string(static_cast<int>(optimizer.storage));
      TrialSpec spec = test_spec(kMlp, policy);
      spec.settings.optimizer = optimizer;
      spec.settings.optimizer.clip_norm = 10;
      if (optimizer.kind != OptimizerKind::sgd) spec.settings.rate = 0.01;
      Trial moved(spec), stays(spec);
      for (Trial* trial : {&moved, &stays}) trial->train_step(0), trial->load_batch(1);
      const auto places = [&] {
        std::vector<const void*> all;
        for (const Optimizer::State& state : moved.optimizer().states())
          for (const Tensor* tensor : {&state.first, &state.second, &state.compensation})
            if (!tensor->empty()) all.push_back(tensor->data());
        return all;
      };
      const std::vector<const void*> before = places();
      const size_t each = optimizer.kind == OptimizerKind::sgd ? 1 : 2;
      EXPECT_EQ(before.size(), moved.params().size() * (each + (optimizer.storage == Storage::kahan ? 1 : 0))) << name;
      moved.move_memory({64, 4096 + 64});
      const std::vector<const void*> after = places();
      ASSERT_EQ(after.size(), before.size()) << name;
      for (size_t i = 0; i < after.size(); ++i) EXPECT_NE(after[i], before[i]) << name;
      double last = 0;
      for (int64_t step = 1; step < 40; ++step) {
        last = moved.train_step(step).loss;
        EXPECT_EQ(last, stays.train_step(step).loss) << name;
      }
      EXPECT_LT(last, 2) << name;  // from 2.3
    }
}

TEST(Optimizer, CountsItsStateAsMemoryOfTheOptimizer) {
  for (const OptimizerSpec& optimizer : every_optimizer()) {
    TrialSpec spec = test_spec(kSmallMlp, "bf16");
    spec.settings.optimizer = optimizer;
    Trial trial(spec);
    const auto live = [&] {
      return trial.device().memory().live().by_purpose[static_cast<size_t>(Purpose::optimizer)];
    };
    const auto before = live();
    trial.train_step(0);
    int64_t elements = 0;
    for (const Param* param : trial.params()) elements += param->value.elements();
    const int64_t kept = (optimizer.kind == OptimizerKind::sgd ? 1 : 2) + (optimizer.storage == Storage::kahan ? 1 : 0);
    EXPECT_EQ(static_cast<int64_t>(live() - before), 2 * elements * kept) << row_of(optimizer.kind).name;
  }
}

}  // namespace
}  // namespace halfmark::models
