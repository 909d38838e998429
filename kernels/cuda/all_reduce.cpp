#include "kernels/cuda/all_reduce.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <thread>

#include "kernels/cuda/hardware.h"
#include "kernels/cuda/launch.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Event {
  explicit Event(const CudaDevice& of) : device(of) { HM_CUDA(cudaEventCreate(&event)); }
  ~Event() {
    if (!device.is_lost()) ignore(cudaEventDestroy(event));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const CudaDevice& device;
  cudaEvent_t event = nullptr;
};

}  // namespace

NcclGroup::NcclGroup(std::vector<CudaDevice*> devices, NcclLibrary library)
    : devices_(std::move(devices)), library_(std::move(library)) {
  std::vector<int> list;
  for (const CudaDevice* device : devices_) {
    device->activate();
    list.push_back(device->index());
  }
  std::vector<nccl::Comm> comms(devices_.size(), nullptr);
  try {
    library_.call<nccl::CommInitAll>("ncclCommInitAll", comms.data(), static_cast<int>(list.size()), list.data());
  } catch (const Unsupported& refusal) {
    give_up(refusal);
    throw;
  }
  comms_ = std::move(comms);
}

// Communicators are destroyed after their work; what has failed is given up.
NcclGroup::~NcclGroup() {
  try {
    if (!broken_) wait();
  } catch (const Error&) {  // nothing waits for it
  }
  if (broken_) return;
  for (size_t i = 0; i < comms_.size(); ++i) {
    ignore(cudaSetDevice(devices_[i]->index()));
    (void)library_.status<nccl::CommDestroy>("ncclCommDestroy", comms_[i]);
  }
}

std::string NcclGroup::library() const {
  return (hardware_described().empty() ? "NCCL " : "stand-in of NCCL ") + library_.version();
}

std::vector<std::pair<std::string, std::string>> NcclGroup::settings() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** one = ::environ; one && *one; ++one) {
    const std::string_view text = *one;
    const size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != text.npos)
      all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(all.begin(), all.end());
  return all;
}

void NcclGroup::run(std::span<const Tensor> in, std::span<Tensor> out, ReduceOp op) {
  HM_CHECK(!broken_, "a group of devices is not used again after a call that failed");
  HM_CHECK(in.size() == devices_.size() && out.size() == devices_.size(),
           "a sum across devices needs a tensor of each of them");
  const DType dtype = in[0].dtype();
  for (size_t i = 0; i < devices_.size(); ++i)
    for (const Tensor* one : {&in[i], static_cast<const Tensor*>(&out[i])})
      HM_CHECK(&one->device() == devices_[i] && one->dtype() == dtype && one->elements() == in[0].elements() &&
                   one->layout() == Layout::plain,
               "a sum across devices needs plain tensors of one dtype and size, each on its device");
  const auto type = nccl_type(dtype);
  if (!type) throw Unsupported("NCCL has no sums of " + std::string(name_of(dtype)));
  if (in[0].elements() == 0) return;
  for (const CudaDevice* device : devices_) device->activate();
  try {
    enqueue(in, out, *type, op == ReduceOp::sum ? nccl::kSum : nccl::kAvg);
  } catch (const Unsupported& refusal) {
    give_up(refusal);
    throw;
  }
  for (Tensor& one : out) one.touch();
}

// A group that was started is ended whatever happens: the calls of this thread would never begin otherwise.
void NcclGroup::enqueue(std::span<const Tensor> in, std::span<Tensor> out, int type, int op) {
  library_.call<nccl::GroupStart>("ncclGroupStart");
  try {
    for (size_t i = 0; i < devices_.size(); ++i)
      library_.call<nccl::AllReduce>("ncclAllReduce", in[i].data(), out[i].data(),
                                     static_cast<size_t>(in[i].elements()), type, op, comms_[i], devices_[i]->stream());
  } catch (const Unsupported&) {
    (void)library_.status<nccl::GroupEnd>("ncclGroupEnd");  // says the same, or that ranks are missing
    throw;
  }
  library_.call<nccl::GroupEnd>("ncclGroupEnd");
}

