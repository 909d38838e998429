// What the plugin declares of NCCL beside its header, and what it makes of a library that lacks functions or fails.
#include "kernels/cuda/nccl_library.h"

#include <gtest/gtest.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {
namespace {

#ifdef NCCL_MAJOR
static_assert(nccl::kSuccess == ncclSuccess && nccl::kInProgress == ncclInProgress && nccl::kSum == ncclSum &&
              nccl::kAvg == ncclAvg);
static_assert(nccl::kFloat16 == ncclFloat16 && nccl::kFloat32 == ncclFloat32 && nccl::kFloat64 == ncclFloat64 &&
              nccl::kBfloat16 == ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
static_assert(nccl::kFloat8e4m3 == ncclFloat8e4m3 && nccl::kFloat8e5m2 == ncclFloat8e5m2);
#endif

// One parameter or result as C passes it: the same type, a pointer for a pointer, or an int for an enumeration of its size.
template <class Ours, class Theirs>
constexpr bool kPassedAlike = std::is_same_v<Ours, Theirs> || (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) ||
                              (std::is_same_v<Ours, int> && std::is_enum_v<Theirs> && sizeof(Theirs) == sizeof(int));
template <class Ours, class Theirs>
struct CalledAlike : std::false_type {};
template <class R, class... P, class S, class... Q>
struct CalledAlike<R (*)(P...), S (*)(Q...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) != sizeof...(Q))
      return false;
    else
      return kPassedAlike<R, S> && (kPassedAlike<P, Q> && ...);
  }();
};
static_assert(CalledAlike<nccl::GetVersion, decltype(&ncclGetVersion)>::value);
static_assert(CalledAlike<nccl::GetErrorString, decltype(&ncclGetErrorString)>::value);
static_assert(CalledAlike<nccl::GetLastError, decltype(&ncclGetLastError)>::value);
static_assert(CalledAlike<nccl::CommInitAll, decltype(&ncclCommInitAll)>::value);
static_assert(CalledAlike<nccl::CommDestroy, decltype(&ncclCommDestroy)>::value);
static_assert(CalledAlike<nccl::CommAbort, decltype(&ncclCommAbort)>::value);
static_assert(CalledAlike<nccl::CommGetAsyncError, decltype(&ncclCommGetAsyncError)>::value);
static_assert(CalledAlike<nccl::GroupStart, decltype(&ncclGroupStart)>::value);
static_assert(CalledAlike<nccl::GroupEnd, decltype(&ncclGroupEnd)>::value);
static_assert(CalledAlike<nccl::AllReduce, decltype(&ncclAllReduce)>::value);
static_assert(!CalledAlike<nccl::GroupEnd, decltype(&ncclAllReduce)>::value);

TEST(NcclLibrary, ReadsVersionsAsTheHeaderWritesThem) {
  EXPECT_EQ(nccl_version_text(NCCL_VERSION_CODE),
            std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." + std::to_string(NCCL_PATCH));
}
#endif

TEST(NcclLibrary, ReadsVersionsOfBothForms) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21003), "2.10.3");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

TEST(NcclLibrary, HasFloatingTypesThatNcclHas) {
  int known = 0;
  for (const DType dtype : dtypes()) known += nccl_type(dtype) ? 1 : 0;
  EXPECT_EQ(known, 6);
  EXPECT_EQ(nccl_type(DType::bf16), nccl::kBfloat16);
  EXPECT_EQ(nccl_type(DType::i32), std::nullopt);
}

// As the wheels of cuBLAS for CUDA 12 and 13, and of NCCL, lie beside each other.
TEST(NcclLibrary, IsLookedForBesideOtherLibrariesAndTheirWheels) {
  EXPECT_EQ(nccl_files("/site/nvidia/cublas/lib/libcublasLt.so.12"),
            (std::vector<std::string>{"libnccl.so.2", "/site/nvidia/cublas/lib/libnccl.so.2",
                                      "/site/nvidia/nccl/lib/libnccl.so.2"}));
  EXPECT_EQ(nccl_files("/site/nvidia/cu13/lib/libcublasLt.so.13")[2], "/site/nvidia/nccl/lib/libnccl.so.2");
  EXPECT_EQ(nccl_files(""), std::vector<std::string>{"libnccl.so.2"});
}

TEST(NcclLibrary, ThatCannotBeLoadedSaysWhyAndWhatToDo) {
  const std::string text = testing::TempDir() + "halfmark_no_nccl.so";
  std::ofstream(text) << "not a library\n";
  std::string reason;
  EXPECT_EQ(load_nccl({"libhalfmark_absent.so.2"}, reason), nullptr);
  EXPECT_TRUE(reason.starts_with("libhalfmark_absent.so.2: cannot open shared object file")) << reason;
  EXPECT_TRUE(reason.ends_with(" (install NCCL 2 for this CUDA, or add its folder to LD_LIBRARY_PATH)")) << reason;
  EXPECT_EQ(load_nccl({"libhalfmark_absent.so.2", text, "/halfmark/absent.so"}, reason), nullptr);
  EXPECT_NE(reason.find("halfmark_no_nccl.so: "), std::string::npos) << reason;
  EXPECT_EQ(reason.find('\n'), std::string::npos);
  EXPECT_NE(load_nccl({"libhalfmark_absent.so.2", text, "libc.so.6"}, reason), nullptr);
}

int fails() { return 4; }
int works() { return 0; }
const char* error_string(int result) { return result == 4 ? "invalid argument" : "?"; }
const char* last_error(nccl::Comm) { return "AllReduce :\nno such type"; }

// A library of these functions.
NcclLibrary library_of(std::map<std::string, void*> functions) {
  functions.try_emplace("ncclAllReduce", reinterpret_cast<void*>(&works));
  return NcclLibrary([functions](const char* name, std::string& reason) -> void* {
    if (const auto found = functions.find(name); found != functions.end()) return found->second;
    reason = std::string("there is no ") + name;
    return nullptr;
  });
}

std::string refusal_of(const NcclLibrary& library) {
  try {
    library.call<nccl::GroupStart>("ncclGroupStart");
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "none";
}

TEST(NcclLibrary, ACallThatFailsIsARefusalInOneLineThatNamesIt) {
  const auto failing = reinterpret_cast<void*>(&fails), words = reinterpret_cast<void*>(&error_string),
             last = reinterpret_cast<void*>(&last_error);
  EXPECT_EQ(refusal_of(library_of({{"ncclGroupStart", reinterpret_cast<void*>(&works)}})), "none");
  EXPECT_EQ(
      refusal_of(library_of({{"ncclGroupStart", failing}, {"ncclGetErrorString", words}, {"ncclGetLastError", last}})),
      "ncclGroupStart: invalid argument: AllReduce : no such type");
  // Before 2.13 there was no ncclGetLastError.
  EXPECT_EQ(refusal_of(library_of({{"ncclGroupStart", failing}, {"ncclGetErrorString", words}})),
            "ncclGroupStart: invalid argument");
  EXPECT_EQ(refusal_of(library_of({{"ncclGroupStart", failing}})), "ncclGroupStart: status 4");
  EXPECT_EQ(refusal_of(library_of({})), "NCCL cannot be used: there is no ncclGroupStart");
}

TEST(NcclLibrary, ThatIsMissingIsARefusal) {
  EXPECT_THROW(NcclLibrary([](const char*, std::string& reason) -> void* {
                 reason = "libnccl.so.2 is not found";
                 return nullptr;
               }),
               Unsupported);
}

}  // namespace
}  // namespace halfmark::kernels::cuda
