// The functions of the stand-in of NCCL. What is documented is checked as documented; beyond that, everything that would let
// the real library wait for ever or add what was not meant is an error (README.md).
#include "kernels/cuda/software_gpu/libraries/nccl_calls.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/libraries/handles.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/nccl_functions.h"

namespace halfmark::kernels::software_gpu {
namespace nccl {
namespace {

using Comm = void*;
Handles<Comm, Rank> communicators;

// Of the thread that calls, as groups are.
struct Group {
  int depth = 0;
  int error = kSuccess;
  std::vector<Call> calls;
};
Group& group() {
  static thread_local Group one;
  return one;
}
std::string& last_error() {
  static thread_local std::string text;
  return text;
}

int failed(int result, std::string text) {
  last_error() = std::move(text);
  if (group().depth > 0 && group().error == kSuccess) group().error = result;  // ncclGroupEnd returns it too
  return result;
}

// An old version has fewer types and operations (nccl.h.in of its releases: bf16 and averages since 2.10.3, FP8 since 2.24.3).
int version() { return planted("nccl-2.9") ? 20909 : planted("nccl-2.23") ? 22304 : kVersion; }
int types() { return version() < 21000 ? 9 : version() < 22400 ? 10 : kTypes; }
int ops() { return version() < 21000 ? 4 : kOps; }

std::optional<DType> dtype_of(int type) {
  for (const TypeRow& row : kFloats)
    if (row.type == type) return row.dtype;
  return {};
}

bool is_requested(const char* name, const std::optional<int>& failure, int& result) {
  if (!failure && !planted(name)) return false;
  result = failed(failure.value_or(kInternalError),
                  std::string("on request (") + name + " fails because a test asks for it)");
  return true;
}

#define HM_NCCL(name) \
  if (int requested = 0; is_requested(name, called(name), requested)) return requested

int get_version(int* out) {
  HM_NCCL("ncclGetVersion");
  if (!out) return failed(kInvalidArgument, "ncclGetVersion: no place for the version");
  *out = version();
  return kSuccess;
}

const char* get_error_string(int result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                    "internal error - please report this issue to the NCCL developers",
                                    "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                    "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= 0 && result <= kInProgress ? kTexts[result] : "unknown result code";
}

const char* get_last_error(Comm) { return last_error().c_str(); }

int init_all(Comm* comms, int count, const int* list) {
  HM_NCCL("ncclCommInitAll");
  if (!comms) return failed(kInvalidArgument, "ncclCommInitAll: no place for the communicators");
  if (count < 1) return failed(kInvalidArgument, "ncclCommInitAll: of " + std::to_string(count) + " devices");
  std::vector<int> chosen;
  for (int i = 0; i < count; ++i) {
    const int device = list ? list[i] : i;
    if (device < 0 || static_cast<size_t>(device) >= devices().size())
      return failed(kInvalidArgument, "ncclCommInitAll: there is no device " + std::to_string(device));
    // "Using the same CUDA device multiple times as different ranks of the same NCCL communicator is not supported".
    if (std::find(chosen.begin(), chosen.end(), device) != chosen.end())
      return failed(kInvalidUsage, "ncclCommInitAll: device " + std::to_string(device) + " twice");
    if (devices()[static_cast<size_t>(device)].fault != cudaSuccess)
      return failed(kUnhandledCudaError, "ncclCommInitAll: device " + std::to_string(device) + " has a fault");
    chosen.push_back(device);
  }
  int oldest = architecture_of(chosen[0]);
  for (const int device : chosen) oldest = std::min(oldest, architecture_of(device));
  static int last_clique = 0;
  const int clique = ++last_clique;
  for (int i = 0; i < count; ++i)
    comms[i] = communicators.create({clique, i, count, chosen[static_cast<size_t>(i)], oldest});
  return kSuccess;
}

int destroy(Comm comm) {
  HM_NCCL("ncclCommDestroy");
  if (!comm) return kSuccess;  // as the real one
  const auto rank = communicators.find(comm);
  if (!rank) return failed(kInvalidArgument, "ncclCommDestroy: no such communicator");
  for (const Call& call : group().calls)
    if (call.rank.clique == rank->clique)
      return failed(kInvalidUsage, "ncclCommDestroy: the group that uses the communicator has not ended");
  communicators.destroy(comm);
  return kSuccess;
}

std::set<std::pair<int, int>>& aborted() {  // clique and rank
  static std::set<std::pair<int, int>> all;
  return all;
}

// Also while the group that uses it is open, and without its device: it ends what would wait for ever.
int abort_work(Comm comm) {
  HM_NCCL("ncclCommAbort");
  if (!comm) return kSuccess;
  const auto rank = communicators.find(comm);
  if (!rank) return failed(kInvalidArgument, "ncclCommAbort: no such communicator");
  const std::lock_guard lock(runtime_mutex());
  aborted().emplace(rank->clique, rank->rank);
  communicators.destroy(comm);
  return kSuccess;
}

int get_async_error(Comm comm, int* result) {
  HM_NCCL("ncclCommGetAsyncError");
  if (!comm || !communicators.find(comm))
    return failed(kInvalidArgument, "ncclCommGetAsyncError: no such communicator");
  if (!result) return failed(kInvalidArgument, "ncclCommGetAsyncError: no place for the error");
  const Rank rank = *communicators.find(comm);
  *result = planted("nccl-async-error") && rank.rank == rank.ranks - 1 ? kRemoteError : kSuccess;
  return kSuccess;
}

int group_start() {
  HM_NCCL("ncclGroupStart");
  ++group().depth;
  return kSuccess;
}

// The memory of one operand. Checked by the real one with NCCL_CHECK_POINTERS=1 only.
std::string wrong_memory(const void* address, size_t bytes, const Rank& rank, const std::string& name) {
  if (!address) return name + " is null";
  const std::lock_guard lock(runtime_mutex());
  const Allocation* found = global_memory().find(reinterpret_cast<uint64_t>(address));
  if (!found || !found->live) return name + " is no memory of a device";
  if (found->device != rank.device)
    return name + " is memory of device " + std::to_string(found->device) + ", the communicator is of device " +
           std::to_string(rank.device);
  if (!found->holds(reinterpret_cast<uint64_t>(address), bytes)) return name + " is too small";
  return {};
}

std::string wrong_stream(cudaStream_t stream, const Rank& rank) {
  try {
    const std::lock_guard lock(runtime_mutex());
    const cudaStream_t found = stream_of(stream);
    if (found->captured) return "the stand-in has no graphs";
    if (found->device == rank.device) return {};
    return "the stream is of device " + std::to_string(found->device) + ", the communicator of device " +
           std::to_string(rank.device);
  } catch (const CallError& error) {
    return error.text;
  }
}

int all_reduce(const void* in, void* out, size_t count, int type, int op, Comm comm, cudaStream_t stream) {
  HM_NCCL("ncclAllReduce");
  const auto refused = [](int result, const std::string& why) { return failed(result, "ncclAllReduce: " + why); };
  const std::optional<Rank> rank = comm ? communicators.find(comm) : std::nullopt;
  if (!rank) return refused(kInvalidArgument, "no such communicator");
  if (type < 0 || type >= types()) return refused(kInvalidArgument, "invalid type " + std::to_string(type));
  if (op < 0 || op >= ops()) return refused(kInvalidArgument, "invalid reduction operation " + std::to_string(op));
  const auto dtype = dtype_of(type);
  if (!dtype) return refused(kInternalError, "the stand-in has no integers");
  if (bits_of(*dtype) == 8 && rank->oldest < 90) return refused(kInvalidArgument, "FP8 reductions begin with sm_90");
  const size_t most = SIZE_MAX / size_of(*dtype);
  if (count > most) return refused(kInvalidArgument, "a count beyond all memory");
  const size_t bytes = bytes_for(*dtype, count);
  for (const auto& [address, name] : {std::pair<const void*, const char*>{in, "sendbuff"}, {out, "recvbuff"}})
    if (const std::string wrong = wrong_memory(address, bytes, *rank, name); !wrong.empty())
      return refused(kInvalidArgument, wrong);
  const auto begin_in = reinterpret_cast<uintptr_t>(in), begin_out = reinterpret_cast<uintptr_t>(out);
  if (in != out && begin_in < begin_out + bytes && begin_out < begin_in + bytes)
    return refused(kInvalidUsage, "sendbuff and recvbuff overlap and are not the same");
  if (const std::string wrong = wrong_stream(stream, *rank); !wrong.empty()) return refused(kInvalidUsage, wrong);
  if (devices()[static_cast<size_t>(rank->device)].fault != cudaSuccess)
    return refused(kUnhandledCudaError, "device " + std::to_string(rank->device) + " has a fault");
  Call call{*rank, in, out, count, type, op, stream};
  if (!stream) call.stream = stream_of(nullptr);
  if (group().depth > 0) {
    group().calls.push_back(call);
    return kSuccess;
  }
  if (rank->ranks > 1)
    return refused(
        kInvalidUsage,
        "a thread that calls for several devices needs a group: this call would wait for the others for ever");
  if (count > 0) enqueue_all_reduce({call});
  return kSuccess;
}

// The calls of the group by clique: every rank has made as many, and the nth of all agree.
int launched(const std::vector<Call>& calls) {
  std::map<int, std::vector<std::vector<Call>>> cliques;
  for (const Call& call : calls) {
    auto& ranks = cliques[call.rank.clique];
    ranks.resize(static_cast<size_t>(call.rank.ranks));
    ranks[static_cast<size_t>(call.rank.rank)].push_back(call);
  }
  std::vector<std::vector<Call>> all;
  for (const auto& [number, ranks] : cliques)
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::string who = "ncclAllReduce: rank " + std::to_string(r);
      if (ranks[r].size() != ranks[0].size())
        return failed(kInvalidUsage, who + " has made " + std::to_string(ranks[r].size()) + " calls and rank 0 " +
                                         std::to_string(ranks[0].size()) + ": one would wait for the other for ever");
      for (size_t n = 0; n < ranks[r].size(); ++n) {
        const Call &one = ranks[r][n], &first = ranks[0][n];
        const char* differs = one.count != first.count ? "count"
                              : one.type != first.type ? "type"
                              : one.op != first.op     ? "operation"
                                                       : "";
        if (*differs) return failed(kInvalidUsage, who + " has another " + differs + " than rank 0");
      }
    }
  for (const auto& [number, ranks] : cliques)
    for (size_t n = 0; n < ranks[0].size(); ++n) {
      std::vector<Call> one;
      for (const auto& calls_of_rank : ranks) one.push_back(calls_of_rank[n]);
      if (one[0].count > 0) enqueue_all_reduce(one);
    }
  return kSuccess;
}

int group_end() {
  if (int result = 0; is_requested("ncclGroupEnd", called("ncclGroupEnd"), result)) {
    group() = {};
    return result;
  }
  if (group().depth == 0) return failed(kInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group().depth > 0) return kSuccess;
  const Group ended = std::exchange(group(), Group{});
  return ended.error != kSuccess ? ended.error : launched(ended.calls);
}

struct Function {
  std::string_view name;
  void* address;
};
template <class F>
void* address(F function) {
  return reinterpret_cast<void*>(function);
}
const std::vector<Function>& functions() {
  static const std::vector<Function> all = {
      {"ncclGetVersion", address(&get_version)},      {"ncclGetErrorString", address(&get_error_string)},
      {"ncclGetLastError", address(&get_last_error)}, {"ncclCommInitAll", address(&init_all)},
      {"ncclCommDestroy", address(&destroy)},         {"ncclCommGetAsyncError", address(&get_async_error)},
      {"ncclGroupStart", address(&group_start)},      {"ncclGroupEnd", address(&group_end)},
      {"ncclAllReduce", address(&all_reduce)},        {"ncclCommAbort", address(&abort_work)},
  };
  return all;
}

}  // namespace

bool is_aborted(const Rank& rank) { return aborted().contains({rank.clique, rank.rank}); }

}  // namespace nccl

bool nccl_never_ends() { return planted("nccl-stops") || planted("nccl-never-ends"); }

void* nccl_function(std::string_view name) {
  if (planted("no-nccl")) return nullptr;
  for (const nccl::Function& one : nccl::functions())
    if (one.name == name) return one.address;
  return nullptr;
}

std::vector<std::string_view> nccl_function_names() {
  std::vector<std::string_view> names;
  for (const nccl::Function& one : nccl::functions()) names.push_back(one.name);
  return names;
}

}  // namespace halfmark::kernels::software_gpu
