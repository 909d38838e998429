// The stand-in of NCCL beside the real library, in what that answers without a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/nccl_calls.h"
#include "kernels/cuda/software_gpu/nccl_functions.h"

namespace halfmark::kernels::software_gpu::nccl {
namespace {

using Comm = void*;

// What a library answers to the same calls, in order.
std::vector<std::string> answers_of(void* (*find)(void*, const char*), void* library) {
  const auto call = [&](const char* name, auto... arguments) {
    return std::to_string(reinterpret_cast<int (*)(decltype(arguments)...)>(find(library, name))(arguments...));
  };
  std::vector<std::string> all;
  const auto text = reinterpret_cast<const char* (*)(int)>(find(library, "ncclGetErrorString"));
  for (int result = -1; result <= 8; ++result) all.emplace_back(text(result));
  int number = 0;
  all.push_back(call("ncclGetVersion", &number));
  all.push_back(call("ncclGetVersion", static_cast<int*>(nullptr)));
  all.push_back(call("ncclGroupEnd"));
  all.push_back(call("ncclGroupStart"));
  all.push_back(call("ncclGroupStart"));
  all.push_back(call("ncclGroupEnd"));
  all.push_back(call("ncclGroupEnd"));
  all.push_back(call("ncclGroupEnd"));
  const auto reduce = [&](Comm comm) {
    return call("ncclAllReduce", static_cast<const void*>(nullptr), static_cast<void*>(nullptr), size_t{1}, 7, 0, comm,
                static_cast<void*>(nullptr));
  };
  all.push_back(reduce(nullptr));
  all.push_back(call("ncclGroupStart"));
  all.push_back(reduce(nullptr));
  all.push_back(call("ncclGroupEnd"));
  all.push_back(call("ncclCommDestroy", Comm{}));
  all.push_back(call("ncclCommGetAsyncError", Comm{}, &number));
  return all;
}

TEST(RealNccl, AnswersAsTheStandInDoes) {
  void* library = dlopen(HALFMARK_NCCL, RTLD_LAZY | RTLD_LOCAL);
  if (!library) GTEST_SKIP() << "no NCCL: " << dlerror();
  for (const std::string_view name : nccl_function_names())
    EXPECT_NE(dlsym(library, std::string(name).c_str()), nullptr) << name;
  const auto real = answers_of([](void* from, const char* name) { return dlsym(from, name); }, library);
  const auto ours = answers_of([](void*, const char* name) { return nccl_function(name); }, nullptr);
  ASSERT_EQ(real.size(), ours.size());
  for (size_t i = 0; i < real.size(); ++i) EXPECT_EQ(real[i], ours[i]) << "answer " << i;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::nccl