// The ranks together: waiting for one of them would not end if another fails, whose part it needs.
bool NcclGroup::are_done() {
  bool are_done = true;
  for (size_t i = 0; i < devices_.size(); ++i) {
    HM_CHECK(!devices_[i]->is_lost(), name_of_rank(i) + " is lost");
    const char* call = "cudaSetDevice";
    cudaError_t status = cudaSetDevice(devices_[i]->index());
    if (status == cudaSuccess) call = "cudaStreamQuery", status = cudaStreamQuery(devices_[i]->stream());
    ignore(status);
    if (status == cudaErrorNotReady)
      are_done = false;
    else if (status != cudaSuccess)
      throw Error(name_of_rank(i) + ": " + failure_text(status, call));
  }
  for (size_t i = 0; i < comms_.size(); ++i) {
    int result = nccl::kSuccess;
    library_.call<nccl::CommGetAsyncError>("ncclCommGetAsyncError", comms_[i], &result);
    if (result != nccl::kSuccess && result != nccl::kInProgress)
      library_.fail(name_of_rank(i) + ": ncclAllReduce", result);
  }
  return are_done;
}

void NcclGroup::wait() {
  const double limit = nccl_limit();
  const double begin = seconds_now();
  try {
    while (!are_done()) {
      const double waited = seconds_now() - begin;
      if (waited > limit) {
        std::string names;
        for (const size_t rank : unfinished(0)) names += (names.empty() ? "" : ", ") + name_of_rank(rank);
        throw Error("ncclAllReduce: not ended after " + std::to_string(std::lround(limit)) + " s: " + names);
      }
      // Short sums are waited for without sleeping.
      if (waited > 1e-3) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const Error& error) {
    give_up(error);
    throw;
  }
}

std::optional<double> NcclGroup::time_after_pause(double pause, const std::function<void()>& work) {
  wait();
  devices_[0]->activate();
  const cudaStream_t stream = devices_[0]->stream();
  const Event start(*devices_[0]), stop(*devices_[0]);
  launch_pause(stream, static_cast<uint32_t>(std::lround(std::min(pause, 1.0) * 1e6)));
  HM_CUDA(cudaEventRecord(start.event, stream));
  work();
  devices_[0]->activate();
  const cudaError_t state = cudaEventQuery(start.event);  // of the end of the pause
  ignore(state);
  if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
  HM_CUDA(cudaEventRecord(stop.event, stream));
  wait();
  devices_[0]->activate();
  float milliseconds = 0;
  HM_CUDA(cudaEventElapsedTime(&milliseconds, start.event, stop.event));
  return state == cudaErrorNotReady ? std::optional(static_cast<double>(milliseconds) * 1e-3) : std::nullopt;
}

std::string NcclGroup::name_of_rank(size_t rank) const {
  return "rank " + std::to_string(rank) + " (" + devices_[rank]->name() + ")";
}

std::vector<size_t> NcclGroup::unfinished(double seconds) {
  const double end = seconds_now() + seconds;
  for (;;) {
    std::vector<size_t> ranks;
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i]->is_lost()) continue;
      ignore(cudaSetDevice(devices_[i]->index()));
      const cudaError_t status = cudaStreamQuery(devices_[i]->stream());
      ignore(status);
      if (status == cudaErrorNotReady) ranks.push_back(i);
    }
    if (ranks.empty() || seconds_now() >= end) return ranks;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Only ncclCommAbort ends sums that wait for a rank which does not come. It is called of every rank, as NVIDIA demands, but
// not without the context of its GPU, in which it has memory.
void NcclGroup::give_up(const Error& cause) {
  broken_ = true;
  for (size_t i = 0; i < comms_.size(); ++i) {
    if (devices_[i]->is_lost()) continue;
    ignore(cudaSetDevice(devices_[i]->index()));
    (void)library_.status<nccl::CommAbort>("ncclCommAbort", comms_[i]);
  }
  comms_.clear();
  constexpr double kLongest = 10;  // seconds, for what ncclCommAbort has to end
  for (const size_t rank : unfinished(std::min(kLongest, nccl_limit())))
    devices_[rank]->leave("its part of a sum does not end, also after ncclCommAbort");
  for (CudaDevice* device : devices_)
    if (const std::string lost = device->lost(); !lost.empty())
      throw Error(device->name() + " is lost: " + lost + " (" + cause.what() + ")");
}

}  // namespace halfmark::kernels::cuda
