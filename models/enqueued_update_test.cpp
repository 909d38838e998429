// Updates that the host does not wait for are those that it waits for: on the CPU, and on a GPU if there is one.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

class EnqueuedUpdates : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const kernels::DeviceRow& row : kernels::known_devices())
      if (row.name == GetParam() && row.absent.empty()) device_ = open_device(row.name);
    if (!device_) GTEST_SKIP() << "there is no " << GetParam();
  }
  // With two overflows at the start (below), and a growth after two good steps. Only parameters narrower than fp32 are
  // rounded at random or compensated.
  TrialSpec spec(OptimizerKind kind, Storage storage = Storage::nearest) const {
    TrialSpec own = test_spec("mlp/b8_i16_h24_o10", storage == Storage::nearest ? "amp-fp16" : "bf16");
    own.device = device_;
    own.settings.optimizer.kind = kind;
    own.settings.optimizer.storage = storage;
    own.settings.momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    own.settings.optimizer.dampening = kind == OptimizerKind::sgd ? 0.5 : 0;  // not in the first step
    own.settings.scaler = scaler_of("torch:1024:2");
    return own;
  }

  std::shared_ptr<Device> device_;
};

// An infinite input in these steps.
bool overflows(int64_t step) { return step == 0 || step == 1 || step == 4; }

void forward_and_backward(Trial& trial, int64_t step) {
  trial.load_batch(step);
  if (overflows(step)) trial.input().fill(std::numeric_limits<double>::infinity());
  trial.forward(), trial.backward();
}

std::vector<std::vector<double>> state_of(Trial& trial) {
  std::vector<std::vector<double>> all;
  for (const Optimizer::State& state : trial.optimizer().states()) {
    all.push_back({static_cast<double>(state.steps)});
    for (const Tensor* tensor : {&state.first, &state.second, &state.compensation})
      if (!tensor->empty()) all.push_back(tensor->values());
  }
  return all;
}

TEST_P(EnqueuedUpdates, LeaveTheSameAsThoseThatAreWaitedFor) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::adam_keras})
    for (const Storage storage : {Storage::nearest, Storage::stochastic, Storage::kahan}) {
      Trial waited(spec(kind, storage)), enqueued(spec(kind, storage));
      for (int64_t step = 0; step < 7; ++step) {
        forward_and_backward(waited, step), forward_and_backward(enqueued, step);
        const auto before = codes_of(waited);
        EXPECT_EQ(waited.update(), !overflows(step)) << step;
        EXPECT_EQ(codes_of(waited) == before, overflows(step)) << step;
        enqueued.enqueue_update();
      }
      EXPECT_EQ(enqueued.scaler().scale(), waited.scaler().scale());
      EXPECT_EQ(enqueued.scaler().growth_tracker(), waited.scaler().growth_tracker());
      EXPECT_TRUE(codes_of(enqueued) == codes_of(waited)) << static_cast<int>(kind) << " " << static_cast<int>(storage);
      EXPECT_TRUE(state_of(enqueued) == state_of(waited)) << static_cast<int>(kind) << " " << static_cast<int>(storage);
    }
}

// Trains `with` in all steps, and `without` in those that do not overflow.
void train_with_and_without_overflows(Trial& with, Trial& without) {
  for (int64_t step = 0; step < 7; ++step) {
    forward_and_backward(with, step);
    with.enqueue_update();
    if (overflows(step)) continue;
    forward_and_backward(without, step);
    EXPECT_TRUE(without.update());
  }
}

// The same training without the steps that overflow: state, numbers of the steps and random numbers are the same.
TEST_P(EnqueuedUpdates, AreNoneInAStepThatOverflows) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam})
    for (const Storage storage : {Storage::nearest, Storage::stochastic}) {
      Trial with(spec(kind, storage)), without(spec(kind, storage));
      train_with_and_without_overflows(with, without);
      // The scales differ, by powers of two, which leave the gradients as they are.
      EXPECT_TRUE(state_of(with) == state_of(without)) << static_cast<int>(kind) << " " << static_cast<int>(storage);
      EXPECT_TRUE(codes_of(with) == codes_of(without)) << static_cast<int>(kind) << " " << static_cast<int>(storage);
    }
}

