// The stand-in of NCCL: orders and roundings of its sums beside plain loops, and what it refuses.
#include "kernels/cuda/software_gpu/libraries/nccl_calls.h"

#include <gtest/gtest.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/device_testing.h"
#include "kernels/cuda/software_gpu/nccl_functions.h"

namespace halfmark::kernels::software_gpu::nccl {
namespace {

#ifdef NCCL_MAJOR
constexpr bool are_equal(int ours, int theirs) { return ours == theirs; }
static_assert(are_equal(kSuccess, ncclSuccess) && are_equal(kUnhandledCudaError, ncclUnhandledCudaError) &&
              are_equal(kSystemError, ncclSystemError) && are_equal(kInternalError, ncclInternalError) &&
              are_equal(kInvalidArgument, ncclInvalidArgument) && are_equal(kInvalidUsage, ncclInvalidUsage) &&
              are_equal(kRemoteError, ncclRemoteError) && are_equal(kInProgress, ncclInProgress));
static_assert(are_equal(kSum, ncclSum) && are_equal(kProd, ncclProd) && are_equal(kMax, ncclMax) &&
              are_equal(kMin, ncclMin) && are_equal(kAvg, ncclAvg));
static_assert(kFirstFloat == ncclFloat16 && kFloats[0].type == ncclFloat16 && kFloats[1].type == ncclFloat32 &&
              kFloats[2].type == ncclFloat64 && kFloats[3].type == ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
static_assert(kTypes == ncclNumTypes && kOps == ncclNumOps && kFloats[4].type == ncclFloat8e4m3 &&
              kFloats[5].type == ncclFloat8e5m2);
#endif
#endif

using Comm = void*;

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(nccl_function(name))(arguments...);
}
std::string last_error() { return reinterpret_cast<const char* (*)(Comm)>(nccl_function("ncclGetLastError"))(nullptr); }
bool says(const std::string& part) { return last_error().find(part) != std::string::npos; }

int type_of(DType dtype) {
  for (const TypeRow& row : kFloats)
    if (row.dtype == dtype) return row.type;
  return -1;
}

// Communicators of several devices, a stream and buffers on each.
class SoftwareNccl : public testing::Test {
 protected:
  void SetUp() override { use({90, 90, 90}); }
  void TearDown() override {
    ::unsetenv("HALFMARK_SOFTWARE_LIBRARIES");
    while (call("ncclGroupEnd") == kSuccess) {
    }
    fail_no_call();
  }

  void use(const std::vector<int>& architectures) {
    set_devices(architectures, uint64_t{1} << 30);
    comms_.assign(architectures.size(), nullptr), streams_ = {};
    ASSERT_EQ(call("ncclCommInitAll", comms_.data(), static_cast<int>(comms_.size()), static_cast<const int*>(nullptr)),
              kSuccess);
    for (size_t r = 0; r < comms_.size(); ++r) {
      check_runtime(cudaSetDevice(static_cast<int>(r)));
      streams_.emplace_back();
      check_runtime(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking));
    }
  }

  void* buffer(size_t rank, DType dtype, const std::vector<double>& values) const {
    check_runtime(cudaSetDevice(static_cast<int>(rank)));
    return on_device(dtype, values);
  }
  int reduce(size_t rank, const void* in, void* out, size_t count, DType dtype = DType::f32, int op = kSum) const {
    return call("ncclAllReduce", in, out, count, type_of(dtype), op, comms_[rank], streams_[rank]);
  }
  std::vector<double> result(size_t rank, const void* address, DType dtype, size_t count) const {
    check_runtime(cudaSetDevice(static_cast<int>(rank)));
    check_runtime(cudaStreamSynchronize(streams_[rank]));
    return from_device(address, dtype, count);
  }

  // The sums of these inputs, by rank, as every rank gets them.
  std::vector<std::vector<double>> sums(DType dtype, const std::vector<std::vector<double>>& inputs, int op = kSum) {
    std::vector<void*> out;
    EXPECT_EQ(call("ncclGroupStart"), kSuccess);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const void* in = buffer(r, dtype, inputs[r]);
      out.push_back(buffer(r, dtype, std::vector<double>(inputs[r].size(), 0)));
      EXPECT_EQ(reduce(r, in, out[r], inputs[r].size(), dtype, op), kSuccess) << last_error();
    }
    EXPECT_EQ(call("ncclGroupEnd"), kSuccess) << last_error();
    std::vector<std::vector<double>> all;
    for (size_t r = 0; r < inputs.size(); ++r) all.push_back(result(r, out[r], dtype, inputs[r].size()));
    return all;
  }

