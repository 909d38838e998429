// Sums across GPUs through the plugin: values, what is refused, failures of the library, a device that is lost. Needs two
// GPUs. What the library is made to do wrong needs the software GPU (software_gpu/libraries/nccl_calls.cpp).
#include "kernels/tensor/all_reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

class AllReduce : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceRow& row : known_devices())
      if (row.name.starts_with("cuda:") && row.absent.empty() && devices_.size() < 4)
        devices_.push_back(open_device(row.name));
    if (devices_.size() < 2) GTEST_SKIP() << "there are no two GPUs";
    if (!devices_[0]->numerics().empty()) return;
    try {
      (void)all_reduce_group(devices_);
    } catch (const Unsupported& reason) {
      GTEST_SKIP() << reason.what();
    }
  }
  void TearDown() override { ::unsetenv("HALFMARK_SOFTWARE_LIBRARIES"); }
  void plant(const char* words) {
    if (devices_[0]->numerics().empty()) GTEST_SKIP() << "not on a GPU";
    ::setenv("HALFMARK_SOFTWARE_LIBRARIES", words, 1);
  }
  size_t ranks() const { return devices_.size(); }

  // Of rank r, element i: (r + 1) (i + 1), which every dtype here holds, as it does the sums.
  std::vector<Tensor> inputs(DType dtype, int64_t count) const {
    std::vector<Tensor> all;
    for (size_t r = 0; r < ranks(); ++r) {
      std::vector<double> values;
      for (int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<double>((r + 1)) * static_cast<double>(i % 2 + 1));
      all.push_back(Tensor::from(*devices_[r], {count}, dtype, values));
    }
    return all;
  }
  std::vector<Tensor> outputs(DType dtype, int64_t count) const {
    std::vector<Tensor> all;
    for (const auto& device : devices_) all.push_back(Tensor::zeros(*device, {count}, dtype));
    return all;
  }
  double sum_of_ranks() const { return static_cast<double>(ranks() * (ranks() + 1)) / 2; }

  std::vector<std::shared_ptr<Device>> devices_;
};

template <class Work>
std::string refusal_of(Work work) {
  try {
    work();
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "none";
}
template <class Work>
std::string error_of(Work work) {  // not of a refusal
  try {
    work();
  } catch (const Unsupported& error) {
    return std::string("refused: ") + error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(AllReduce, GivesEveryDeviceTheSumAndTheAverage) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const auto group = all_reduce_group(devices_);
    for (const int64_t count : {1, 100, 4096}) {
      const std::vector<Tensor> in = inputs(dtype, count);
      std::vector<Tensor> out = outputs(dtype, count);
      group->run(in, out, ReduceOp::sum);
      group->wait();
      for (const Tensor& one : out) {
        const std::vector<double> values = one.values();
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(values[i], sum_of_ranks() * static_cast<double>(i % 2 + 1)) << name_of(dtype) << " " << i;
      }
    }
    if (ranks() != 2 && ranks() != 4) continue;
    std::vector<Tensor> same, out = outputs(dtype, 8);
    for (const auto& device : devices_) same.push_back(Tensor::from(*device, {8}, dtype, std::vector<double>(8, 1.5)));
    group->run(same, out, ReduceOp::average);
    group->wait();
    for (const Tensor& one : out) EXPECT_EQ(one.values(), std::vector<double>(8, 1.5)) << name_of(dtype);
  }
}

TEST_F(AllReduce, AddsUpInPlaceAndTakesNoElements) {
  const auto group = all_reduce_group(devices_);
  std::vector<Tensor> both = inputs(DType::f32, 5);
  const std::vector<Tensor> in = both;
  group->run(in, both, ReduceOp::sum);
  group->wait();
  EXPECT_EQ(both[1].values()[0], sum_of_ranks());
  std::vector<Tensor> none = outputs(DType::f32, 0);
  const std::vector<Tensor> nothing = none;
  group->run(nothing, none, ReduceOp::sum);
  group->wait();
}

TEST_F(AllReduce, RefusesTensorsThatDoNotBelongTogether) {
  const auto group = all_reduce_group(devices_);
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6), shorter = outputs(DType::f32, 5), half = outputs(DType::f16, 6),
                      swapped = {out[1], out[0]}, fewer = {out[0]};
  swapped.insert(swapped.end(), out.begin() + 2, out.end());
  for (std::vector<Tensor>* wrong : {&shorter, &half, &swapped, &fewer})
    EXPECT_THROW(group->run(in, *wrong, ReduceOp::sum), Error);
  group->run(in, out, ReduceOp::sum);  // nothing of that has reached the library
  group->wait();
  EXPECT_EQ(out[0].values()[0], sum_of_ranks());
  std::vector<Tensor> integers = outputs(DType::i32, 6);
  const std::vector<Tensor> same = integers;
  EXPECT_EQ(refusal_of([&] { group->run(same, integers, ReduceOp::sum); }), "NCCL has no sums of i32");
}