TEST_P(EnqueuedUpdates, TellOnceWhetherTheStepWasSkipped) {
  Trial trial(spec(OptimizerKind::sgd));
  const float scale = trial.scaler().scale();
  forward_and_backward(trial, 0);
  trial.enqueue_update();
  EXPECT_FALSE(trial.finish_update());
  EXPECT_TRUE(trial.finish_update()) << "there is nothing left to finish";
  EXPECT_EQ(trial.scaler().scale(), scale / 2);
  forward_and_backward(trial, 2);
  trial.enqueue_update();
  EXPECT_TRUE(trial.finish_update());
  EXPECT_EQ(trial.scaler().scale(), scale / 2);
}

// A norm that is not finite makes the gradients 0 or NaN, and no state may see them.
TEST_P(EnqueuedUpdates, LeaveTheStateAsItIsAfterAnOverflowWithClipping) {
  TrialSpec own = spec(OptimizerKind::adam);
  own.settings.optimizer.clip_norm = 0.01;
  Trial with(own), without(own);
  train_with_and_without_overflows(with, without);
  EXPECT_TRUE(state_of(with) == state_of(without));
  EXPECT_TRUE(codes_of(with) == codes_of(without));
}

TEST_P(EnqueuedUpdates, AreFinishedBeforeMemoryMoves) {
  Trial moved(spec(OptimizerKind::adam)), still(spec(OptimizerKind::adam));
  for (int64_t step = 0; step < 4; ++step)
    for (Trial* trial : {&moved, &still}) {
      forward_and_backward(*trial, step);
      trial->enqueue_update();
      if (trial != &moved) continue;
      trial->move_memory({64});
      EXPECT_TRUE(trial->finish_update()) << "nothing is left to finish, also after an overflow";
    }
  EXPECT_EQ(moved.scaler().scale(), still.scaler().scale());
  EXPECT_TRUE(state_of(moved) == state_of(still));
  EXPECT_TRUE(codes_of(moved) == codes_of(still));
}

TEST_P(EnqueuedUpdates, AreNotMixedWithThePartsOfAnUpdate) {
  Trial trial(spec(OptimizerKind::sgd));
  forward_and_backward(trial, 2);
  trial.enqueue_update();
  EXPECT_THROW(trial.clip(), Error);
  EXPECT_THROW(trial.step_optimizer(), Error);
  EXPECT_THROW(trial.end_update(false), Error);
  EXPECT_THROW(trial.enqueue_recorded_update(), Error);
  EXPECT_TRUE(trial.finish_update());
}

// A fixed scale is not checked, as in apex.
TEST_P(EnqueuedUpdates, AreMadeUnderAFixedScale) {
  TrialSpec own = spec(OptimizerKind::sgd);
  own.settings.scaler = scaler_of("static:1024");
  Trial trial(own);
  const auto before = codes_of(trial);
  forward_and_backward(trial, 0);
  EXPECT_TRUE(trial.update());
  EXPECT_FALSE(codes_of(trial) == before);
}

// The host has enqueued all of it while the device paused, so that it has not waited for the device.
TEST_P(EnqueuedUpdates, DoNotMakeTheHostWait) {
  if (device_->name() == "cpu") GTEST_SKIP() << "a CPU runs its kernels itself";
  Trial trial(spec(OptimizerKind::adam));
  for (int64_t step = 2; step < 4; ++step) {
    forward_and_backward(trial, step);
    trial.enqueue_update();
  }
  const auto step = [&] { trial.forward(), trial.backward(), trial.enqueue_update(); };
  EXPECT_TRUE(device_->time_after_pause(1, step));
  EXPECT_FALSE(device_->time_after_pause(1, [&] { step(), trial.finish_update(); })) << "this does";
}

INSTANTIATE_TEST_SUITE_P(On, EnqueuedUpdates, testing::Values("cpu", "cuda:0"),
                         [](const auto& device) { return std::string(device.param).substr(0, 4); });

}  // namespace
}  // namespace halfmark::models