  std::vector<Comm> comms_;
  std::vector<cudaStream_t> streams_;
};

// 1 + 1 - 2^24 in float and similar depend on the order: which rank comes first in each chunk.
TEST_F(SoftwareNccl, AddsAlongARingThatBeginsAfterTheChunksOwnRank) {
  constexpr size_t kCount = 20;  // chunks of 8, 8 and 4 elements: a third, rounded up to 16 bytes
  const float big = 16777216, inputs[] = {1, -big, big};
  const auto all = sums(DType::f32, {std::vector<double>(kCount, 1), std::vector<double>(kCount, -double{big}),
                                     std::vector<double>(kCount, big)});
  for (size_t i = 0; i < kCount; ++i) {
    const size_t chunk = i / 8;
    float sum = inputs[(chunk + 1) % 3];
    for (size_t step = 2; step <= 3; ++step) sum += inputs[(chunk + step) % 3];
    for (const auto& rank : all) EXPECT_EQ(rank[i], sum) << i;
  }
  EXPECT_EQ(all[0][0], 1);   // (-big + big) + 1
  EXPECT_EQ(all[0][19], 1);  // 1 - big is a float
  EXPECT_EQ(all[0][8], 0);   // big + 1 is a tie, rounded to even
  const auto other = sums(DType::f32, {std::vector<double>(kCount, 1), std::vector<double>(kCount, big),
                                       std::vector<double>(kCount, -double{big})});
  EXPECT_EQ(other[0][0], 1);
  EXPECT_EQ(other[0][8], 1);   // (-big + 1) + big
  EXPECT_EQ(other[0][16], 0);  // (1 + big) - big: 1 + big is a tie, rounded to even
}

TEST_F(SoftwareNccl, RoundsEachSumToTheTypeOfTheBuffer) {
  const auto one = [&](DType dtype, double a, double b, double c) {
    return sums(dtype, {{c}, {a}, {b}})[0][0];  // chunk 0 begins with rank 1
  };
  EXPECT_EQ(one(DType::bf16, 256, 1, 1), 256);
  EXPECT_EQ(one(DType::f16, 2048, 1, 1), 2048);
  EXPECT_EQ(one(DType::f16, 60000, 60000, -60000), std::numeric_limits<double>::infinity());
  EXPECT_EQ(one(DType::f32, 16777216, 1, 1), 16777216);
  EXPECT_EQ(one(DType::f64, 16777216, 1, 1), 16777218);
  EXPECT_EQ(one(DType::e4m3, 16, 1, 1), 16);
  EXPECT_EQ(one(DType::e4m3, 448, 448, -448), 0);  // the first sum is saturated
  EXPECT_EQ(one(DType::e5m2, 57344, 57344, 0), 57344);
  ::setenv("HALFMARK_SOFTWARE_LIBRARIES", "nccl-keeps-fp32", 1);
  EXPECT_EQ(one(DType::bf16, 256, 1, 1), 258);
}

TEST_F(SoftwareNccl, AveragesByMultiplyingFirst) {
  const double third = decode(DType::f16, encode(DType::f16, 1.0 / 3));
  const double share = decode(DType::f16, encode(DType::f16, 60000 * third));
  const double two = decode(DType::f16, encode(DType::f16, share + share));
  EXPECT_EQ(sums(DType::f16, {{60000}, {60000}, {60000}}, kAvg)[2][0],
            decode(DType::f16, encode(DType::f16, two + share)));
  EXPECT_EQ(sums(DType::f32, {{2}, {3}, {7}}, kProd)[0][0], 42);
  EXPECT_EQ(sums(DType::f32, {{2}, {3}, {7}}, kMax)[0][0], 7);
  EXPECT_EQ(sums(DType::f32, {{2}, {3}, {7}}, kMin)[0][0], 2);
}

TEST_F(SoftwareNccl, AddsWhatEarlierWorkOfEveryStreamHasWritten) {
  std::vector<void*> both;
  std::vector<float> five(4, 5);
  for (size_t r = 0; r < 3; ++r) both.push_back(buffer(r, DType::f32, {1, 1, 1, 1}));
  check_runtime(cudaSetDevice(2));
  check_runtime(cudaMemcpyAsync(both[2], five.data(), 16, cudaMemcpyHostToDevice, streams_[2]));
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(reduce(r, both[r], both[r], 4), kSuccess);
  EXPECT_EQ(call("ncclGroupEnd"), kSuccess);
  EXPECT_EQ(result(0, both[0], DType::f32, 4), std::vector<double>(4, 7));
  EXPECT_EQ(result(2, both[2], DType::f32, 4), std::vector<double>(4, 7));
}