TEST_F(AllReduce, SaysThatTheLibraryIsMissing) {
  plant("no-nccl");
  EXPECT_TRUE(contains(refusal_of([&] { (void)all_reduce_group(devices_); }), "NCCL cannot be used: "));
}

TEST_F(AllReduce, ACallThatFailsIsARefusalAndEndsTheGroupOfCalls) {
  for (const char* call :
       {"ncclGroupStart", "ncclAllReduce", "ncclGroupEnd", "ncclCommGetAsyncError", "ncclGetVersion"}) {
    const auto group = all_reduce_group(devices_);
    const std::vector<Tensor> in = inputs(DType::f32, 6);
    std::vector<Tensor> out = outputs(DType::f32, 6);
    plant(call);
    const std::string refusal = refusal_of([&] {
      (void)group->library();
      group->run(in, out, ReduceOp::sum);
      group->wait();
    });
    EXPECT_TRUE(refusal.starts_with(std::string(call) + ": internal error")) << refusal;
    ::unsetenv("HALFMARK_SOFTWARE_LIBRARIES");
    if (std::string(call) == "ncclGetVersion") continue;  // only asks
    EXPECT_TRUE(contains(error_of([&] { group->run(in, out, ReduceOp::sum); }), "is not used again")) << call;
    // Another group works: no call of this thread is still in a group that was not ended.
    const auto next = all_reduce_group(devices_);
    next->run(in, out, ReduceOp::sum);
    next->wait();
    EXPECT_EQ(out[0].values()[0], sum_of_ranks()) << call;
  }
  plant("ncclCommInitAll");
  EXPECT_TRUE(contains(refusal_of([&] { (void)all_reduce_group(devices_); }), "ncclCommInitAll: internal error"));
}

TEST_F(AllReduce, WhatACommunicatorSaysLaterIsARefusal) {
  const auto group = all_reduce_group(devices_);
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6);
  plant("nccl-async-error");
  group->run(in, out, ReduceOp::sum);
  const size_t last = ranks() - 1;
  EXPECT_TRUE(refusal_of([&] { group->wait(); })
                  .starts_with("rank " + std::to_string(last) + " (" + devices_[last]->name() +
                               "): ncclAllReduce: remote process exited"));
  // What the other ranks were waiting for is given up: the devices can be used.
  ::unsetenv("HALFMARK_SOFTWARE_LIBRARIES");
  for (const auto& device : devices_) EXPECT_EQ(device->lost(), "");
  const auto next = all_reduce_group(devices_);
  next->run(in, out, ReduceOp::sum);
  next->wait();
  EXPECT_EQ(out[0].values()[0], sum_of_ranks());
}

TEST_F(AllReduce, ASumThatDoesNotEndIsGivenUp) {
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6);
  {
    const auto group = all_reduce_group(devices_);
    plant("nccl-stops");
    group->run(in, out, ReduceOp::sum);
    EXPECT_TRUE(error_of([&] {
                  group->wait();
                }).starts_with("ncclAllReduce: not ended after 1 s: rank 0 (cuda:0), rank 1 (cuda:1)"));
    for (const auto& device : devices_) EXPECT_EQ(device->lost(), "");
  }
  {
    const auto group = all_reduce_group(devices_);  // that nobody waits for
    group->run(in, out, ReduceOp::sum);
  }
  for (const auto& device : devices_) EXPECT_EQ(device->lost(), "");
}

TEST_F(AllReduce, HasTheTimeOfTheFirstDevice) {
  const auto group = all_reduce_group(devices_);
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6);
  const auto work = [&] { group->run(in, out, ReduceOp::sum); };
  const auto seconds = group->time_after_pause(0.5, work);
  ASSERT_TRUE(seconds.has_value());
  EXPECT_GT(*seconds, 0);
  EXPECT_EQ(out[0].values()[0], sum_of_ranks());
  plant("nccl-async-error");
  EXPECT_TRUE(
      contains(refusal_of([&] { (void)group->time_after_pause(0.5, work); }), "ncclAllReduce: remote process exited"));
}

TEST_F(AllReduce, RefusesWhatAnOlderVersionDoesNotHave) {
  plant("nccl-2.23");
  const std::vector<Tensor> in = inputs(DType::e4m3, 6), wide = inputs(DType::bf16, 6);
  std::vector<Tensor> out = outputs(DType::e4m3, 6), wide_out = outputs(DType::bf16, 6);
  EXPECT_TRUE(
      contains(refusal_of([&] { all_reduce_group(devices_)->run(in, out, ReduceOp::sum); }), "invalid type 10"));
  all_reduce_group(devices_)->run(wide, wide_out, ReduceOp::average);
  ::setenv("HALFMARK_SOFTWARE_LIBRARIES", "nccl-2.9", 1);
  EXPECT_EQ(all_reduce_group(devices_)->library(), "stand-in of NCCL 2.9.9");
  EXPECT_TRUE(
      contains(refusal_of([&] { all_reduce_group(devices_)->run(wide, wide_out, ReduceOp::sum); }), "invalid type 9"));
  const std::vector<Tensor> single = inputs(DType::f32, 6);
  std::vector<Tensor> single_out = outputs(DType::f32, 6);
  EXPECT_TRUE(contains(refusal_of([&] { all_reduce_group(devices_)->run(single, single_out, ReduceOp::average); }),
                       "operation 4"));
}