TEST_F(SoftwareNccl, OutsideAGroupOneThreadWouldWaitForEver) {
  void* both = buffer(0, DType::f32, {1});
  EXPECT_EQ(reduce(0, both, both, 1), kInvalidUsage);
  EXPECT_TRUE(says("needs a group")) << last_error();
  use({90});  // a single rank waits for nobody
  both = buffer(0, DType::f32, {3});
  EXPECT_EQ(reduce(0, both, both, 1), kSuccess);
  EXPECT_EQ(result(0, both, DType::f32, 1), std::vector<double>{3});
}

TEST_F(SoftwareNccl, RanksThatAreMissingOrDifferInAGroupAreRefused) {
  struct Case {
    size_t count, ranks;
    DType dtype;
    int op, calls;
    const char* says;
  };
  for (const Case& one :
       {Case{4, 2, DType::f32, kSum, 1, "rank 2 has made 0 calls"}, Case{3, 3, DType::f32, kSum, 1, "another count"},
        Case{4, 3, DType::f16, kSum, 1, "another type"}, Case{4, 3, DType::f32, kAvg, 1, "another operation"},
        Case{4, 3, DType::f32, kSum, 2, "rank 2 has made 2 calls"}}) {
    EXPECT_EQ(call("ncclGroupStart"), kSuccess);
    std::vector<void*> both;
    for (size_t r = 0; r < one.ranks; ++r) {
      both.push_back(buffer(r, DType::f32, {1, 1, 1, 1}));
      const bool is_last = r == 2;
      for (int n = 0; n < (is_last ? one.calls : 1); ++n)
        EXPECT_EQ(is_last ? reduce(r, both[r], both[r], one.count, one.dtype, one.op) : reduce(r, both[r], both[r], 4),
                  kSuccess);
    }
    EXPECT_EQ(call("ncclGroupEnd"), kInvalidUsage) << one.says;
    EXPECT_TRUE(says(one.says)) << last_error();
    EXPECT_EQ(result(0, both[0], DType::f32, 1), std::vector<double>{1}) << "nothing was added";
  }
}

TEST_F(SoftwareNccl, GroupsAreEndedAsOftenAsTheyAreStarted) {
  EXPECT_EQ(call("ncclGroupEnd"), kInvalidUsage);
  std::vector<void*> both;
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  for (size_t r = 0; r < 3; ++r) both.push_back(buffer(r, DType::f32, {2}));
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(reduce(r, both[r], both[r], 1), kSuccess);
  EXPECT_EQ(call("ncclGroupEnd"), kSuccess);
  EXPECT_EQ(result(0, both[0], DType::f32, 1), std::vector<double>{2}) << "the outer group has not ended";
  EXPECT_EQ(call("ncclGroupEnd"), kSuccess);
  EXPECT_EQ(result(0, both[0], DType::f32, 1), std::vector<double>{6});
}

// Each in a group with right calls of the others: the end of the group returns the error and adds nothing.
TEST_F(SoftwareNccl, RefusesWrongArguments) {
  void *in = buffer(1, DType::f32, {1, 1, 1, 1}), *out = buffer(1, DType::f32, {0, 0, 0, 0}),
       *foreign = buffer(2, DType::f32, {1, 1, 1, 1});
  float host[4] = {};
  std::vector<void*> both = {buffer(0, DType::f32, {1, 1, 1, 1}), nullptr, foreign};
  const cudaStream_t other = streams_[2];
  const auto call_with = [&](const void* from, void* to, size_t count, int type, int op, Comm comm,
                             cudaStream_t stream) {
    return call("ncclAllReduce", from, to, count, type, op, comm, stream);
  };
  struct Case {
    std::function<int()> ask;
    int status;
    const char* says;
  };
  const Comm comm = comms_[1];
  const cudaStream_t own = streams_[1];
  auto* bytes = static_cast<char*>(in);
  const Case cases[] = {
      {[&] { return call_with(nullptr, out, 4, 7, 0, comm, own); }, kInvalidArgument, "sendbuff is null"},
      {[&] { return call_with(in, nullptr, 4, 7, 0, comm, own); }, kInvalidArgument, "recvbuff is null"},
      {[&] { return call_with(host, out, 4, 7, 0, comm, own); }, kInvalidArgument, "no memory of a device"},
      {[&] { return call_with(in, foreign, 4, 7, 0, comm, own); }, kInvalidArgument, "memory of device 2"},
      {[&] { return call_with(in, out, 5, 7, 0, comm, own); }, kInvalidArgument, "too small"},
      {[&] { return call_with(in, out, SIZE_MAX, 7, 0, comm, own); }, kInvalidArgument, "beyond all memory"},
      {[&] { return call_with(in, bytes + 4, 3, 7, 0, comm, own); }, kInvalidUsage, "overlap"},
      {[&] { return call_with(in, out, 4, -1, 0, comm, own); }, kInvalidArgument, "invalid type -1"},
      {[&] { return call_with(in, out, 4, 12, 0, comm, own); }, kInvalidArgument, "invalid type 12"},
      {[&] { return call_with(in, out, 4, 2, 0, comm, own); }, kInternalError, "no integers"},
      {[&] { return call_with(in, out, 4, 7, -1, comm, own); }, kInvalidArgument, "operation -1"},
      {[&] { return call_with(in, out, 4, 7, 5, comm, own); }, kInvalidArgument, "operation 5"},
      {[&] { return call_with(in, out, 4, 7, 0, nullptr, own); }, kInvalidArgument, "no such communicator"},
      {[&] { return call_with(in, out, 4, 7, 0, &host, own); }, kInvalidArgument, "no such communicator"},
      {[&] { return call_with(in, out, 4, 7, 0, comm, other); }, kInvalidUsage, "the stream is of device 2"},
      {[&] { return call_with(in, out, 4, 7, 0, comm, reinterpret_cast<cudaStream_t>(&host)); }, kInvalidUsage,
       "no such stream"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(call("ncclGroupStart"), kSuccess);
    EXPECT_EQ(reduce(0, both[0], both[0], 4), kSuccess);
    EXPECT_EQ(one.ask(), one.status) << one.says;
    EXPECT_TRUE(says(one.says)) << one.says << ": " << last_error();
    EXPECT_EQ(reduce(2, both[2], both[2], 4), kSuccess);
    EXPECT_EQ(call("ncclGroupEnd"), one.status) << one.says;
    EXPECT_EQ(result(0, both[0], DType::f32, 1), std::vector<double>{1});
  }
  // The default stream is that of the current device.
  check_runtime(cudaSetDevice(2));
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  EXPECT_EQ(call_with(in, out, 4, 7, 0, comm, nullptr), kInvalidUsage);
  EXPECT_EQ(call("ncclGroupEnd"), kInvalidUsage);
}

TEST_F(SoftwareNccl, Fp8NeedsGpusThatHaveIt) {
  use({90, 89});
  void* both = buffer(0, DType::e4m3, {1});
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  EXPECT_EQ(reduce(0, both, both, 1, DType::e4m3), kInvalidArgument);
  EXPECT_TRUE(says("begin with sm_90"));
  EXPECT_EQ(call("ncclGroupEnd"), kInvalidArgument);
}

TEST_F(SoftwareNccl, CommunicatorsAreOfDifferentDevicesThatExist) {
  std::vector<Comm> some(3);
  const int twice[] = {0, 1, 0}, missing[] = {0, 1, 3}, order[] = {2, 0, 1};
  EXPECT_EQ(call("ncclCommInitAll", some.data(), 3, &twice[0]), kInvalidUsage);
  EXPECT_EQ(call("ncclCommInitAll", some.data(), 3, &missing[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommInitAll", some.data(), 0, &order[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommInitAll", some.data(), -1, &order[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommInitAll", static_cast<Comm*>(nullptr), 3, &order[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommInitAll", some.data(), 3, &order[0]), kSuccess);
}

TEST_F(SoftwareNccl, ADestroyedCommunicatorIsNotUsed) {
  void* both = buffer(0, DType::f32, {1});
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  EXPECT_EQ(reduce(0, both, both, 1), kSuccess);
  EXPECT_EQ(call("ncclCommDestroy", comms_[1]), kInvalidUsage) << "its group has not ended";
  EXPECT_EQ(call("ncclGroupEnd"), kInvalidUsage);
  EXPECT_EQ(call("ncclCommDestroy", comms_[0]), kSuccess);
  EXPECT_EQ(call("ncclCommDestroy", comms_[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommDestroy", Comm{}), kSuccess);
  EXPECT_EQ(reduce(0, both, both, 1), kInvalidArgument);
  int state = 0;
  EXPECT_EQ(call("ncclCommGetAsyncError", comms_[0], &state), kInvalidArgument);
  EXPECT_EQ(call("ncclCommGetAsyncError", comms_[1], static_cast<int*>(nullptr)), kInvalidArgument);
  EXPECT_EQ(call("ncclCommGetAsyncError", comms_[1], &state), kSuccess);
  EXPECT_EQ(state, kSuccess);
}

TEST_F(SoftwareNccl, UnwrittenInputsAndLostPeersFault) {
  std::vector<void*> in, out;
  for (size_t r = 0; r < 3; ++r) {
    check_runtime(cudaSetDevice(static_cast<int>(r)));
    in.push_back(allocate_on_device(64)), out.push_back(allocate_on_device(64));
  }
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(reduce(r, in[r], out[r], 16), kSuccess);
  EXPECT_EQ(call("ncclGroupEnd"), kSuccess);
  check_runtime(cudaSetDevice(0));
  EXPECT_NE(cudaStreamSynchronize(streams_[0]), cudaSuccess);
  std::vector<Comm> again(3);
  EXPECT_EQ(call("ncclCommInitAll", again.data(), 3, static_cast<const int*>(nullptr)), kUnhandledCudaError);
}

// As on a GPU: the others have no error of their own, and their sums do not end before ncclCommAbort.
TEST_F(SoftwareNccl, RanksWaitForOneThatFailsUntilTheyAreAborted) {
  std::vector<void*> in, out;
  for (size_t r = 0; r < 3; ++r) {
    in.push_back(buffer(r, DType::f32, {1, 2})), out.push_back(buffer(r, DType::f32, {0, 0}));
    if (r == 1) in[r] = allocate_on_device(8);
  }
  EXPECT_EQ(call("ncclGroupStart"), kSuccess);
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(reduce(r, in[r], out[r], 2), kSuccess);
  EXPECT_EQ(call("ncclGroupEnd"), kSuccess);
  const auto asked = [&](int rank) {
    const cudaError_t fault = cudaSetDevice(rank);
    return fault == cudaSuccess ? cudaStreamQuery(streams_[static_cast<size_t>(rank)]) : fault;
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(asked(0), cudaErrorNotReady);
  EXPECT_EQ(asked(1), cudaErrorLaunchFailure);
  for (const Comm comm : comms_) EXPECT_EQ(call("ncclCommAbort", comm), kSuccess);
  EXPECT_EQ(call("ncclCommAbort", comms_[0]), kInvalidArgument);
  EXPECT_EQ(call("ncclCommAbort", Comm{}), kSuccess);
  EXPECT_EQ(asked(0), cudaErrorNotReady);
  EXPECT_EQ(asked(0), cudaSuccess);
  EXPECT_EQ(result(2, out[2], DType::f32, 2), (std::vector<double>{0, 0}));
}

TEST_F(SoftwareNccl, EveryCallFailsOnRequest) {
  for (const std::string_view name : nccl_function_names()) {
    if (name == "ncclGetErrorString" || name == "ncclGetLastError") continue;
    fail_call(std::string(name), 1, kSystemError);
    int number = 0;
    std::vector<Comm> some(3);
    void* both = buffer(0, DType::f32, {1});
    const int result = name == "ncclGetVersion" ? call("ncclGetVersion", &number)
                       : name == "ncclCommInitAll"
                           ? call("ncclCommInitAll", some.data(), 3, static_cast<const int*>(nullptr))
                       : name == "ncclCommDestroy"       ? call("ncclCommDestroy", comms_[0])
                       : name == "ncclCommAbort"         ? call("ncclCommAbort", comms_[0])
                       : name == "ncclCommGetAsyncError" ? call("ncclCommGetAsyncError", comms_[0], &number)
                       : name == "ncclGroupStart"        ? call("ncclGroupStart")
                       : name == "ncclGroupEnd"          ? call("ncclGroupEnd")
                                                         : reduce(0, both, both, 1);
    EXPECT_EQ(result, kSystemError) << name;
    EXPECT_TRUE(says(std::string(name))) << last_error();
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::nccl