TEST_F(AllReduce, NamesTheVariablesThatChooseHowItAdds) {
  const auto group = all_reduce_group(devices_);
  ::setenv("NCCL_PROTO", "Simple", 1), ::setenv("NCCL_ALGO", "Ring", 1);
  const auto settings = group->settings();
  ::unsetenv("NCCL_PROTO"), ::unsetenv("NCCL_ALGO");
  ASSERT_EQ(settings.size(), 2u);
  EXPECT_EQ(settings[0], (std::pair<std::string, std::string>("NCCL_ALGO", "Ring")));
  EXPECT_EQ(settings[1].second, "Simple");
}

TEST_F(AllReduce, NeedsTwoDifferentGpus) {
  const auto cpu = open_device("cpu");
  using Devices = std::vector<std::shared_ptr<Device>>;
  EXPECT_TRUE(contains(error_of([&] { (void)all_reduce_group(Devices{devices_[0]}); }), "at least two"));
  EXPECT_TRUE(contains(error_of([&] {
                         (void)all_reduce_group(Devices{devices_[1], devices_[1]});
                       }),
                       "cuda:1 is named twice"));
  EXPECT_TRUE(contains(refusal_of([&] {
                         (void)all_reduce_group(Devices{devices_[0], cpu});
                       }),
                       "cpu has no sums across devices"));
}

// Last: the device stays lost.
TEST_F(AllReduce, ThatALostDeviceTakesPartInIsAnError) {
  if (devices_[0]->numerics().empty()) GTEST_SKIP() << "not on a GPU";
  const auto group = all_reduce_group(devices_);
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6);
  // Memory that nothing has written, which the software GPU does not let a kernel read.
  std::vector<Tensor> unwritten;
  for (const auto& device : devices_) unwritten.push_back(Tensor(*device, {1 << 20}, DType::f32));
  std::vector<Tensor> large = outputs(DType::f32, 1 << 20);
  group->run(unwritten, large, ReduceOp::sum);
  const std::string first = error_of([&] { group->wait(); });
  EXPECT_TRUE(first.starts_with("cuda:0 is lost: cudaS")) << first;
  EXPECT_TRUE(contains(first, "(rank 0 (cuda:0): cudaStreamQuery: ")) << first;
  const std::string second = error_of([&] { (void)all_reduce_group(devices_); });
  EXPECT_TRUE(second.starts_with("cuda:0 is lost: ")) << second;
  EXPECT_FALSE(devices_[0]->lost().empty());
}

// Each loses devices, and so has a process of its own (software_gpu.cmake).
class AllReduceRankFails : public AllReduce {};
class AllReduceNeverEnds : public AllReduce {};

TEST_F(AllReduceRankFails, ARankThatFailsIsNamedAndEndsWhatTheOthersWaitFor) {
  if (devices_[0]->numerics().empty()) GTEST_SKIP() << "not on a GPU";
  const auto group = all_reduce_group(devices_);
  std::vector<Tensor> in, out = outputs(DType::f32, 1 << 20);
  for (size_t r = 0; r < ranks(); ++r)
    in.push_back(r == 1 ? Tensor(*devices_[r], {1 << 20}, DType::f32)  // not written
                        : Tensor::zeros(*devices_[r], {1 << 20}, DType::f32));
  group->run(in, out, ReduceOp::sum);
  const std::string first = error_of([&] { group->wait(); });
  EXPECT_TRUE(first.starts_with("cuda:1 is lost: cudaS")) << first;
  EXPECT_TRUE(contains(first, "(rank 1 (cuda:1): cudaStreamQuery: ")) << first;
  EXPECT_EQ(devices_[0]->lost(), "");
}

// What not even ncclCommAbort ends is left to the end of the process.
TEST_F(AllReduceNeverEnds, ADeviceWhoseSumNeverEndsIsLeft) {
  if (devices_[0]->numerics().empty()) GTEST_SKIP() << "not on a GPU";
  const auto group = all_reduce_group(devices_);
  const std::vector<Tensor> in = inputs(DType::f32, 6);
  std::vector<Tensor> out = outputs(DType::f32, 6);
  plant("nccl-never-ends");
  group->run(in, out, ReduceOp::sum);
  const std::string first = error_of([&] { group->wait(); });
  EXPECT_TRUE(first.starts_with("cuda:0 is lost: its part of a sum does not end, also after ncclCommAbort")) << first;
  EXPECT_THROW(devices_[0]->synchronize(), Error);
}

}  // namespace
}  // namespace halfmark::kernels
